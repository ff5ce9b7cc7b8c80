//! Leaves fields out of documents and events while they have their default.

/// Reports whether `value` is its type's default, for `skip_serializing_if`.
#[must_use]
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
