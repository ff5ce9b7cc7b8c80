//! A copy-on-write value.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A shared value, copied when an owner changes it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    /// Wraps a value.
    pub fn new(value: T) -> Self {
        Self(Arc::new(value))
    }

    /// Reports identity, not equality.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T: Clone> Shared<T> {
    /// Returns the value mutably, copied if shared.
    pub fn to_change(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }

    /// Unwraps the value.
    pub fn into_value(self) -> T {
        Arc::unwrap_or_clone(self.0)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_changes_its_own() {
        let mut one = Shared::new(vec![1]);
        let other = one.clone();
        one.to_change().push(2);
        assert_eq!((&*one, &*other), (&vec![1, 2], &vec![1]));
        let written = serde_json::to_string(&one).expect("encodes");
        assert_eq!(written, "[1,2]");
        let read: Shared<Vec<i32>> = serde_json::from_str(&written).expect("decodes");
        assert_eq!(read, one);
    }
}
