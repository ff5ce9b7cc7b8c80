//! The crate's floors use only those below.

use std::path::Path;

/// From the lowest to the highest.
const FLOORS: [&str; 6] = ["model", "milp", "dual", "primal", "drive", "explain"];

/// Returns the floors above `floor` that shipped code of `source` names.
fn above<'a>(floor: &str, source: &'a str) -> Vec<&'a str> {
    let shipped = source.split("#[cfg(test)]\nmod tests").next().unwrap_or("");
    let own = FLOORS.iter().position(|it| *it == floor);
    let higher = &FLOORS[own.map_or(0, |own| own + 1)..];
    let named = shipped.split("crate::").skip(1);
    let named = named.map(|rest| rest.split([':', ';', ' ']).next().unwrap_or(""));
    named.filter(|name| higher.contains(name)).collect()
}

#[test]
fn no_floor_uses_a_higher_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = 0;
    for floor in FLOORS {
        for entry in std::fs::read_dir(root.join(floor)).expect("a floor") {
            let path = entry.expect("an entry").path();
            let source = std::fs::read_to_string(&path).expect("a file");
            assert_eq!(above(floor, &source), [""; 0], "{}", path.display());
            files += 1;
        }
    }
    assert!(files > 30, "{files}");
}

#[test]
fn a_higher_floor_is_noticed() {
    assert_eq!(
        above("dual", "use crate::drive::search::Search;"),
        ["drive"]
    );
    assert_eq!(above("drive", "use crate::dual::relaxation;"), [""; 0]);
}
