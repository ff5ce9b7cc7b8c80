//! Task sets: `deploy/executors/tasks.sh` runs in every container, and the tasks in it.

use std::collections::BTreeMap;

use dormouse_messages::job::Tasks;

use super::{Setting, wrapped};

/// Run in every container.
const SCRIPT: &str = include_str!("../../../../deploy/executors/tasks.sh");

/// The wrapped command line; the script adds `DORMOUSE_TASK` for each task.
pub fn launch(
    setting: &Setting<'_>,
    tasks: Tasks,
    argv: Vec<String>,
    env: &mut BTreeMap<String, String>,
) -> Vec<String> {
    env.insert("DORMOUSE_TASKS".to_owned(), tasks.count.to_string());
    let directory = setting.directory.display().to_string();
    let words = std::iter::once(directory).chain(argv);
    wrapped(SCRIPT, words.collect())
}
