//! A `BTreeMap` with values shared between copies until they change, because slow decisions and snapshots
//! copy the state.

use std::borrow::Borrow;
use std::collections::{BTreeMap, btree_map};
use std::ops::{Deref, Index};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Behaves as a `BTreeMap`, in order and serialisation too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SharedMap<K: Ord, V>(BTreeMap<K, Arc<V>>);

impl<K: Ord, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, V: Clone> SharedMap<K, V> {
    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Reports whether the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reports whether `key` has a value.
    #[must_use]
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.contains_key(key)
    }

    /// Returns the value of `key`.
    #[must_use]
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key).map(Deref::deref)
    }

    /// Returns the value mutably, unshared.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.0.get_mut(key).map(Arc::make_mut)
    }

    /// Returns the value, or inserts the default.
    pub fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        Arc::make_mut(self.0.entry(key).or_default())
    }

    /// Sets a value; returns the previous one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.0.insert(key, Arc::new(value));
        before.map(Arc::unwrap_or_clone)
    }

    /// Removes `key`.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.0.remove(key).map(Arc::unwrap_or_clone)
    }

    /// Iterates over the keys, in order.
    pub fn keys(&self) -> btree_map::Keys<'_, K, Arc<V>> {
        self.0.keys()
    }

    /// Iterates over the values, in key order.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + Clone {
        self.0.values().map(Deref::deref)
    }

    /// Iterates over the selected values mutably, unshared. The others stay shared.
    pub fn values_mut_if(
        &mut self,
        is_selected: impl Fn(&V) -> bool,
    ) -> impl Iterator<Item = &mut V> {
        let selected = self.0.values_mut().filter(move |value| is_selected(value));
        selected.map(Arc::make_mut)
    }

    /// Iterates over entries changed since an earlier copy, in order.
    pub fn changed_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (&'a K, &'a V)> {
        let mut before = before.0.iter().peekable();
        let is_changed = move |(key, value): &(&K, &Arc<V>)| {
            // Shared values need no key comparison.
            while before
                .next_if(|(it, was)| !Arc::ptr_eq(was, value) && it < key)
                .is_some()
            {}
            before
                .next_if(|(it, was)| Arc::ptr_eq(was, value) || it == key)
                .is_none_or(|(_, was)| !Arc::ptr_eq(was, value))
        };
        self.0.iter().filter(is_changed).map(shown)
    }

    /// Iterates in order.
    pub fn iter(&self) -> Iter<'_, K, V> {
        self.0.iter().map(shown)
    }
}

/// The iterator of [`SharedMap::iter`].
pub type Iter<'a, K, V> =
    std::iter::Map<btree_map::Iter<'a, K, Arc<V>>, fn((&'a K, &'a Arc<V>)) -> (&'a K, &'a V)>;

fn shown<'a, K, V>((key, value): (&'a K, &'a Arc<V>)) -> (&'a K, &'a V) {
    (key, value)
}

impl<'a, K: Ord, V: Clone> IntoIterator for &'a SharedMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: Ord + Borrow<Q>, Q: Ord + ?Sized, V: Clone> Index<&Q> for SharedMap<K, V> {
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        &self.0[key]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_values_until_one_changes_one() {
        let mut first = SharedMap::default();
        first.insert("a", vec![1]);
        first.insert("b", vec![2]);
        let second = first.clone();
        first.get_mut("a").expect("a value").push(3);
        let same = |key| {
            let values = (first.get(key), second.get(key));
            matches!(values, (Some(left), Some(right)) if std::ptr::eq(left, right))
        };
        assert!(same("b") && !same("a"));
        assert_eq!(second.get("a"), Some(&vec![1]));
        assert_eq!(first.remove("b"), Some(vec![2]));
        assert_eq!(second.get("b"), Some(&vec![2]));
    }

    #[test]
    fn what_has_changed_since_a_copy_is_told() {
        let map = |keys: &[u32]| {
            let mut map = SharedMap::default();
            for key in keys {
                map.insert(*key, *key);
            }
            map
        };
        let before = map(&[1, 3, 5, 7, 9]);
        let mut after = before.clone();
        let changed = |after: &SharedMap<u32, u32>| {
            let changed = after.changed_since(&before);
            changed
                .map(|(key, value)| (*key, *value))
                .collect::<Vec<_>>()
        };
        assert_eq!(changed(&after), []);
        after.remove(&1);
        after.remove(&5);
        *after.get_mut(&3).expect("a value") = 30;
        after.insert(6, 6);
        after.insert(9, 9);
        after.insert(10, 10);
        assert_eq!(changed(&after), [(3, 30), (6, 6), (9, 9), (10, 10)]);
        assert_eq!(map(&[0, 8]).changed_since(&before).count(), 2);
        assert_eq!(SharedMap::default().changed_since(&before).count(), 0);
    }

    #[test]
    fn it_is_written_as_a_map() {
        let mut map = SharedMap::default();
        map.insert(2, "two".to_owned());
        map.insert(1, "one".to_owned());
        let text = serde_json::to_string(&map).expect("it is written");
        assert_eq!(text, r#"{"1":"one","2":"two"}"#);
        assert_eq!(
            serde_json::from_str::<SharedMap<i32, String>>(&text).expect("read"),
            map
        );
    }
}
