//! The log that the benchmarks fold.

use std::sync::Arc;

use dormouse_messages::Recorded;
use dormouse_replay::scenario::generate::{Kind, Size, generate};
use dormouse_replay::scenario::read_value;
use dormouse_replay::simulate::{Options, simulate};

pub fn simulated(each: impl FnMut(&Arc<Recorded>) -> Result<(), String>) {
    let size = Size {
        jobs: 3_000,
        nodes: 200,
        days: 1.0,
    };
    let mut document = generate(Kind::Trace, 7, size);
    document["policy"]["allocation"] = "drf".into();
    let scenario = read_value(document).expect("a scenario");
    simulate(&scenario, &Options::default(), each, |_| {}).expect("simulates");
}
