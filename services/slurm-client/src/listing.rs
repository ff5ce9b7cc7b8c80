//! The answer of `squeue`, in the text form that all its versions share.

use dormouse_messages::Timestamp;

/// Job, state, start, end, reason, nodes and at last the name, which may hold anything.
pub const FORMAT: &str = "%i|%T|%S|%e|%r|%N|%j";

/// A job in Slurm's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    pub slurm_job: u64,
    pub standing: Standing,
}

/// The state of a job at Slurm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    Waits {
        reason: String,
        starts_at: Option<Timestamp>,
    },
    Runs {
        hosts: String,
        ends_at: Option<Timestamp>,
    },
    Ended {
        state: String,
        reason: String,
    },
}

/// Parses the jobs whose names begin with `prefix`.
#[must_use]
pub fn parse(text: &str, prefix: &str) -> Vec<Listed> {
    let jobs = text.lines().filter_map(line);
    jobs.filter(|job| job.name.starts_with(prefix)).collect()
}

fn line(line: &str) -> Option<Listed> {
    let mut fields = line.trim().splitn(7, '|');
    let slurm_job = fields.next()?.parse().ok()?;
    let (state, starts, ends) = (fields.next()?, fields.next()?, fields.next()?);
    let (reason, hosts, name) = (fields.next()?, fields.next()?, fields.next()?);
    let reason = match reason {
        "None" => String::new(),
        reason => reason.to_owned(),
    };
    let standing = match state {
        "PENDING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "RESV_DEL_HOLD"
        | "SPECIAL_EXIT" => Standing::Waits {
            reason,
            starts_at: time(starts),
        },
        // Nodes boot, or processes still end: the nodes are the job's.
        "CONFIGURING" | "RUNNING" | "COMPLETING" | "RESIZING" | "SIGNALING" | "STAGE_OUT"
        | "STOPPED" | "SUSPENDED" => Standing::Runs {
            hosts: hosts.to_owned(),
            ends_at: time(ends),
        },
        state => Standing::Ended {
            state: state.to_owned(),
            reason,
        },
    };
    Some(Listed {
        name: name.to_owned(),
        slurm_job,
        standing,
    })
}

/// `N/A` and 0 are unknown times.
fn time(seconds: &str) -> Option<Timestamp> {
    let seconds: i64 = seconds.parse().ok()?;
    (seconds > 0).then(|| Timestamp::from_micros(seconds.saturating_mul(1_000_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_of_a_log_are_read_in_every_state() {
        let text = "\
            7|PENDING|1764325200|1764328800|Priority||dormouse-1-gpu-1\n\
            8|PENDING|N/A|N/A|None||dormouse-1-gpu-2\n\
            9|RUNNING|1764320000|1764323600|None|sn[1-2]|dormouse-1-gpu-3\n\
            10|COMPLETING|1764320000|1764323600|NonZeroExitCode|sn1|dormouse-1-gpu-4\n\
            11|TIMEOUT|1764320000|1764323600|TimeLimit|sn1|dormouse-1-gpu-5\n\
            12|RUNNING|1764320000|1764323600|None|sn1|somebody's|own\n\
            13_[1-9]|PENDING|N/A|N/A|None||dormouse-1-array\n\
            nonsense\n";
        let jobs = parse(text, "dormouse-1-");
        let numbers: Vec<u64> = jobs.iter().map(|job| job.slurm_job).collect();
        assert_eq!(numbers, [7, 8, 9, 10, 11]);
        assert_eq!(
            jobs[0].standing,
            Standing::Waits {
                reason: "Priority".to_owned(),
                starts_at: Some(Timestamp::from_micros(1_764_325_200_000_000)),
            }
        );
        assert_eq!(
            jobs[1].standing,
            Standing::Waits {
                reason: String::new(),
                starts_at: None
            }
        );
        assert!(matches!(&jobs[2].standing, Standing::Runs { hosts, .. } if hosts == "sn[1-2]"));
        assert!(matches!(&jobs[3].standing, Standing::Runs { .. }));
        assert_eq!(
            jobs[4].standing,
            Standing::Ended {
                state: "TIMEOUT".to_owned(),
                reason: "TimeLimit".to_owned()
            }
        );
        assert_eq!(parse(text, "somebody")[0].name, "somebody's|own");
    }
}
