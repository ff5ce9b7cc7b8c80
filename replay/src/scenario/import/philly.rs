//! Tables like those made from Microsoft's Philly traces and SenseTime's Helios traces: a row a job, with a
//! number of GPUs and times as `2017-10-03 13:28:05` or in seconds.

use dormouse_messages::{Amounts, Resource};

use super::moment::{is_absent, raw_s, time_s};
use super::table::{CellError, Column, Header, Row};
use super::tres::memory_bytes;
use super::{ImportError, PastJob, Record, Tenants};

/// The way to such a table.
pub const HOW: &str = "the table has job_id,user,vc,gpu_num,submit_time,start_time and end_time or duration; cpu_num, mem, node_num and state are read if they are there";

/// The columns in use.
#[derive(Debug)]
pub struct Columns {
    job_id: Column,
    tenant: Column,
    submitted: Column,
    started: Column,
    duration: Option<Column>,
    ended: Option<Column>,
    gpus: Column,
    cpus: Option<Column>,
    memory: Option<Column>,
    nodes: Option<Column>,
}

impl Columns {
    /// Finds the columns.
    ///
    /// # Errors
    /// A needed one is missing.
    pub fn of(header: &Header, tenants: Tenants) -> Result<Self, ImportError> {
        let ended = header.find(&["end_time", "finish_time", "finished_time"]);
        let duration = header.find(&["duration", "run_time"]);
        if ended.is_none() && duration.is_none() {
            return Err(header.lacks(&["end_time", "duration"]));
        }
        Ok(Self {
            job_id: header.need(&["job_id", "jobid", "job_name"])?,
            tenant: match tenants {
                Tenants::Account => header.need(&["vc", "account", "group", "queue"])?,
                Tenants::User => header.need(&["user"])?,
            },
            submitted: header.need(&["submit_time", "submitted_time", "submission_time"])?,
            started: header.need(&["start_time", "started_time"])?,
            duration,
            ended,
            gpus: header.need(&["gpu_num", "num_gpu", "num_gpus", "gpus"])?,
            cpus: header.find(&["cpu_num", "num_cpu", "num_cpus", "cpus"]),
            memory: header.find(&["mem", "memory"]),
            nodes: header.find(&["node_num", "num_nodes", "nodes"]),
        })
    }

    /// Reads a row.
    ///
    /// # Errors
    /// A field has another form.
    pub(crate) fn read(&self, row: &Row<'_>) -> Result<Record, CellError> {
        let Some(started_s) = row.parse(&self.started, time_s)? else {
            return Ok(Record::NeverStarted);
        };
        let Some(run_s) = self.run_s(row, started_s)? else {
            return Ok(Record::NeverStarted);
        };
        let mut total = Amounts::new();
        total.set(Resource::Gpu, row.parse(&self.gpus, count)? * 1_000);
        if let Some(column) = &self.cpus {
            total.set(Resource::Cpu, row.parse(column, count)? * 1_000);
        }
        if let Some(column) = &self.memory
            && !is_absent(row.text(column)?)
        {
            total.set(Resource::Memory, row.parse(column, memory_bytes)?);
        }
        if total.is_empty() {
            return Ok(Record::WithoutResources);
        }
        let nodes = self.nodes.as_ref();
        let nodes = nodes.map(|column| row.parse(column, count)).transpose()?;
        let submitted_s = row.parse(&self.submitted, |text| {
            time_s(text)?.ok_or("is no time; each job was submitted at one")
        })?;
        Ok(Record::Job(Box::new(PastJob {
            id: row.text(&self.job_id)?.to_owned(),
            tenant: row.text(&self.tenant)?.to_owned(),
            submitted_s: submitted_s.min(started_s),
            started_s,
            run_s,
            nodes: nodes.map_or(1, |nodes| u32::try_from(nodes).unwrap_or(1).max(1)),
            total,
            gpu_models: Vec::new(),
            limit_s: None,
            is_running: false,
        })))
    }

    fn run_s(&self, row: &Row<'_>, started_s: i64) -> Result<Option<u64>, CellError> {
        if let Some(column) = &self.ended {
            let run_s = row.parse(column, |text| match time_s(text)? {
                None => Ok(None),
                Some(end_s) => u64::try_from(end_s - started_s)
                    .map(Some)
                    .map_err(|_| "is before the job's start"),
            })?;
            if run_s.is_some() || self.duration.is_none() {
                return Ok(run_s);
            }
        }
        let duration = self.duration.as_ref();
        let run_s = duration
            .map(|column| row.parse(column, raw_s))
            .transpose()?;
        Ok(run_s.flatten())
    }
}

fn count(text: &str) -> Result<u64, &'static str> {
    if is_absent(text) {
        return Ok(0);
    }
    let whole = text.strip_suffix(".0").unwrap_or(text);
    let count = whole.parse::<u32>().map(u64::from);
    count.map_err(|_| "is no whole number")
}

#[cfg(test)]
mod tests {
    use super::super::table::Table;
    use super::*;

    fn read(text: &str, tenants: Tenants) -> Vec<Result<Record, ImportError>> {
        let mut table = Table::open(text.as_bytes(), b',', HOW).expect("a table");
        let columns = Columns::of(table.header(), tenants).expect("columns");
        let mut all = Vec::new();
        while let Some(row) = table.next().expect("readable") {
            all.push(row.and_then(|row| columns.read(&row).map_err(|error| error.on(row.line()))));
        }
        all
    }

    #[test]
    fn both_traces_read() {
        let philly = "jobid,vc,user,status,submitted_time,start_time,end_time,gpus\n\
                      application_1,6214e9,bf5e4f,Pass,2017-10-09 07:01:21,2017-10-09 07:02:21,2017-10-09 08:02:21,4\n\
                      application_2,6214e9,bf5e4f,Killed,2017-10-09 07:01:21,None,None,4\n";
        let read_rows = read(philly, Tenants::Account);
        let [Ok(Record::Job(job)), Ok(Record::NeverStarted)] = read_rows.as_slice() else {
            panic!("{read_rows:?}");
        };
        assert_eq!((job.run_s, job.started_s - job.submitted_s), (3_600, 60));
        let helios = "job_id,user,gpu_num,cpu_num,node_num,state,submit_time,start_time,duration,vc\n\
                      7,u1,16.0,64,2,COMPLETED,100,200,50,vc1\n\
                      8,u1,many,64,2,COMPLETED,100,200,50,vc1\n";
        let read_rows = read(helios, Tenants::User);
        let [Ok(Record::Job(job)), Err(error)] = read_rows.as_slice() else {
            panic!("{read_rows:?}");
        };
        assert_eq!((job.nodes, job.run_s, job.tenant.as_str()), (2, 50, "u1"));
        assert_eq!(job.total, "cpu=64,gpu=16".parse().expect("amounts"));
        assert!(
            error.to_string().contains("column gpu_num: \"many\""),
            "{error}"
        );
    }
}
