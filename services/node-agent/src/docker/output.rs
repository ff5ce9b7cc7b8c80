//! Copies a container's output to the files of a plain process's output.
//!
//! - The engine's copy ([`log_config`]) loses its oldest lines. A new agent continues from the recorded time
//!   of the last piece ([`Copied`]) and the length of the files.
//! - After a rotation the engine may repeat lines (20.10 does): a piece older than the last one, unless the
//!   clock went back.
//! - A followed engine may stop early (`waitRead` in 20.10's `daemon/logger/loggerutils/follow.go`), so it is
//!   followed again, and read in full after the end.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::models::HostConfigLogConfig;
use bollard::query_parameters::LogsOptions;
use futures::StreamExt;
use tokio::sync::oneshot;

use dormouse_messages::{ContainerId, Sequence};
use dormouse_runtime::{Clock, SystemClock};
use dormouse_sandbox::folder::{Below, Folder};

use super::{RETRY, status_code};
use crate::container_record::{ContainerRecords, Copied, CopiedStream};
use crate::layout::{STDERR, STDOUT};
use crate::rotate::{LogBounds, Piece, forget, pieces};

const NOTE_EVERY: Duration = Duration::from_secs(1);

const LAST_TRIES: u32 = 10;

/// With a single file each rotation would lose unread output.
const ENGINES_FILES: u32 = 2;

/// Returns the engine's log settings: files, to be read again, as long as the agent's own.
pub fn log_config(bounds: LogBounds) -> HostConfigLogConfig {
    let options = [
        ("max-size", bounds.bytes.max(1).to_string()),
        ("max-file", ENGINES_FILES.to_string()),
    ];
    let options = options.map(|(name, value)| (name.to_owned(), value));
    HostConfigLogConfig {
        typ: Some("json-file".to_owned()),
        config: Some(HashMap::from(options)),
    }
}

/// The output to copy.
pub struct Copying {
    pub directory: Below,
    pub marks: ContainerRecords,
    pub container: ContainerId,
    pub request: Sequence,
}

struct Copy {
    stdout: Stream,
    stderr: Stream,
    is_noted: bool,
}

/// A stream. The engine orders each by itself, not the two together.
struct Stream {
    file: File,
    copied: CopiedStream,
    known: Known,
    last: Vec<u8>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    /// The recorded position. `None`: all output is new.
    noted: Option<CopiedStream>,
    again: u64,
    bytes: u64,
}

impl Known {
    fn look(&mut self, at: &str, copied: &CopiedStream, now: impl FnOnce() -> String) {
        if self.noted.is_none() && at < copied.at.as_str() && now().as_str() >= copied.at.as_str() {
            self.noted = Some(copied.clone());
            self.again = 0;
        }
    }

    /// True if a piece follows the recorded one. Later pieces are new regardless of time.
    fn is_passed(&mut self, at: &str) -> bool {
        let Some(noted) = &self.noted else {
            return true;
        };
        match at.cmp(noted.at.as_str()) {
            std::cmp::Ordering::Less => {
                self.again = 0;
                return false;
            }
            std::cmp::Ordering::Equal => {
                self.again += 1;
                if self.again >= noted.pieces {
                    self.noted = None;
                }
                return false;
            }
            std::cmp::Ordering::Greater => {}
        }
        self.noted = None;
        true
    }
}

fn unknown<'a>(text: &'a [u8], known_bytes: &mut u64) -> &'a [u8] {
    let skipped = usize::try_from(*known_bytes).map_or(text.len(), |it| it.min(text.len()));
    *known_bytes -= skipped as u64;
    &text[skipped..]
}

/// True if a line repeats the previous one. Equal pieces of a long line have no newline.
fn is_again(last: &mut Vec<u8>, message: &[u8]) -> bool {
    if message.ends_with(b"\n") && last == message {
        return true;
    }
    last.clear();
    last.extend_from_slice(message);
    false
}

fn timed(message: &[u8]) -> (String, &[u8]) {
    let space = message.iter().position(|byte| *byte == b' ');
    match space {
        Some(space) => {
            let at = String::from_utf8_lossy(&message[..space]).into_owned();
            (at, &message[space + 1..])
        }
        None => (String::new(), message),
    }
}

impl Stream {
    fn create(folder: &Folder, name: &str) -> io::Result<Self> {
        forget(folder, name)?;
        Ok(Self {
            file: folder.create(name)?,
            copied: CopiedStream::default(),
            known: Known::default(),
            last: Vec::new(),
        })
    }

    fn append(folder: &Folder, name: &str, noted: CopiedStream) -> io::Result<Self> {
        let end = pieces(folder, name).last().map_or(0, Piece::end);
        Ok(Self {
            file: folder.append(name)?,
            known: Known {
                bytes: end.saturating_sub(noted.bytes),
                again: 0,
                noted: (noted.pieces > 0).then(|| noted.clone()),
            },
            copied: noted,
            last: Vec::new(),
        })
    }

    fn begin_again(&mut self) {
        self.last.clear();
        self.known.noted = (self.copied.pieces > 0).then(|| self.copied.clone());
        self.known.again = 0;
    }

    fn take(&mut self, message: &[u8]) -> io::Result<bool> {
        if is_again(&mut self.last, message) {
            return Ok(false);
        }
        let (at, text) = timed(message);
        let now = || SystemClock.now().to_string();
        self.known.look(&at, &self.copied, now);
        if !self.known.is_passed(&at) {
            return Ok(false);
        }
        self.file.write_all(unknown(text, &mut self.known.bytes))?;
        self.copied.bytes += text.len() as u64;
        if self.copied.at == at {
            self.copied.pieces += 1
        } else {
            (self.copied.at, self.copied.pieces) = (at, 1);
        }
        Ok(true)
    }
}

impl Copy {
    fn open(of: &Copying, noted: Option<Copied>) -> io::Result<Self> {
        let folder = of.directory.open()?;
        let (stdout, stderr) = match noted {
            Some(noted) => (
                Stream::append(&folder, STDOUT, noted.stdout)?,
                Stream::append(&folder, STDERR, noted.stderr)?,
            ),
            None => (
                Stream::create(&folder, STDOUT)?,
                Stream::create(&folder, STDERR)?,
            ),
        };
        Ok(Self {
            stdout,
            stderr,
            is_noted: true,
        })
    }

    fn begin_again(&mut self) {
        self.stdout.begin_again();
        self.stderr.begin_again();
    }

    fn take(&mut self, output: &LogOutput) -> io::Result<()> {
        let is_new = match output {
            LogOutput::StdErr { message } => self.stderr.take(message)?,
            LogOutput::StdOut { message } | LogOutput::Console { message } => {
                self.stdout.take(message)?
            }
            LogOutput::StdIn { .. } => false,
        };
        self.is_noted &= !is_new;
        Ok(())
    }

    fn copied(&self) -> Copied {
        Copied {
            stdout: self.stdout.copied.clone(),
            stderr: self.stderr.copied.clone(),
        }
    }
}

/// Copies a container's output, for an adopted one (`is_found`) after the record. After `ended` reads the
/// rest.
pub async fn copy(
    docker: Docker,
    name: String,
    of: Copying,
    is_found: bool,
    mut ended: oneshot::Receiver<()>,
) {
    let noted = is_found.then(|| of.marks.copied(&of.container, of.request));
    let mut copy = match Copy::open(&of, noted.flatten()) {
        Ok(copy) => copy,
        Err(error) => {
            let path = of.directory.path();
            tracing::warn!(name, %error, "its output cannot be copied to {}", path.display());
            return;
        }
    };
    let mut tries = 0;
    let mut is_over = false;
    while tries < LAST_TRIES {
        match read(&docker, &name, &of, &mut copy, !is_over).await {
            Told::All if is_over => return,
            Told::All => {}
            Told::Nothing(error) => tracing::warn!(name, %error, "the engine told no more of it"),
            Told::TooMuch(error) => {
                tracing::warn!(name, %error, "its output is no longer copied");
                return;
            }
        }
        if is_over {
            tries += 1;
            tokio::time::sleep(RETRY).await;
        } else {
            is_over = tokio::time::timeout(RETRY, &mut ended).await.is_ok();
        }
        copy.begin_again();
    }
}

enum Told {
    All,
    Nothing(bollard::errors::Error),
    TooMuch(io::Error),
}

async fn read(docker: &Docker, name: &str, of: &Copying, copy: &mut Copy, follow: bool) -> Told {
    let options = LogsOptions {
        follow,
        stdout: true,
        stderr: true,
        timestamps: true,
        ..LogsOptions::default()
    };
    let mut output = docker.logs(name, Some(options));
    let mut noted_at: Option<Instant> = None;
    loop {
        let is_due = noted_at.is_none_or(|at| at.elapsed() >= NOTE_EVERY);
        let next = if copy.is_noted || is_due {
            Ok(output.next().await)
        } else {
            tokio::time::timeout(NOTE_EVERY, output.next()).await
        };
        let end = match next {
            Ok(Some(Ok(output))) => copy.take(&output).err().map(Told::TooMuch),
            Ok(Some(Err(error))) if status_code(&error) == Some(404) => Some(Told::All),
            Ok(Some(Err(error))) => Some(Told::Nothing(error)),
            Ok(None) => Some(Told::All),
            Err(_) => None,
        };
        if !copy.is_noted && (end.is_some() || noted_at.is_none_or(|at| at.elapsed() >= NOTE_EVERY))
        {
            noted_at = Some(Instant::now());
            copy.is_noted = true;
            of.marks
                .note_copied(&of.container, of.request, &copy.copied());
        }
        if let Some(end) = end {
            return end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    fn noted(at: &str, pieces: u64) -> Known {
        let copied = CopiedStream {
            at: at.to_owned(),
            pieces,
            ..CopiedStream::default()
        };
        Known {
            noted: Some(copied),
            ..Known::default()
        }
    }

    #[test]
    fn a_successor_goes_on_after_the_very_piece_that_is_noted() {
        let again = ["1", "2", "2", "2", "3", "2"];
        let mut known = noted("2", 2);
        let passed = again.map(|at| known.is_passed(at));
        assert_eq!(passed, [false, false, false, true, true, true]);
        let mut known = noted("2", 2);
        assert_eq!(["3", "1"].map(|at| known.is_passed(at)), [true, true]);
        assert!(Known::default().is_passed("1"));
    }

    #[test]
    fn what_the_engine_tells_again_is_passed_over_unless_the_clock_has_gone_back() {
        let copied = CopiedStream {
            at: "7".to_owned(),
            pieces: 1,
            ..CopiedStream::default()
        };
        let mut known = Known::default();
        let now_passed = |known: &mut Known, at: &str, now: &str| {
            known.look(at, &copied, || now.to_owned());
            known.is_passed(at)
        };
        let again = ["5", "6", "7", "8"].map(|at| now_passed(&mut known, at, "8"));
        assert_eq!(again, [false, false, false, true]);
        assert!(now_passed(&mut Known::default(), "3", "3"));
    }

    #[test]
    fn a_line_that_the_engine_tells_again_is_copied_once() {
        let mut last = Vec::new();
        let told = [
            &b"1 a\n"[..],
            b"1 a\n",
            b"2 a\n",
            b"3 long",
            b"3 long",
            b"3 \n",
        ];
        let again = told.map(|message| is_again(&mut last, message));
        assert_eq!(again, [false, true, false, false, false, false]);
    }

    #[test]
    fn what_was_copied_after_the_note_is_known_by_its_length() {
        let mut known_bytes = 5;
        let texts = [&b"abc"[..], b"def", b"ghi"];
        let rest = texts.map(|text| unknown(text, &mut known_bytes));
        assert_eq!(rest, [&b""[..], b"f", b"ghi"]);
        assert_eq!(timed(b"2026-01-01T00:00:00.000000001Z a b\n").1, b"a b\n");
    }

    #[test]
    fn streams_that_the_engine_tells_out_of_order_are_both_copied() {
        let folder = tempfile::tempdir().expect("a folder");
        let node = "n0".parse().expect("valid");
        let layout = Layout::new(folder.path(), &folder.path().join("checkpoints"), &node);
        std::fs::create_dir(folder.path().join("c")).expect("made");
        let of = Copying {
            directory: Below::new(folder.path().to_owned(), "c"),
            marks: ContainerRecords::open(&layout).expect("opened"),
            container: "ads/lr/1/0".parse().expect("valid"),
            request: Sequence(1),
        };
        let output = |message: &str| message.to_owned().into();
        let told = [
            LogOutput::StdErr {
                message: output("2026-01-01T00:00:02Z denied\n"),
            },
            LogOutput::StdOut {
                message: output("2026-01-01T00:00:01Z tried\n"),
            },
            LogOutput::StdOut {
                message: output("2026-01-01T00:00:03Z end\n"),
            },
        ];
        let mut copy = Copy::open(&of, None).expect("opened");
        for _ in 0..2 {
            for output in &told {
                copy.take(output).expect("written");
            }
            copy.begin_again();
        }
        let noted = copy.copied();
        let mut copy = Copy::open(&of, Some(noted)).expect("opened");
        for output in &told {
            copy.take(output).expect("written");
        }
        let text = |name| std::fs::read_to_string(folder.path().join("c").join(name));
        assert_eq!(text(STDOUT).expect("copied"), "tried\nend\n");
        assert_eq!(text(STDERR).expect("copied"), "denied\n");
    }
}
