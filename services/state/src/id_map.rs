//! A map by id that is looked into with every event, and gone through when somebody asks.
//!
//! A tree compares a dozen ids that lie apart in memory; here it is one or two. What can be seen
//! of its order is that of the ids ([`IdMap::iter`], serialisation), so that equal folds stay
//! equal to the last byte.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hash, Hasher};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The map.
#[derive(Debug, Clone, PartialEq)]
pub struct IdMap<K: Hash + Eq, V>(HashMap<K, V, BuildHasherDefault<IdHasher>>);

impl<K: Hash + Eq, V> Default for IdMap<K, V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Hash + Ord, V> IdMap<K, V> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What `id` has.
    #[must_use]
    pub fn get(&self, id: &K) -> Option<&V> {
        self.0.get(id)
    }

    /// What `id` has, to change it.
    pub fn get_mut(&mut self, id: &K) -> Option<&mut V> {
        self.0.get_mut(id)
    }

    /// Gives `id` a value; the one before.
    pub fn insert(&mut self, id: K, value: V) -> Option<V> {
        self.0.insert(id, value)
    }

    /// What `id` has, made where it has nothing.
    pub fn or_default(&mut self, id: &K) -> &mut V
    where
        K: Clone,
        V: Default,
    {
        self.0.entry(id.clone()).or_default()
    }

    /// Takes `id` out.
    pub fn remove(&mut self, id: &K) -> Option<V> {
        self.0.remove(id)
    }

    /// Takes `id` out, with the key that stood here.
    pub fn remove_entry(&mut self, id: &K) -> Option<(K, V)> {
        self.0.remove_entry(id)
    }

    /// All by id. Sorts them: not for every event.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let sorted: BTreeMap<&K, &V> = self.0.iter().collect();
        sorted.into_iter()
    }

    /// All in no order: only where it cannot be seen in what comes of it.
    pub fn in_any_order(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter()
    }

    /// All in no order, to change them: only where it cannot be seen in what comes of it.
    pub fn values_mut_in_any_order(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.values_mut()
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

/// Mixes eight bytes at a time by a multiplication whose halves are folded together. The same in
/// every process: chance has no place in a fold.
#[derive(Debug, Clone, Copy, Default)]
pub struct IdHasher(u64);

impl IdHasher {
    /// An odd number without a pattern: 2⁶⁴ divided by the golden ratio.
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
        // The last eight bytes, or all of a short id; its length is mixed in behind it.
        let last = bytes.last_chunk().map(|last| u64::from_le_bytes(*last));
        let all = |word: u64, byte: &u8| word << 8 | u64::from(*byte);
        self.mix(last.unwrap_or_else(|| rest.iter().fold(bytes.len() as u64, all)));
    }

    fn write_u8(&mut self, _: u8) {
        // The end of a text: an id is one text.
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
        // 100 each, and ± 10 is the standard deviation of chance.
        assert!(
            buckets.iter().all(|count| (50..160).contains(count)),
            "{buckets:?}"
        );
    }
}
