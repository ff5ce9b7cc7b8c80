//! Slurm's accounting: `sacct --allusers --allocations --parsable2`, a row a job.
//!
//! A job holds what `AllocTRES` says, else `ReqTRES`, else the columns of CPUs and memory. Rows of steps
//! (`123.batch`) are skipped. An array's tasks (`123_4`) and the parts of a heterogeneous job (`123+0`) are
//! jobs of their own.

use dormouse_messages::Resource;

use super::moment::{duration_s, is_absent, raw_s, time_s};
use super::table::{CellError, Column, Header, Row};
use super::tres::{Tres, requested_memory_bytes, tres};
use super::{ImportError, PastJob, Record, Tenants};

/// The way to such a table.
pub const HOW: &str = "make the file with `sacct --allusers --allocations --parsable2 --starttime=now-30days --format=JobID,User,Account,Submit,Eligible,Start,End,ElapsedRaw,State,AllocTRES,ReqTRES,NNodes,TimelimitRaw`";

/// The columns in use.
#[derive(Debug)]
pub struct Columns {
    job_id: Column,
    tenant: Column,
    submit: Column,
    eligible: Option<Column>,
    start: Column,
    elapsed: Elapsed,
    state: Option<Column>,
    allocated: Option<Column>,
    requested: Option<Column>,
    cpus: Option<Column>,
    memory: Option<Column>,
    nodes: Option<Column>,
    limit: Limit,
}

#[derive(Debug)]
enum Elapsed {
    Raw(Column),
    Clock(Column),
    End(Column),
}

#[derive(Debug)]
enum Limit {
    Minutes(Column),
    Clock(Column),
    None,
}

impl Columns {
    /// Finds the columns.
    ///
    /// # Errors
    /// A needed one is missing.
    pub fn of(header: &Header, tenants: Tenants) -> Result<Self, ImportError> {
        let elapsed = match (
            header.find(&["ElapsedRaw"]),
            header.find(&["Elapsed"]),
            header.find(&["End"]),
        ) {
            (Some(raw), _, _) => Elapsed::Raw(raw),
            (_, Some(clock), _) => Elapsed::Clock(clock),
            (_, _, Some(end)) => Elapsed::End(end),
            _ => return Err(header.lacks(&["ElapsedRaw", "Elapsed", "End"])),
        };
        let limit = match (header.find(&["TimelimitRaw"]), header.find(&["Timelimit"])) {
            (Some(minutes), _) => Limit::Minutes(minutes),
            (_, Some(clock)) => Limit::Clock(clock),
            _ => Limit::None,
        };
        let allocated = header.find(&["AllocTRES"]);
        let requested = header.find(&["ReqTRES"]);
        let cpus = header.find(&["AllocCPUS", "NCPUS", "ReqCPUS"]);
        if allocated.is_none() && requested.is_none() && cpus.is_none() {
            return Err(header.lacks(&["AllocTRES", "ReqTRES", "AllocCPUS"]));
        }
        Ok(Self {
            job_id: header.need(&["JobID"])?,
            tenant: match tenants {
                Tenants::Account => header.need(&["Account"])?,
                Tenants::User => header.need(&["User"])?,
            },
            submit: header.need(&["Submit"])?,
            eligible: header.find(&["Eligible"]),
            start: header.need(&["Start"])?,
            elapsed,
            state: header.find(&["State"]),
            allocated,
            requested,
            cpus,
            memory: header.find(&["ReqMem"]),
            nodes: header.find(&["NNodes", "AllocNodes"]),
            limit,
        })
    }

    /// Reads a row.
    ///
    /// # Errors
    /// A field is not in Slurm's form.
    pub(crate) fn read(&self, row: &Row<'_>) -> Result<Record, CellError> {
        let id = row.text(&self.job_id)?;
        if id.contains('.') {
            return Ok(Record::Step);
        }
        let Some(started_s) = row.parse(&self.start, time_s)? else {
            return Ok(Record::NeverStarted);
        };
        let state = row.optional(self.state.as_ref())?.unwrap_or_default();
        let run_s = self.run_s(row, started_s)?;
        let is_allocated = self.is_allocated(row)?;
        // Before Slurm 22.05, a job cancelled in the queue has a start.
        if run_s == 0 && (!is_allocated || state.starts_with("CANCELLED")) {
            return Ok(Record::NeverStarted);
        }
        let held = self.resources(row)?;
        if held.total.is_empty() {
            return Ok(Record::WithoutResources);
        }
        Ok(Record::Job(Box::new(PastJob {
            id: format!("j{id}"),
            tenant: row.text(&self.tenant)?.to_owned(),
            submitted_s: self.submitted_s(row, started_s)?,
            started_s,
            run_s,
            nodes: self.nodes(row, &held)?,
            total: held.total,
            gpu_models: self.asked_models(row)?,
            limit_s: self.limit_s(row)?,
            is_running: ["RUNNING", "SUSPENDED", "COMPLETING"].contains(&state),
        })))
    }

    /// Returns sentences on the columns in use.
    pub const fn notes(&self) -> &'static [&'static str] {
        if self.eligible.is_some() {
            &[
                "A job counts as submitted when it became eligible: after its dependencies and begin time.",
            ]
        } else {
            &[
                "A wait includes the time in which a job was not eligible: there is no column Eligible.",
            ]
        }
    }

    fn submitted_s(&self, row: &Row<'_>, started_s: i64) -> Result<i64, CellError> {
        let submit = row.parse(&self.submit, |text| {
            time_s(text)?.ok_or("is no time; each job was submitted at one")
        })?;
        let eligible = self.eligible.as_ref();
        let eligible = eligible
            .map(|column| row.parse(column, time_s))
            .transpose()?;
        let submitted_s = eligible.flatten().unwrap_or(submit).max(submit);
        // A requeued job keeps its first start in some versions.
        Ok(submitted_s.min(started_s))
    }

    fn run_s(&self, row: &Row<'_>, started_s: i64) -> Result<u64, CellError> {
        let run_s = match &self.elapsed {
            Elapsed::Raw(column) => row.parse(column, raw_s)?,
            Elapsed::Clock(column) => row.parse(column, duration_s)?,
            Elapsed::End(column) => row.parse(column, |text| match time_s(text)? {
                None => Ok(None),
                Some(end_s) => u64::try_from(end_s - started_s)
                    .map(Some)
                    .map_err(|_| "is before the job's start"),
            })?,
        };
        Ok(run_s.unwrap_or(0))
    }

    fn is_allocated(&self, row: &Row<'_>) -> Result<bool, CellError> {
        let allocated = self.allocated.as_ref();
        Ok(allocated.is_none() || row.optional(allocated)?.is_some())
    }

    fn resources(&self, row: &Row<'_>) -> Result<Tres, CellError> {
        for column in [&self.allocated, &self.requested].into_iter().flatten() {
            let held = row.parse(column, tres)?;
            if !held.total.is_empty() {
                return Ok(held);
            }
        }
        let mut held = Tres::default();
        let cpus = match &self.cpus {
            None => 0,
            Some(column) => row.parse(column, count)?,
        };
        held.total.set(Resource::Cpu, u64::from(cpus) * 1_000);
        if let Some(column) = &self.memory
            && row.optional(Some(column))?.is_some()
        {
            let nodes = self.nodes(row, &held)?;
            let of = |text: &str| requested_memory_bytes(text, nodes, u64::from(cpus));
            held.total.set(Resource::Memory, row.parse(column, of)?);
        }
        Ok(held)
    }

    fn nodes(&self, row: &Row<'_>, held: &Tres) -> Result<u32, CellError> {
        let column = self.nodes.as_ref();
        let counted = column.map(|column| row.parse(column, count)).transpose()?;
        let counted = counted.filter(|nodes| *nodes > 0).or(held.nodes);
        Ok(counted.unwrap_or(1).max(1))
    }

    /// Only a request is a wish; `AllocTRES` names the model of every GPU.
    fn asked_models(&self, row: &Row<'_>) -> Result<Vec<String>, CellError> {
        let column = self.requested.as_ref();
        let asked = column.map(|column| row.parse(column, tres)).transpose()?;
        Ok(asked.map_or_else(Vec::new, |asked| asked.gpu_models))
    }

    fn limit_s(&self, row: &Row<'_>) -> Result<Option<u64>, CellError> {
        const UNLIMITED: [&str; 3] = ["UNLIMITED", "Partition_Limit", "INVALID"];
        let limited = |text: &str| !UNLIMITED.iter().any(|it| it.eq_ignore_ascii_case(text));
        match &self.limit {
            Limit::Minutes(column) if limited(row.text(column)?) => {
                let minutes = row.parse(column, raw_s)?;
                Ok(minutes.map(|minutes| minutes.saturating_mul(60)))
            }
            Limit::Clock(column) if limited(row.text(column)?) => row.parse(column, duration_s),
            _ => Ok(None),
        }
    }
}

fn count(text: &str) -> Result<u32, &'static str> {
    if is_absent(text) {
        return Ok(0);
    }
    text.parse().map_err(|_| "is no whole number")
}

#[cfg(test)]
mod tests {
    use super::super::table::Table;
    use super::*;

    const FORMAT: &str = "JobID|User|Account|Submit|Eligible|Start|End|ElapsedRaw|State|AllocTRES|ReqTRES|NNodes|TimelimitRaw";

    fn row(header: &str, line: &str, tenants: Tenants) -> Result<Record, ImportError> {
        let text = format!("{header}\n{line}\n");
        let mut table = Table::open(text.as_bytes(), b'|', HOW)?;
        let columns = Columns::of(table.header(), tenants)?;
        let row = table.next()?.expect("a row")?;
        columns.read(&row).map_err(|error| error.on(row.line()))
    }

    fn job(line: &str) -> PastJob {
        match row(FORMAT, line, Tenants::Account).expect("reads") {
            Record::Job(job) => *job,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_job_reads() {
        let job = job(
            "123_4|ann|Vision|1970-01-01T00:01:00|1970-01-01T00:02:00|1970-01-01T00:10:00|1970-01-01T01:10:00|3600|TIMEOUT|billing=16,cpu=16,gres/gpu:a100=8,gres/gpu=8,mem=64G,node=2|cpu=16,gres/gpu:a100=8,mem=64G,node=2|2|60",
        );
        assert_eq!(
            job,
            PastJob {
                id: "j123_4".to_owned(),
                tenant: "Vision".to_owned(),
                submitted_s: 120,
                started_s: 600,
                run_s: 3_600,
                nodes: 2,
                total: "cpu=16,gpu=8,memory=64Gi".parse().expect("amounts"),
                gpu_models: vec!["a100".to_owned()],
                limit_s: Some(3_600),
                is_running: false,
            }
        );
    }

    #[test]
    fn rows_that_are_no_jobs_are_left_out() {
        let read = |line| row(FORMAT, line, Tenants::Account).expect("reads");
        for (line, expected) in [
            ("1.batch|||||||||||1|", Record::Step),
            ("1.0|||||||||||1|", Record::Step),
            (
                "2_[5-9%2]|a|x|1970-01-01T00:00:00|Unknown|Unknown|Unknown|0|PENDING||cpu=1|1|60",
                Record::NeverStarted,
            ),
            (
                "3|a|x|1970-01-01T00:00:00|Unknown|None|1970-01-01T00:05:00|0|CANCELLED by 1000||cpu=1|1|60",
                Record::NeverStarted,
            ),
            (
                "4|a|x|1970-01-01T00:00:00|Unknown|1970-01-01T00:05:00|1970-01-01T00:05:00|0|CANCELLED by 1000||cpu=1|1|60",
                Record::NeverStarted,
            ),
            (
                "5|a|x|1970-01-01T00:00:00|Unknown|1970-01-01T00:05:00|1970-01-01T00:06:00|60|COMPLETED|billing=1|billing=1|1|60",
                Record::WithoutResources,
            ),
        ] {
            assert_eq!(read(line), expected, "{line}");
        }
    }

    #[test]
    fn older_and_other_formats_read() {
        let header = "State|Elapsed|ReqMem|AllocCPUS|NNodes|Start|Submit|User|JobID|Timelimit|";
        let line = "NODE_FAIL|1-00:00:10|2Gc|8|2|1970-01-01T00:00:05|1970-01-01T00:00:00|bob|77|UNLIMITED|";
        let Record::Job(job) = row(header, line, Tenants::User).expect("reads") else {
            panic!("no job");
        };
        assert_eq!((job.run_s, job.tenant.as_str()), (86_410, "bob"));
        let total = "cpu=8,memory=16Gi".parse().expect("amounts");
        assert_eq!((job.total, job.nodes, job.limit_s), (total, 2, None));
        let by_end = "JobID|Account|Submit|Start|End|ReqTRES";
        let line = "5|x|1970-01-01T00:00:00|1970-01-01T00:00:05|Unknown|cpu=2";
        let Record::Job(job) = row(by_end, line, Tenants::Account).expect("reads") else {
            panic!("no job");
        };
        assert_eq!(job.run_s, 0);
    }

    #[test]
    fn mistakes_are_named() {
        let error = row("JobID|User", "1|a", Tenants::User).expect_err("no times");
        let said = error.to_string();
        assert!(
            said.contains("no column ElapsedRaw or Elapsed or End"),
            "{said}"
        );
        assert!(said.contains("sacct --allusers"), "{said}");
        for (line, column) in [
            (
                "1|a|x|now|Unknown|1970-01-01T00:00:05|Unknown|1|COMPLETED|cpu=1|cpu=1|1|1",
                "Submit: \"now\"",
            ),
            (
                "1|a|x|5|Unknown|6|Unknown|1h|COMPLETED|cpu=1|cpu=1|1|1",
                "ElapsedRaw: \"1h\"",
            ),
            (
                "1|a|x|5|Unknown|6|Unknown|1|COMPLETED|cpu=1,mem=4Q|cpu=1|1|1",
                "AllocTRES",
            ),
            (
                "1|a|x|5|Unknown|6|Unknown|1|COMPLETED|cpu=1|cpu=1|two|1",
                "NNodes",
            ),
            (
                "1|a|x|5|Unknown|6|Unknown|1|COMPLETED|cpu=1|cpu=1|1|long",
                "TimelimitRaw",
            ),
        ] {
            let error = row(FORMAT, line, Tenants::Account).expect_err(line);
            let said = error.to_string();
            assert!(said.starts_with("line 2, column "), "{said}");
            assert!(said.contains(column), "{said}");
        }
        let error = row(FORMAT, "1|a|b", Tenants::Account).expect_err("too short");
        assert!(
            error.to_string().starts_with("line 2 has 3 fields"),
            "{error}"
        );
    }
}
