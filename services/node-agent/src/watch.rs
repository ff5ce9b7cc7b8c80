//! Reads a container's files: rank 0's checkpoints and progress, and a task set's results. Blocking. Files
//! are untrusted and read through [`dormouse_sandbox::folder`]. A checkpoint is complete once `checkpoint.json` exists.
//! Another inode, time or size is another checkpoint. Invalid progress lines are skipped.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use dormouse_sandbox::folder::{Below, read_all};

use crate::checkpoint_snapshot::{DOCUMENT, DOCUMENT_BYTES, seal};
use crate::layout::PROGRESS;
use crate::members::{Answer, Answers};
use crate::tasks::{Orders, Results, TaskFiles};

const CHUNK_BYTES: u64 = 1 << 20;

/// Limit on metrics per line, because each becomes a number in an event.
const METRICS_LIMIT: usize = 32;

const FILES_LIMIT: usize = 10_000;

/// The largest integer that JSON readers agree on. Others compute with steps.
const MOST_STEPS: u64 = 1 << 53;

const MOST_BYTES: u64 = 1 << 60;

/// A complete checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    pub complete: Complete,
    pub folder: PathBuf,
    pub below: Below,
    pub stored: Option<String>,
}

/// A job's description of a complete checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Complete {
    pub step: u64,
    pub bytes: u64,
}

/// A report of progress.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Line {
    pub step: u64,
    /// Total steps, or 0 if unknown.
    pub steps_total: u64,
    pub metrics: BTreeMap<String, f64>,
}

/// The news since the last look.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    pub checkpoint: Option<Saved>,
    pub progress: Option<Line>,
    pub problem: Option<String>,
    pub tasks: Results,
    pub is_busy: bool,
    pub answer: Option<Answer>,
}

/// The watched files of a container.
#[derive(Debug, Clone)]
pub enum Watched {
    Coordinator(Watch),
    Tasks(TaskFiles),
    Member(Option<Watch>, Answers),
}

impl Watched {
    /// Reports whether the gang's checkpoints and progress are watched.
    #[must_use]
    pub const fn is_coordinator(&self) -> bool {
        matches!(self, Self::Coordinator(_) | Self::Member(Some(_), _))
    }

    /// Skips files from before the start.
    pub fn pass_over(&mut self) {
        if let Self::Coordinator(watch) | Self::Member(Some(watch), _) = self {
            watch.pass_over();
        }
    }

    /// Passes new orders on, and returns the news.
    pub fn look(&mut self, orders: &Orders) -> Look {
        match self {
            Self::Coordinator(watch) => watch.look(),
            Self::Member(watch, answers) => Look {
                answer: answers.look(),
                ..watch.as_mut().map_or_else(Look::default, Watch::look)
            },
            Self::Tasks(files) => {
                files.give(orders);
                files.write();
                Look {
                    tasks: files.results(),
                    is_busy: files.is_busy(),
                    ..Look::default()
                }
            }
        }
    }
}

/// Watches the files of a gang's rank 0.
#[derive(Debug, Clone)]
pub struct Watch {
    checkpoint: Below,
    directory: Below,
    seen: Option<Identity>,
    /// The checkpoint and step that the log has, after a restart of the agent.
    known_checkpoint: Option<Complete>,
    known_step: Option<u64>,
    offset: u64,
    last_step: u64,
    bad_lines: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    inode: u64,
    modified_ns: i128,
    bytes: u64,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    step: Option<u64>,
    #[serde(default)]
    bytes: Option<u64>,
}

impl Watch {
    /// Watches a checkpoint directory, and the progress file of a container.
    #[must_use]
    pub const fn new(checkpoint: Below, directory: Below) -> Self {
        Self {
            checkpoint,
            directory,
            seen: None,
            known_checkpoint: None,
            known_step: None,
            offset: 0,
            last_step: 0,
            bad_lines: 0,
        }
    }

    /// Skips the checkpoint and step that the log already has.
    #[must_use]
    pub const fn knowing(mut self, checkpoint: Option<Complete>, step: Option<u64>) -> Self {
        self.known_checkpoint = checkpoint;
        self.known_step = step;
        self
    }

    /// Skips the present checkpoint, which is from before the start.
    pub fn pass_over(&mut self) {
        let _ = self.read_checkpoint();
    }

    /// Returns the news since the last look.
    pub fn look(&mut self) -> Look {
        let mut look = Look {
            progress: self.look_for_progress(),
            ..Look::default()
        };
        look.checkpoint = self.look_for_checkpoint(&mut look.problem);
        look
    }

    fn look_for_checkpoint(&mut self, problem: &mut Option<String>) -> Option<Saved> {
        match self.read_checkpoint() {
            Ok(complete) => complete.map(|complete| self.kept(complete)),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                let path = self.checkpoint.path().join(DOCUMENT);
                *problem = Some(format!("{}: {error}", path.display()));
                None
            }
        }
    }

    fn kept(&self, complete: Complete) -> Saved {
        let sealed = seal(&self.checkpoint).unwrap_or_else(|error| {
            let path = self.checkpoint.path();
            tracing::warn!(%error, "{} is used as it is: a later save may destroy it", path.display());
            self.checkpoint.clone()
        });
        let folder = sealed.path();
        Saved {
            complete,
            folder: std::path::absolute(&folder).unwrap_or(folder),
            below: sealed,
            stored: None,
        }
    }

    fn read_checkpoint(&mut self) -> io::Result<Option<Complete>> {
        let folder = self.checkpoint.open()?;
        let text = folder.file(DOCUMENT)?;
        let file = text.metadata()?;
        let identity = Identity {
            inode: file.ino(),
            modified_ns: i128::from(file.mtime()) * 1_000_000_000 + i128::from(file.mtime_nsec()),
            bytes: file.len(),
        };
        if self.seen == Some(identity) {
            return Ok(None);
        }
        let text = read_all(text, DOCUMENT_BYTES)?;
        let document: Document = serde_json::from_slice(&text)?;
        self.seen = Some(identity);
        let complete = Complete {
            step: document.step.unwrap_or(self.last_step).min(MOST_STEPS),
            bytes: document
                .bytes
                .unwrap_or_else(|| size(&self.checkpoint))
                .min(MOST_BYTES),
        };
        Ok((self.known_checkpoint.take() != Some(complete)).then_some(complete))
    }

    fn look_for_progress(&mut self) -> Option<Line> {
        let mut file = self.directory.open().ok()?.file(PROGRESS).ok()?;
        let length = file.metadata().ok()?.len();
        if length < self.offset {
            self.offset = 0;
        }
        if length == self.offset {
            return None;
        }
        file.seek(SeekFrom::Start(self.offset)).ok()?;
        let mut chunk = Vec::new();
        file.take(CHUNK_BYTES).read_to_end(&mut chunk).ok()?;
        let end = match chunk.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            // A chunk without a newline holds no valid line: skip it.
            None if chunk.len() as u64 == CHUNK_BYTES => chunk.len(),
            None => return None,
        };
        self.offset += end as u64;
        let mut last = None;
        let bad_before = self.bad_lines;
        for line in chunk[..end].split(|byte| *byte == b'\n') {
            match parse_line(line) {
                Ok(line) => last = Some(line),
                Err(()) if line.iter().all(u8::is_ascii_whitespace) => {}
                Err(()) => self.bad_lines += 1,
            }
        }
        if bad_before == 0 && self.bad_lines > 0 {
            tracing::warn!(directory = %self.directory.path().display(), lines = self.bad_lines, "progress holds lines that are not {{\"step\":N,…}}; they are passed over");
        }
        if let Some(line) = &last {
            self.last_step = line.step;
        }
        let known = self.known_step.take();
        last.filter(|line| Some(line.step) != known)
    }

    /// Returns the number of invalid progress lines.
    #[must_use]
    pub const fn bad_lines(&self) -> u64 {
        self.bad_lines
    }
}

fn parse_line(line: &[u8]) -> Result<Line, ()> {
    let value: Value = serde_json::from_slice(line).map_err(|_| ())?;
    let fields = value.as_object().ok_or(())?;
    let whole = |name: &str| {
        let value = fields.get(name)?;
        value.as_u64().or_else(|| {
            let number = value
                .as_f64()
                .filter(|it| it.fract() == 0.0 && *it >= 0.0)?;
            format!("{number:.0}").parse().ok()
        })
    };
    let mut metrics = BTreeMap::new();
    for (name, value) in fields {
        let number = value.as_f64().filter(|number| number.is_finite());
        if let Some(number) = number
            && name != "step"
            && name != "steps_total"
            && metrics.len() < METRICS_LIMIT
            && name.len() <= 64
        {
            metrics.insert(name.clone(), number);
        }
    }
    Ok(Line {
        step: whole("step").ok_or(())?.min(MOST_STEPS),
        steps_total: whole("steps_total").unwrap_or(0).min(MOST_STEPS),
        metrics,
    })
}

/// One folder is open at a time, because a job may nest many.
fn size(root: &Below) -> u64 {
    let mut folders = vec![PathBuf::new()];
    let (mut bytes, mut files) = (0_u64, 0);
    while let Some(way) = folders.pop() {
        let Ok(folder) = root.join(&way).open() else {
            continue;
        };
        for (name, entry) in folder.entries().unwrap_or_default() {
            files += 1;
            if files > FILES_LIMIT {
                return bytes;
            }
            if entry.is_folder {
                folders.push(way.join(name));
            } else {
                bytes = bytes.saturating_add(entry.bytes).min(MOST_BYTES);
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn watch() -> (tempfile::TempDir, Watch) {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |way: &str| Below::new(folder.path().to_owned(), way);
        at("checkpoint").make().expect("made");
        let watch = Watch::new(at("checkpoint"), at(""));
        (folder, watch)
    }

    fn save(folder: &Path, text: &str) {
        let temporary = folder.join("checkpoint/new");
        fs::write(&temporary, text).expect("written");
        fs::rename(temporary, folder.join("checkpoint/checkpoint.json")).expect("renamed");
    }

    #[test]
    fn each_checkpoint_is_seen_once() {
        let (folder, mut watch) = watch();
        assert_eq!(watch.look(), Look::default());
        fs::write(folder.path().join("checkpoint/model"), [0; 100]).expect("written");
        save(folder.path(), "{\"step\":7}");
        let complete = watch.look().checkpoint.expect("new");
        assert!(complete.folder.ends_with("checkpoint"), "no incarnation's");
        let complete = complete.complete;
        assert_eq!((complete.step, complete.bytes), (7, 110));
        assert_eq!(watch.look().checkpoint, None);
        save(folder.path(), "{\"step\":8,\"bytes\":5}");
        assert_eq!(
            watch.look().checkpoint.map(|it| it.complete),
            Some(Complete { step: 8, bytes: 5 })
        );
    }

    #[test]
    fn what_the_log_has_is_passed_over_and_what_it_lacks_is_not() {
        let (folder, mut watch) = watch();
        save(folder.path(), "{\"step\":7,\"bytes\":1}");
        let known = |step| {
            watch
                .clone()
                .knowing(Some(Complete { step, bytes: 1 }), None)
        };
        assert_eq!(known(7).look().checkpoint, None);
        assert!(known(6).look().checkpoint.is_some());
        watch.pass_over();
        assert_eq!(watch.look().checkpoint, None);
    }

    #[test]
    fn a_broken_document_is_a_problem_not_a_checkpoint() {
        let (folder, mut watch) = watch();
        save(folder.path(), "{\"step\":");
        let look = watch.look();
        assert_eq!(look.checkpoint, None);
        assert!(look.problem.is_some());
        save(folder.path(), "{\"step\":1,\"bytes\":1}");
        assert!(watch.look().checkpoint.is_some());
    }

    #[test]
    fn what_is_no_regular_file_is_a_problem_and_never_waited_for() {
        let (folder, mut watch) = watch();
        let document = folder.path().join("checkpoint/checkpoint.json");
        let make_pipe = || nix::unistd::mkfifo(&document, nix::sys::stat::Mode::S_IRWXU);
        make_pipe().expect("a pipe");
        assert!(watch.look().problem.expect("told").contains("regular"));
        fs::remove_file(&document).expect("removed");
        symlink("/etc/hostname", &document).expect("linked");
        assert!(watch.look().problem.expect("told").contains("link"));
        fs::remove_file(&document).expect("removed");
        fs::write(&document, vec![b' '; 1 << 20]).expect("written");
        assert!(watch.look().problem.expect("told").contains("longer"));
        let other = folder.path().join("other");
        fs::write(&other, "{\"step\":1}\n").expect("written");
        symlink(&other, folder.path().join("progress.jsonl")).expect("linked");
        assert_eq!(watch.look().progress, None);
    }

    #[test]
    fn numbers_that_a_job_writes_are_bounded() {
        let (folder, mut watch) = watch();
        let most = u64::MAX;
        save(
            folder.path(),
            &format!("{{\"step\":{most},\"bytes\":{most}}}"),
        );
        let complete = watch.look().checkpoint.expect("complete").complete;
        assert_eq!((complete.step, complete.bytes), (MOST_STEPS, MOST_BYTES));
        let line = parse_line(format!("{{\"step\":{most},\"steps_total\":1e19}}").as_bytes());
        let line = line.expect("a line");
        assert_eq!((line.step, line.steps_total), (MOST_STEPS, MOST_STEPS));
        let checkpoint = folder.path().join("checkpoint");
        for number in 0..1500 {
            let inner = checkpoint.join(number.to_string());
            fs::create_dir(&inner).expect("made");
            if number < 8 {
                let file = fs::File::create(inner.join("sparse")).expect("made");
                let _ = file.set_len(1 << 43);
            }
        }
        let open = || fs::read_dir("/proc/self/fd").expect("listed").count();
        let before = open();
        let bytes = size(&watch.checkpoint);
        assert!(bytes <= MOST_BYTES, "{bytes}");
        assert!(open() < before + 100);
    }

    #[test]
    fn progress_skips_bad_lines_and_waits_for_whole_ones() {
        let (folder, mut watch) = watch();
        let file = folder.path().join("progress.jsonl");
        fs::write(&file, "{\"step\":1}\nnonsense\n{\"step\":2,\"loss\":0.5,\"l\":NaN}\n\n{\"step\":3,\"steps_total\":9,\"loss\":0.25,\"name\":\"x\"}\n{\"step\":").expect("written");
        let line = watch.look().progress.expect("a line");
        assert_eq!((line.step, line.steps_total), (3, 9));
        assert_eq!(line.metrics, BTreeMap::from([("loss".to_owned(), 0.25)]));
        assert_eq!(watch.bad_lines(), 2);
        assert_eq!(watch.look().progress, None);
        fs::write(&file, "{\"step\":1}\n").expect("truncated");
        assert_eq!(watch.look().progress.map(|line| line.step), Some(1));
    }
}
