//! The files between the agent and members of a job resized in place: the member list ([`tell`]) and the
//! answers ([`Answers`]).
//!
//! ```text
//! <data>/nodes/<node>/members/<tenant>/<name>/<incarnation>/members.json   DORMOUSE_MEMBERS
//! <container's directory>/ack.json                                         DORMOUSE_ACK
//! ```
//!
//! The agent replaces the list by a rename, and reads it only to detect changes. Answers are the job's, hence
//! untrusted.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

use dormouse_messages::events::{Acknowledged, ResizeCause};
use dormouse_messages::roles::WORKER;
use dormouse_messages::{AuxiliaryRoles, Incarnation, JobId, NodeId, Rank, Timestamp};
use dormouse_sandbox::folder::{Below, read_all};

use crate::config::AgentConfig;
use crate::layout::{Layout, MEMBERS};
use crate::state::{AgentState, Announced, Partition};

/// File with a member's answer, in its container's directory.
pub const ACK: &str = "ack.json";

const ACK_BYTES: u64 = 4 * 1024;

/// Limit for ten thousand members of a hundred bytes.
const MEMBERS_BYTES: u64 = 1024 * 1024;

/// The member list in the form that a job reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Document {
    /// The change, or 0 at an incarnation's start.
    pub generation: u32,
    pub members: Vec<Listed>,
    pub leaving: Vec<Rank>,
    pub deadline: Option<Timestamp>,
    pub cause: Cause,
}

/// A member with its address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// Never reused in an incarnation.
    pub id: Rank,
    pub rank: u32,
    pub address: String,
    pub port: u16,
    /// Number of processes: its GPUs, or one.
    pub slots: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// The cause of a change of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    Started,
    #[serde(untagged)]
    Resized(ResizeCause),
}

/// Returns an incarnation's member list.
///
/// # Errors
/// The member whose node has never joined.
pub fn document(
    config: &AgentConfig,
    state: &AgentState,
    (partition, auxiliary): (&Partition, &AuxiliaryRoles),
    announced: &Announced,
) -> Result<Document, String> {
    let mut members = Vec::new();
    let role = |id: Rank| match auxiliary.at(id) {
        Some(part) => Some(part.role.clone()),
        None if auxiliary.is_empty() => None,
        None => Some(WORKER.to_owned()),
    };
    for id in &announced.members {
        let Some(place) = partition.gang.get(id) else {
            continue;
        };
        members.push(Listed {
            id: *id,
            rank: u32::try_from(members.len()).unwrap_or(u32::MAX),
            address: address(config, state, &place.node)?,
            port: place.port,
            slots: place.gpus.len().max(1),
            role: role(*id),
        });
    }
    Ok(Document {
        generation: announced.generation,
        members,
        leaving: announced.leaving.iter().copied().collect(),
        deadline: announced.deadline,
        cause: announced.cause.map_or(Cause::Started, Cause::Resized),
    })
}

/// Returns a node's address.
///
/// # Errors
/// If the node has never joined.
pub fn address(config: &AgentConfig, state: &AgentState, node: &NodeId) -> Result<String, String> {
    let known = match node {
        own if *own == config.node => Some(&config.address),
        other => state.addresses.get(other),
    };
    match known.map(String::as_str) {
        None => Err(format!("node {node} of its gang has never joined")),
        Some("") => Ok("127.0.0.1".to_owned()),
        Some(address) => Ok(address.to_owned()),
    }
}

/// Writes the member list and reports whether it changed. Blocking.
///
/// # Errors
/// Disk errors.
pub fn tell(
    layout: &Layout,
    job: &JobId,
    incarnation: Incarnation,
    document: &Document,
) -> io::Result<bool> {
    let text = serde_json::to_vec(document)?;
    let folder = layout.members(job, incarnation).make()?;
    if folder
        .read(MEMBERS, MEMBERS_BYTES)
        .is_ok_and(|it| it == text)
    {
        return Ok(false);
    }
    folder.write_read_only(MEMBERS, &text)?;
    Ok(true)
}

/// Removes the list of an ended incarnation. Blocking.
pub fn withdraw(layout: &Layout, job: &JobId, incarnation: Incarnation) {
    let below = layout.members(job, incarnation);
    if let Err(error) = std::fs::remove_dir_all(below.path())
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(%error, "cannot remove {}", below.path().display());
    }
    for parent in below.path().ancestors().skip(1).take(2) {
        let _ = std::fs::remove_dir(parent);
    }
}

/// Removes the lists of incarnations that ended before the agent's start. Blocking.
pub fn clear(layout: &Layout, held: &BTreeSet<(JobId, Incarnation)>) {
    for (job, incarnation) in layout.existing_members() {
        if !held.contains(&(job.clone(), incarnation)) {
            withdraw(layout, &job, incarnation);
        }
    }
}

/// A member's answer to a change.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Answer {
    pub generation: u32,
    pub state: Acknowledged,
    #[serde(default)]
    pub step: Option<u64>,
}

/// One member's answers. Each is reported once, earlier changes not at all.
#[derive(Debug, Clone)]
pub struct Answers {
    directory: Below,
    seen: Option<(u64, i64, i64, u64)>,
    told: (u32, BTreeSet<Acknowledged>),
    is_warned: bool,
}

impl Answers {
    /// Reads answers in a container's directory. `told` are those that the log already has.
    #[must_use]
    pub fn new(directory: Below, told: Option<(u32, BTreeSet<Acknowledged>)>) -> Self {
        Self {
            directory,
            seen: None,
            told: told.unwrap_or_default(),
            is_warned: false,
        }
    }

    /// Returns a new answer if there is one.
    pub fn look(&mut self) -> Option<Answer> {
        let answer = match self.read() {
            Ok(answer) => answer?,
            Err(error) => {
                let is_absent = error.kind() == ErrorKind::NotFound;
                if !is_absent && !std::mem::replace(&mut self.is_warned, true) {
                    let path = self.directory.path().join(ACK);
                    tracing::warn!(%error, "{} is not {{\"generation\": N, \"state\": \"joined\"}}", path.display());
                }
                return None;
            }
        };
        if answer.generation > self.told.0 {
            self.told = (answer.generation, BTreeSet::new());
        }
        let is_new = answer.generation == self.told.0 && self.told.1.insert(answer.state);
        is_new.then_some(answer)
    }

    fn read(&mut self) -> io::Result<Option<Answer>> {
        let file = self.directory.open()?.file(ACK)?;
        let found = file.metadata()?;
        let seen = (found.ino(), found.mtime(), found.mtime_nsec(), found.len());
        if self.seen == Some(seen) {
            return Ok(None);
        }
        self.seen = Some(seen);
        let text = read_all(file, ACK_BYTES)?;
        Ok(Some(serde_json::from_slice(&text)?))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn answers() -> (tempfile::TempDir, Answers) {
        let folder = tempfile::tempdir().expect("a folder");
        let answers = Answers::new(Below::new(folder.path().to_owned(), ""), None);
        (folder, answers)
    }

    fn say(folder: &Path, text: &str) {
        std::fs::write(folder.join("new"), text).expect("written");
        std::fs::rename(folder.join("new"), folder.join(ACK)).expect("renamed");
    }

    #[test]
    fn each_answer_is_told_once() {
        let (folder, mut answers) = answers();
        assert_eq!(answers.look(), None);
        say(folder.path(), r#"{"generation": 2, "state": "ready"}"#);
        let ready = Answer {
            generation: 2,
            state: Acknowledged::Ready,
            step: None,
        };
        assert_eq!(answers.look(), Some(ready));
        say(folder.path(), r#"{"generation": 2, "state": "ready"}"#);
        assert_eq!(answers.look(), None, "the same again");
        say(
            folder.path(),
            r#"{"generation": 2, "state": "joined", "step": 7}"#,
        );
        assert_eq!(answers.look().and_then(|it| it.step), Some(7));
        say(folder.path(), r#"{"generation": 1, "state": "joined"}"#);
        assert_eq!(answers.look(), None, "of a change that is over");
        let told = (2, BTreeSet::from([Acknowledged::Joined]));
        let mut again = Answers::new(answers.directory.clone(), Some(told));
        say(
            folder.path(),
            r#"{"generation": 2, "state": "joined", "step": 7}"#,
        );
        assert_eq!(again.look(), None);
    }

    #[test]
    fn what_is_no_answer_is_passed_over() {
        let (folder, mut answers) = answers();
        let path = folder.path().join(ACK);
        for text in ["", "{}", r#"{"generation": -1, "state": "ready"}"#, "[1]"] {
            say(folder.path(), text);
            assert_eq!(answers.look(), None, "{text}");
        }
        say(folder.path(), &" ".repeat(5_000));
        assert_eq!(answers.look(), None);
        std::fs::remove_file(&path).expect("removed");
        let other = folder.path().join("other");
        std::fs::write(&other, r#"{"generation": 1, "state": "ready"}"#).expect("written");
        symlink(&other, &path).expect("linked");
        assert_eq!(answers.look(), None, "a link");
        std::fs::remove_file(&path).expect("removed");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        assert_eq!(answers.look(), None, "a pipe");
        std::fs::remove_file(&path).expect("removed");
        say(folder.path(), r#"{"generation": 1, "state": "left"}"#);
        assert_eq!(answers.look().map(|it| it.state), Some(Acknowledged::Left));
    }
}
