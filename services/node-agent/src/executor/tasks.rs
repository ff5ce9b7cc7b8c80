//! Task sets: every container runs `deploy/executors/tasks.sh`, which runs the tasks.

use std::collections::BTreeMap;

use dormouse_messages::job::Tasks;

use super::{Setting, wrapped};

const SCRIPT: &str = include_str!("../../../../deploy/executors/tasks.sh");

/// Wraps the command line. The script sets `DORMOUSE_TASK` for each task.
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
