//! Writes a log as a Perfetto trace in the TrackEvent format, with nodes and jobs as tracks.
//!
//! | track | content |
//! |---|---|
//! | a process for each node, a track for each container | the node's containers |
//! | `jobs`, a track for each job | phases, with containers and epoch |
//! | `decisions` | allocations, with arrows to their changes in the jobs' tracks |
//! | counters | utilization, fairness loss, waiting jobs |
//!
//! The messages are the needed part of Perfetto's protocol (`protos/perfetto/trace`, stable numbers).
//! Times are nanoseconds since 1970 in log time.

use std::collections::BTreeMap;
use std::io::{self, Write};

use dormouse_messages::ids::ContainerId;
use dormouse_messages::{Epoch, Event, Fold, JobId, NodeId, Recorded, TenantId};
use dormouse_projections::ReadModel;
use dormouse_projections::jobs::Phase;
use dormouse_projections::status::{job_of, own_words};
use prost::Message;

use super::redact::ANOTHER_JOB;

/// A Perfetto trace.
#[derive(Clone, PartialEq, Message)]
pub struct Trace {
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<Packet>,
}

/// `TracePacket`.
#[derive(Clone, PartialEq, Message)]
pub struct Packet {
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

/// `TrackDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
}

/// `ProcessDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub process_name: Option<String>,
}

/// `CounterDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {
    #[prost(string, optional, tag = "6")]
    pub unit_name: Option<String>,
}

/// `TrackEvent`.
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<Annotation>,
    /// [`BEGIN`], [`END`], [`INSTANT`] or [`COUNTER`].
    #[prost(int32, optional, tag = "9")]
    pub kind: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    #[prost(double, optional, tag = "44")]
    pub double_counter_value: Option<f64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flow_ids: Vec<u64>,
}

/// `DebugAnnotation`.
#[derive(Clone, PartialEq, Message)]
pub struct Annotation {
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    #[prost(string, optional, tag = "6")]
    pub string_value: Option<String>,
    #[prost(string, optional, tag = "10")]
    pub name: Option<String>,
}

/// The type of a slice's begin.
pub const BEGIN: i32 = 1;
/// The type of a slice's end.
pub const END: i32 = 2;
/// The type of an instant.
pub const INSTANT: i32 = 3;
/// The type of a counter's value.
pub const COUNTER: i32 = 4;

const JOBS: u64 = 1;
const DECISIONS: u64 = 2;
const UTILIZATION: u64 = 3;
const LOSS: u64 = 4;
const WAITING: u64 = 5;
const FIRST: u64 = 16;

/// Writes a trace while a log is read.
pub struct TraceWriter<W: Write> {
    out: W,
    model: ReadModel,
    now: u64,
    next: u64,
    nodes: BTreeMap<NodeId, u64>,
    containers: BTreeMap<ContainerId, (NodeId, u64)>,
    jobs: BTreeMap<JobId, (u64, Phase)>,
    packets: u64,
    viewer: Option<TenantId>,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn new(out: W) -> io::Result<Self> {
        let mut writer = Self {
            out,
            model: ReadModel::default(),
            now: 0,
            next: FIRST,
            nodes: BTreeMap::new(),
            containers: BTreeMap::new(),
            jobs: BTreeMap::new(),
            packets: 0,
            viewer: None,
        };
        writer.process(JOBS, 1, "jobs")?;
        writer.process(DECISIONS, 2, "decisions")?;
        for (uuid, name, unit) in [
            (UTILIZATION, "utilization", "of the cluster"),
            (LOSS, "fairness loss", "shares"),
            (WAITING, "jobs that wait", "jobs"),
        ] {
            let track = TrackDescriptor {
                uuid: Some(uuid),
                name: Some(name.to_owned()),
                counter: Some(CounterDescriptor {
                    unit_name: Some(unit.to_owned()),
                }),
                parent_uuid: Some(DECISIONS),
                ..TrackDescriptor::default()
            };
            writer.describe(track)?;
        }
        Ok(writer)
    }

    /// Begins with a snapshot's state.
    #[must_use]
    pub fn starting_from(mut self, model: ReadModel) -> Self {
        self.model = model;
        self
    }

    /// Hides other tenants: no tracks for their jobs, no names for their containers.
    #[must_use]
    pub fn seen_by(mut self, viewer: Option<TenantId>) -> Self {
        self.viewer = viewer;
        self
    }

    fn sees(&self, job: &JobId) -> bool {
        let viewer = self.viewer.as_ref();
        viewer.is_none_or(|viewer| viewer.as_str() == job.tenant())
    }

    /// Reads the next event of the log.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn read(&mut self, recorded: &Recorded) -> io::Result<()> {
        self.model.evolve(recorded);
        let at = self.model.cluster.now;
        self.now = u64::try_from(at.as_micros()).unwrap_or(0) * 1000;
        let Some(event) = recorded.event() else {
            return Ok(());
        };
        match event {
            Event::NodeJoined(event) => {
                self.node(&event.node)?;
            }
            Event::NodeLost(event) => self.lost(&event.node, event.incarnation)?,
            Event::NodeFenced(event) => self.lost(&event.node, event.incarnation)?,
            Event::ContainerStarted(event) => {
                self.container_started(&event.container, &event.node)?;
            }
            Event::ContainerExited(event) => self.container_ended(&event.container)?,
            Event::AllocationDecided(event) => {
                let jobs = u64::try_from(event.jobs.len()).unwrap_or(0);
                let notes = vec![
                    number("jobs", jobs),
                    number("sequence", recorded.sequence.0),
                ];
                self.decision(&format!("epoch {}", event.epoch), Some(event.epoch), notes)?;
                self.figures(&event.outcome)?;
            }
            Event::AllocationUnchanged(event) => {
                let reason = match &self.viewer {
                    Some(viewer) => own_words(&event.reason, viewer.as_str()),
                    None => event.reason.clone(),
                };
                let notes = vec![
                    text("reason", &reason),
                    number("sequence", recorded.sequence.0),
                ];
                self.decision("kept", None, notes)?;
                self.figures(&event.outcome)?;
            }
            _ => {}
        }
        self.changed(event)
    }

    /// Ends all open slices; returns the number of packets and the output.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn finish(mut self) -> io::Result<(u64, W)> {
        let open: Vec<u64> = self
            .jobs
            .values()
            .filter(|(_, phase)| !phase.is_over())
            .map(|(uuid, _)| *uuid)
            .collect();
        let containers: Vec<u64> = self.containers.values().map(|(_, uuid)| *uuid).collect();
        for uuid in open.into_iter().chain(containers) {
            self.event(uuid, END, None, Vec::new(), Vec::new())?;
        }
        self.out.flush()?;
        Ok((self.packets, self.out))
    }

    fn changed(&mut self, event: &Event) -> io::Result<()> {
        let jobs: Vec<JobId> = match event {
            Event::AllocationDecided(event) => event.jobs.iter().map(|it| it.job.clone()).collect(),
            Event::PlacementDecided(event) => {
                event.create.iter().map(|it| it.job.clone()).collect()
            }
            Event::AllocationUnchanged(_) | Event::NodeJoined(_) => Vec::new(),
            Event::NodeLost(_) | Event::NodeFenced(_) | Event::NodeDrained(_) => {
                self.jobs.keys().cloned().collect()
            }
            event => job_of(event).cloned().into_iter().collect(),
        };
        for id in jobs {
            if self.sees(&id) {
                self.follow(&id)?;
            }
        }
        Ok(())
    }

    fn follow(&mut self, id: &JobId) -> io::Result<()> {
        let Some((phase, now, epoch)) = self
            .model
            .jobs
            .get(id)
            .map(|job| (job.phase, job.now, job.epoch))
        else {
            return Ok(());
        };
        let uuid = match self.jobs.get(id) {
            Some((_, before)) if *before == phase => return Ok(()),
            Some((uuid, before)) => {
                let (uuid, over) = (*uuid, before.is_over());
                if !over {
                    self.event(uuid, END, None, Vec::new(), Vec::new())?;
                }
                uuid
            }
            None => {
                let uuid = self.uuid();
                self.track(uuid, JOBS, id.as_str())?;
                uuid
            }
        };
        self.jobs.insert(id.clone(), (uuid, phase));
        let notes = vec![
            number("containers", u64::from(now)),
            number("epoch", epoch.0),
        ];
        let flows = match phase {
            Phase::Placed | Phase::Starting | Phase::Checkpointing if epoch.0 > 0 => vec![epoch.0],
            _ => Vec::new(),
        };
        let kind = if phase.is_over() { INSTANT } else { BEGIN };
        self.event(uuid, kind, Some(phase.as_str()), notes, flows)
    }

    fn decision(
        &mut self,
        name: &str,
        epoch: Option<Epoch>,
        notes: Vec<Annotation>,
    ) -> io::Result<()> {
        let flows = epoch.map(|epoch| epoch.0).into_iter().collect();
        self.event(DECISIONS, INSTANT, Some(name), notes, flows)
    }

    fn figures(&mut self, outcome: &dormouse_messages::events::Outcome) -> io::Result<()> {
        let waiting = u32::try_from(outcome.waiting.len()).unwrap_or(u32::MAX);
        for (uuid, value) in [
            (UTILIZATION, outcome.utilization.total),
            (LOSS, outcome.fairness_loss),
            (WAITING, f64::from(waiting)),
        ] {
            self.packet(Packet {
                timestamp: Some(self.now),
                track_event: Some(TrackEvent {
                    kind: Some(COUNTER),
                    track_uuid: Some(uuid),
                    double_counter_value: Some(value),
                    ..TrackEvent::default()
                }),
                ..Packet::default()
            })?;
        }
        Ok(())
    }

    fn container_started(&mut self, id: &ContainerId, node: &NodeId) -> io::Result<()> {
        if self.containers.contains_key(id) {
            return Ok(());
        }
        let parent = self.node(node)?;
        let uuid = self.uuid();
        let (track, job) = if self.sees(&id.job) {
            (id.to_string(), id.job.to_string())
        } else {
            (
                "a container of another tenant".to_owned(),
                ANOTHER_JOB.to_owned(),
            )
        };
        self.track(uuid, parent, &track)?;
        self.containers.insert(id.clone(), (node.clone(), uuid));
        let notes = vec![
            number("incarnation", u64::from(id.incarnation.0)),
            number("rank", u64::from(id.rank.0)),
        ];
        self.event(uuid, BEGIN, Some(&job), notes, Vec::new())
    }

    fn container_ended(&mut self, id: &ContainerId) -> io::Result<()> {
        match self.containers.remove(id) {
            Some((_, uuid)) => self.event(uuid, END, None, Vec::new(), Vec::new()),
            None => Ok(()),
        }
    }

    fn lost(&mut self, node: &NodeId, incarnation: u64) -> io::Result<()> {
        let uuid = self.node(node)?;
        self.event(uuid, INSTANT, Some("lost"), Vec::new(), Vec::new())?;
        let known = self.model.state().nodes.get(node);
        if known.is_some_and(|it| it.incarnation > incarnation) {
            return Ok(());
        }
        let there = self.containers.iter().filter(|(_, (on, _))| on == node);
        let there: Vec<ContainerId> = there.map(|(id, _)| id.clone()).collect();
        there.iter().try_for_each(|id| self.container_ended(id))
    }

    fn node(&mut self, node: &NodeId) -> io::Result<u64> {
        if let Some(uuid) = self.nodes.get(node) {
            return Ok(*uuid);
        }
        let uuid = self.uuid();
        self.nodes.insert(node.clone(), uuid);
        let pid = i32::try_from(uuid).unwrap_or(i32::MAX);
        self.process(uuid, pid, &format!("node {node}"))?;
        Ok(uuid)
    }

    fn uuid(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn process(&mut self, uuid: u64, pid: i32, name: &str) -> io::Result<()> {
        self.describe(TrackDescriptor {
            uuid: Some(uuid),
            process: Some(ProcessDescriptor {
                pid: Some(pid),
                process_name: Some(name.to_owned()),
            }),
            ..TrackDescriptor::default()
        })
    }

    fn track(&mut self, uuid: u64, parent: u64, name: &str) -> io::Result<()> {
        self.describe(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name.to_owned()),
            parent_uuid: Some(parent),
            ..TrackDescriptor::default()
        })
    }

    fn describe(&mut self, track: TrackDescriptor) -> io::Result<()> {
        self.packet(Packet {
            track_descriptor: Some(track),
            ..Packet::default()
        })
    }

    fn event(
        &mut self,
        track: u64,
        kind: i32,
        name: Option<&str>,
        debug_annotations: Vec<Annotation>,
        flow_ids: Vec<u64>,
    ) -> io::Result<()> {
        self.packet(Packet {
            timestamp: Some(self.now),
            track_event: Some(TrackEvent {
                kind: Some(kind),
                track_uuid: Some(track),
                name: name.map(str::to_owned),
                debug_annotations,
                flow_ids,
                double_counter_value: None,
            }),
            ..Packet::default()
        })
    }

    fn packet(&mut self, mut packet: Packet) -> io::Result<()> {
        packet.trusted_packet_sequence_id = Some(1);
        self.packets += 1;
        let packet = vec![packet];
        self.out.write_all(&Trace { packet }.encode_to_vec())
    }
}

fn number(name: &str, value: u64) -> Annotation {
    Annotation {
        uint_value: Some(value),
        string_value: None,
        name: Some(name.to_owned()),
    }
}

fn text(name: &str, value: &str) -> Annotation {
    Annotation {
        uint_value: None,
        string_value: Some(value.to_owned()),
        name: Some(name.to_owned()),
    }
}
