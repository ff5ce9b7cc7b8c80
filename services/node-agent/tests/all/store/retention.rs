//! Tests of pruning in a store.

use std::collections::BTreeSet;
use std::fs;

use super::{Node, in_memory, runtime};
use crate::common::{NODE, job_folder};
use dormouse_messages::Incarnation;
use dormouse_node_agent::store::retain::Keep;

#[test]
fn the_newest_stay_and_what_the_log_names_and_torn_uploads_of_earlier_incarnations_go() {
    let (runtime, node) = (runtime(), Node::new(NODE));
    let (store, objects) = in_memory(&runtime);
    let layout = node.config().layout();
    let put = |incarnation: u32, step: u32| {
        let below = layout.checkpoint_below(&job_folder(), Incarnation(incarnation));
        below.make().expect("made");
        let text = format!("{{\"step\":{step}}}");
        fs::write(below.path().join("checkpoint.json"), text).expect("written");
        let put = store.put(
            layout.clone(),
            job_folder(),
            Incarnation(incarnation),
            below,
        );
        let uri = runtime.block_on(put.outcome()).expect("stored");
        // The store's times order the checkpoints.
        std::thread::sleep(std::time::Duration::from_millis(5));
        uri
    };
    let uris: Vec<_> = [(1, 1), (1, 2), (2, 3), (2, 4), (2, 5), (3, 6), (4, 7)]
        .map(|(incarnation, step)| put(incarnation, step))
        .into();
    assert_eq!(put(2, 5), uris[4], "the same again is the same");
    let name = |uri: &str| uri.rsplit('/').next().expect("a name").to_owned();
    // Earlier, and current, which may be under way.
    for torn in [&uris[1], &uris[5]] {
        objects.remove(&format!("{}/manifest.json", name(torn)));
    }
    let keep = Keep {
        present: Incarnation(3),
        newest: 2,
        named: BTreeSet::from([name(&uris[0])]),
    };
    let removed = runtime.block_on(store.retain(&layout, job_folder(), keep).outcome());
    let left: BTreeSet<_> = objects
        .paths()
        .iter()
        .filter_map(|path| path.split('/').nth(5).map(str::to_owned))
        .collect();
    let expected: BTreeSet<_> = [0, 3, 4, 5, 6].map(|index| name(&uris[index])).into();
    assert_eq!(left, expected);
    assert_eq!(removed.expect("removed"), 2);
}
