//! The vocabulary of Dormouse: ids, units, events, envelope, subjects and codecs.
