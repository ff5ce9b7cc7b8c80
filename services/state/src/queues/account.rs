//! Checked sums. A sum saturated at 0 would silently corrupt decisions. Running and waiting jobs bound these
//! sums, so none overflows; sums of requested amounts may overflow and are unchecked.

/// The first sum that did not add up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Contradiction(Option<String>);

impl Contradiction {
    pub(super) fn what(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Takes from a sum; `of` names the sum.
    pub(super) fn take(&mut self, sum: &mut u64, less: u64, of: impl FnOnce() -> String) {
        match sum.checked_sub(less) {
            Some(left) => *sum = left,
            None => {
                let had = std::mem::take(sum);
                let what = || format!("{} cannot be {had} less {less}", of());
                self.0.get_or_insert_with(what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_add_up_is_named_once() {
        let (mut sum, mut found) = (3, Contradiction::default());
        found.take(&mut sum, 3, || "the first".to_owned());
        assert_eq!((sum, found.what()), (0, None));
        found.take(&mut sum, 1, || "the second".to_owned());
        found.take(&mut sum, 2, || "the third".to_owned());
        assert_eq!(found.what(), Some("the second cannot be 0 less 1"));
    }
}
