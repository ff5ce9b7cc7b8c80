//! A hash map by id for frequent lookups. Iteration and serialisation follow the ids, so equal folds are
//! equal to the last byte.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hash, Hasher};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A hash map visibly ordered by id.
#[derive(Debug, Clone, PartialEq)]
pub struct IdMap<K: Hash + Eq, V>(HashMap<K, V, BuildHasherDefault<IdHasher>>);

impl<K: Hash + Eq, V> Default for IdMap<K, V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Hash + Ord, V> IdMap<K, V> {
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

    /// Returns the value of `id`.
    #[must_use]
    pub fn get(&self, id: &K) -> Option<&V> {
        self.0.get(id)
    }

    /// Returns the value mutably.
    pub fn get_mut(&mut self, id: &K) -> Option<&mut V> {
        self.0.get_mut(id)
    }

    /// Sets a value; returns the previous one.
    pub fn insert(&mut self, id: K, value: V) -> Option<V> {
        self.0.insert(id, value)
    }

    /// Returns the value, or inserts the default.
    pub fn or_default(&mut self, id: &K) -> &mut V
    where
        K: Clone,
        V: Default,
    {
        self.0.entry(id.clone()).or_default()
    }

    /// Removes `id`.
    pub fn remove(&mut self, id: &K) -> Option<V> {
        self.0.remove(id)
    }

    /// Removes an entry.
    pub fn remove_entry(&mut self, id: &K) -> Option<(K, V)> {
        self.0.remove_entry(id)
    }

    /// Iterates by id. Sorts: too slow for every event.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let sorted: BTreeMap<&K, &V> = self.0.iter().collect();
        sorted.into_iter()
    }

    /// Iterates in arbitrary order, for order-independent results.
    pub fn in_any_order(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter()
    }
}

impl<K: Hash + Ord + Serialize, V: Serialize> Serialize for IdMap<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, K: Hash + Eq + Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for IdMap<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        HashMap::deserialize(deserializer).map(Self)
    }
}

/// A multiplicative hasher, deterministic as folds require.
#[derive(Debug, Clone, Copy, Default)]
pub struct IdHasher(u64);

impl IdHasher {
    /// 2⁶⁴ ÷ golden ratio: odd and without pattern.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(Self::FACTOR);
        let (high, low) = ((product >> 64) as u64, product as u64);
        self.0 = high ^ low ^ word.rotate_left(32);
    }
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        if rest.is_empty() {
            return;
        }
        // The last eight bytes, or a short id with its length.
        let last = bytes.last_chunk().map(|last| u64::from_le_bytes(*last));
        let all = |word: u64, byte: &u8| word << 8 | u64::from(*byte);
        self.mix(last.unwrap_or_else(|| rest.iter().fold(bytes.len() as u64, all)));
    }

    fn write_u8(&mut self, _: u8) {
        // An id needs no terminator.
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(ids: impl Iterator<Item = u32>) -> IdMap<String, u32> {
        let mut map = IdMap::default();
        for id in ids {
            map.insert(format!("ads/j{id:06}"), id);
        }
        map
    }

    #[test]
    fn its_order_is_that_of_the_ids_whatever_came_first() {
        let (up, down) = (map(0..500), map((0..500).rev()));
        let ids: Vec<u32> = up.iter().map(|(_, id)| *id).collect();
        assert_eq!(ids, (0..500).collect::<Vec<_>>());
        assert_eq!(up, down);
        let written = |map| serde_json::to_string(map).expect("encodes");
        let sorted: BTreeMap<&String, &u32> = up.iter().collect();
        assert_eq!(
            written(&up),
            serde_json::to_string(&sorted).expect("encodes")
        );
        assert_eq!(written(&up), written(&down));
        let read: IdMap<String, u32> = serde_json::from_str(&written(&up)).expect("decodes");
        assert_eq!(read, up);
    }

    #[test]
    fn ids_that_are_alike_are_spread() {
        let mut buckets = [0_u32; 256];
        for id in 0..25_600 {
            let mut hasher = IdHasher::default();
            format!("ads/j{id:06}").hash(&mut hasher);
            buckets[(hasher.finish() % 256) as usize] += 1;
        }
        assert!(
            buckets.iter().all(|count| (50..160).contains(count)),
            "{buckets:?}"
        );
    }
}
