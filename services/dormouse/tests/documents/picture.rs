//! The picture on the front page is drawn by the commands below it.

use dormouse_messages::{Fold as _, Timestamp};
use dormouse_projections::timelines::Timeline;
use dormouse_projections::{ReadModel, queries};
use dormouse_replay::scenario;
use dormouse_replay::simulate::{Options, simulate};
use serde_json::json;

use super::{read, root};
use crate::render;

#[test]
fn the_picture_is_drawn_by_the_program() {
    let scenario = scenario::read(&read("docs/images/three-teams.json")).expect("a scenario");
    let (mut model, mut now) = (ReadModel::default(), Timestamp::default());
    let each = |recorded: &std::sync::Arc<dormouse_messages::Recorded>| {
        model.evolve(recorded);
        now = recorded.stored_at;
        Ok(())
    };
    simulate(&scenario, &Options::default(), each, |_| {}).expect("it runs to its end");
    let answer = queries::answer(&model, "timeline", json!({"metric": "containers"}), now);
    let timeline: Timeline =
        serde_json::from_value(answer.expect("an answer")).expect("a timeline");
    let drawn = render::timeline_svg(&timeline).expect("a drawing");
    let path = "docs/images/three-teams.svg";
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(root().join(path), &drawn).expect("the picture is written");
    }
    assert_eq!(
        read(path),
        drawn,
        "{path} is out of date: UPDATE_DOCS=1 draws it again"
    );
}
