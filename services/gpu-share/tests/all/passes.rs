//! Passes admit the allotted launches, and none after invalidation.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use dormouse_gpu_share::passes::{Pass, Passes};

#[test]
fn a_pass_lets_in_as_many_as_it_was_given_while_it_is_valid() {
    let passes = Passes::default();
    let at = passes.take(0).expect("a place");
    let pass = passes.of(0).expect("a pass");
    assert!(!pass.enter(), "nothing was allotted");
    pass.allot(2);
    assert!(!pass.enter(), "it is not valid");
    pass.validate();
    assert!(pass.enter() && pass.enter() && !pass.enter());
    assert_eq!((pass.inside(), pass.left()), (2, 0));
    assert!(!pass.leave(), "another is inside");
    assert!(pass.leave(), "the last one");
    pass.allot(5);
    passes.invalidate_all();
    assert!(!pass.enter());
    assert!(pass.let_in(), "under the lock");
    assert_eq!((pass.inside(), pass.left()), (1, 4));
    assert!(!pass.leave());
    passes.give(at);
    assert!(passes.of(0).is_none());
    assert!(passes.take(0).is_some());
}

#[test]
fn streams_of_one_place_do_not_pass_for_each_other() {
    let passes = Passes::default();
    let first = 0x7f00_0000_1000;
    assert!(passes.take(first).is_some());
    let mut others = (1..64).map(|by| first + by * 32);
    let second = others.find(|it| passes.take(*it).is_none());
    let second = second.expect("one whose place is taken");
    assert!(passes.of(first).is_some() && passes.of(second).is_none());
}

#[test]
fn a_place_whose_stream_went_during_a_launch_is_not_used_again() {
    let passes = Passes::default();
    let at = passes.take(64).expect("a place");
    let pass = passes.at(at);
    assert!(!pass.let_in(), "nothing was allotted");
    passes.give(at);
    assert!(passes.of(64).is_none() && passes.take(64).is_none());
    assert!(pass.leave());
}

#[test]
fn nobody_launches_once_the_pass_is_away_and_nobody_is_inside() {
    let pass = Pass::default();
    let launching = AtomicU32::new(0);
    let ended = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while ended.load(Acquire) == 0 {
                    if pass.enter() {
                        launching.fetch_add(1, AcqRel);
                        launching.fetch_sub(1, AcqRel);
                        let _ = pass.leave();
                    }
                }
            });
        }
        for _ in 0..500 {
            pass.allot(1_000);
            pass.validate();
            while pass.left() > 500 {
                std::thread::yield_now();
            }
            pass.invalidate();
            while pass.inside() > 0 {
                std::thread::yield_now();
            }
            for _ in 0..10 {
                assert_eq!(launching.load(Relaxed), 0);
            }
        }
        ended.store(1, Relaxed);
    });
}
