//! The files that carry a task set's orders and results (`deploy/executors/tasks.sh`).
//!
//! - An order is one atomic line in a pipe. A restarted agent may repeat it, because the container remembers
//!   its last order.
//! - A result names its order, so that an earlier failure does not count for a later run.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};

pub use dormouse_agent_core::Orders;
use dormouse_messages::events::FailedTask;
use dormouse_messages::{Sequence, TaskRanges};
use dormouse_sandbox::folder::{Below, Folder};

use crate::layout::TASKS;

/// Limit on results per look, and so per event.
const RESULTS_LIMIT: usize = 4096;

const RESULTS_BYTES: u64 = 256 * 1024;

/// The tasks that have ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Results {
    pub completed: TaskRanges,
    pub failed: Vec<FailedTask>,
}

impl Results {
    /// Reports whether there are no results.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.completed.is_empty() && self.failed.is_empty()
    }

    /// Adds later results.
    pub fn add(&mut self, later: Self) {
        self.completed.extend(&later.completed);
        self.failed.extend(later.failed);
    }
}

/// A container's task files.
#[derive(Debug, Clone)]
pub struct TaskFiles {
    directory: Below,
    open: Orders,
    newest: Sequence,
    unwritten: Vec<Sequence>,
    offset: u64,
}

impl TaskFiles {
    /// Opens a container's task files at the start.
    #[must_use]
    pub const fn new(directory: Below) -> Self {
        Self {
            directory,
            open: Orders::new(),
            newest: Sequence(0),
            unwritten: Vec::new(),
            offset: 0,
        }
    }

    /// Accepts orders that are newer than the known ones.
    pub fn give(&mut self, orders: &Orders) {
        for (order, tasks) in orders {
            if *order > self.newest {
                self.newest = *order;
                self.open.insert(*order, tasks.clone());
                self.unwritten.push(*order);
            }
        }
    }

    /// Reports whether the container has tasks to run.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.open.is_empty()
    }

    /// Writes waiting orders while the pipe accepts them.
    pub fn write(&mut self) {
        let Ok(folder) = self.directory.open() else {
            return;
        };
        let mut written = 0;
        for order in &self.unwritten {
            let Some(tasks) = self.open.get(order) else {
                written += 1;
                continue;
            };
            let ranges = tasks.ranges();
            let ranges: Vec<_> = ranges
                .map(|(first, last)| format!("{first}-{last}"))
                .collect();
            let line = format!("{order} {}\n", ranges.join(" "));
            if !tell(&folder, &line) {
                break;
            }
            written += 1;
        }
        self.unwritten.drain(..written);
    }

    /// Asks the container to leave after its current task.
    ///
    /// # Errors
    /// Disk errors.
    pub fn drain(directory: &Below) -> std::io::Result<()> {
        let folder = directory.open()?;
        folder.write("drain", b"")?;
        // An invalid order that only wakes the container.
        tell(&folder, "0\n");
        Ok(())
    }

    /// Returns the results since the last look.
    pub fn results(&mut self) -> Results {
        let mut results = Results::default();
        let Ok(folder) = self.directory.open() else {
            return results;
        };
        let Ok(mut file) = folder.file("results") else {
            return results;
        };
        if file.seek(SeekFrom::Start(self.offset)).is_err() {
            return results;
        }
        let mut lines = BufReader::new(file.take(RESULTS_BYTES));
        let mut line = String::new();
        for _ in 0..RESULTS_LIMIT {
            line.clear();
            match lines.read_line(&mut line) {
                Ok(_) if line.ends_with('\n') => {}
                _ => break,
            }
            let Some((order, ended)) = parse(&line) else {
                tracing::warn!(directory = %self.directory.path().display(), bytes = line.len(), "not a result; passed over");
                self.offset += line.len() as u64;
                continue;
            };
            // An order still under way to this restarted agent.
            if order > self.newest {
                break;
            }
            self.offset += line.len() as u64;
            if self.close(order, ended.task) {
                remove_if_empty(&folder, ended.task);
                match ended.exit_code {
                    0 => results.completed.insert(ended.task),
                    _ => results.failed.push(ended),
                }
            }
        }
        results
    }

    fn close(&mut self, order: Sequence, task: u32) -> bool {
        let Some(tasks) = self.open.get_mut(&order) else {
            return false;
        };
        let was_open = tasks.remove(task);
        if tasks.is_empty() {
            self.open.remove(&order);
        }
        was_open
    }
}

fn remove_if_empty(folder: &Folder, task: u32) {
    let name = task.to_string();
    if let Ok(tasks) = folder.folder(TASKS)
        && let Ok(output) = tasks.file(&name)
        && output.metadata().is_ok_and(|file| file.len() == 0)
        && let Err(error) = tasks.remove(&name)
    {
        tracing::debug!(%error, task, "cannot remove its empty output");
    }
}

/// Fails before the container opens the pipe.
fn tell(folder: &Folder, line: &str) -> bool {
    let pipe = folder.pipe("orders");
    // Writes below PIPE_BUF are atomic.
    pipe.and_then(|mut pipe| pipe.write_all(line.as_bytes()))
        .is_ok()
}

fn parse(line: &str) -> Option<(Sequence, FailedTask)> {
    let mut words = line.split_ascii_whitespace();
    let order = words.next()?.parse().ok().map(Sequence)?;
    let task = words.next()?.parse().ok()?;
    let exit_code = words.next()?.parse().ok()?;
    Some((order, FailedTask { task, exit_code }))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;
    use crate::layout::task_output_in;

    fn orders(orders: &[(u64, &[u32])]) -> Orders {
        let orders = orders.iter();
        orders
            .map(|(order, tasks)| (Sequence(*order), tasks.iter().copied().collect()))
            .collect()
    }

    fn files(text: &str) -> (tempfile::TempDir, TaskFiles) {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("results"), text).expect("written");
        let files = TaskFiles::new(Below::new(folder.path().to_owned(), ""));
        (folder, files)
    }

    fn completed(results: &Results) -> String {
        results.completed.to_string()
    }

    #[test]
    fn a_result_counts_once_and_only_for_its_own_order() {
        let (folder, mut files) = files("7 3 1\n7 4 0\n");
        files.give(&orders(&[(9, &[3])]));
        assert!(files.results().is_empty());
        assert!(files.is_busy());
        fs::write(folder.path().join("results"), "7 3 1\n7 4 0\n9 3 0\n").expect("written");
        assert_eq!(completed(&files.results()), "3");
        assert!(files.results().is_empty() && !files.is_busy());
    }

    #[test]
    fn a_result_of_an_order_that_is_still_on_its_way_waits() {
        let (_folder, mut files) = files("7 3 0\n8 4 2\n");
        assert!(files.results().is_empty());
        files.give(&orders(&[(7, &[3])]));
        assert_eq!(completed(&files.results()), "3");
        files.give(&orders(&[(7, &[3]), (8, &[4])]));
        let failed = files.results().failed;
        assert_eq!(
            failed,
            [FailedTask {
                task: 4,
                exit_code: 2
            }]
        );
    }

    #[test]
    fn half_a_line_waits_and_a_wrong_one_is_passed_over() {
        let (folder, mut files) = files("nonsense\n7 3 0\n7 4");
        files.give(&orders(&[(7, &[3, 4])]));
        assert_eq!(completed(&files.results()), "3");
        fs::write(folder.path().join("results"), "nonsense\n7 3 0\n7 4 0\n").expect("written");
        assert_eq!(completed(&files.results()), "4");
    }

    #[test]
    fn empty_output_is_not_kept() {
        let (folder, mut files) = files("7 3 0\n7 4 0\n");
        fs::create_dir(folder.path().join("tasks")).expect("a folder");
        fs::write(folder.path().join("tasks/3"), "").expect("written");
        fs::write(folder.path().join("tasks/4"), "said").expect("written");
        files.give(&orders(&[(7, &[3, 4])]));
        files.results();
        assert!(!task_output_in(folder.path(), 3).exists());
        assert!(task_output_in(folder.path(), 4).exists());
    }

    #[test]
    fn orders_wait_until_somebody_listens() {
        let (folder, mut files) = files("");
        files.give(&orders(&[(7, &[0, 1, 2, 9])]));
        files.write();
        assert_eq!(files.unwritten, [Sequence(7)]);
        let pipe = folder.path().join("orders");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        let listening = File::options().read(true).write(true).open(&pipe);
        let listening = listening.expect("open at both ends");
        files.write();
        assert!(files.unwritten.is_empty());
        let mut line = String::new();
        BufReader::new(listening)
            .read_line(&mut line)
            .expect("a line");
        assert_eq!(line, "7 0-2 9-9\n");
    }
}
