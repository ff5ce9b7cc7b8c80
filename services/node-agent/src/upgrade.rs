//! What an agent of before has noted: files in each container's own directory, which jobs could
//! write. They are believed once, when the node has no secret yet, so that what runs is adopted.

use dormouse_messages::{ContainerId, Sequence};

use crate::folder::Folder;
use crate::layout::Layout;
use crate::marks::{Mark, Supervised};
use crate::process::{is_supervisor, parse_stat};

/// Each of those files is a line or two.
const NOTE_BYTES: u64 = 4096;

/// The marks that stand for those files. Blocking.
pub(crate) fn marks_of_before(layout: &Layout) -> Vec<Mark> {
    let containers = layout.existing_containers().unwrap_or_default();
    containers
        .into_iter()
        .filter_map(|container| mark_of_before(layout, container))
        .collect()
}

fn mark_of_before(layout: &Layout, container: ContainerId) -> Option<Mark> {
    let folder = layout.container_below(&container).open().ok()?;
    let has = |name: &str| folder.file(name).is_ok();
    if has("told") {
        return None;
    }
    let request = text(&folder, "request")?;
    let (request, group) = request.split_once('\n').unwrap_or((&request, ""));
    let mut mark = Mark::new(container, Sequence(request.parse().ok()?));
    mark.supervised = text(&folder, "process").and_then(|it| supervised(&it, group));
    mark.is_stopped = has("stop");
    mark.is_leaving = has("leaving");
    mark.asked = text(&folder, "asked").and_then(|asked| asked.parse().ok().map(Sequence));
    Some(mark)
}

/// The file could have been copied from elsewhere: a process that lives must be a supervisor.
fn supervised(process: &str, group: &str) -> Option<Supervised> {
    let (boot, stat) = process.trim_end().split_once(' ')?;
    let identity = parse_stat(stat)?.identity;
    if identity.is_alive() && !is_supervisor(identity) {
        return None;
    }
    Some(Supervised {
        boot: boot.to_owned(),
        pid: identity.pid,
        started_ticks: identity.started_ticks,
        group: group.to_owned(),
        is_of_before: true,
    })
}

fn text(folder: &Folder, name: &str) -> Option<String> {
    folder.read_text(name, NOTE_BYTES).ok()
}
