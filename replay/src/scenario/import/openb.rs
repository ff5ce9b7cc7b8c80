//! Alibaba's traces for GPU sharing (clusterdata, `cluster-trace-gpu-v2023/csv/openb_pod_list_*.csv`): a row
//! a pod, with times in seconds. `gpu_milli` is the part of a GPU of a pod with one.

use dormouse_messages::{Amounts, Resource};

use super::moment::{is_absent, time_s};
use super::table::{CellError, Column, Header, Row};
use super::{ImportError, PastJob, Record};

/// The way to such a table.
pub const HOW: &str = "an openb_pod_list_*.csv of github.com/alibaba/clusterdata has name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time";

/// The columns in use.
#[derive(Debug)]
pub struct Columns {
    name: Column,
    cpu: Column,
    memory: Column,
    gpus: Column,
    gpu_milli: Column,
    models: Option<Column>,
    qos: Column,
    phase: Option<Column>,
    created: Column,
    deleted: Column,
    scheduled: Column,
}

impl Columns {
    /// Finds the columns.
    ///
    /// # Errors
    /// A needed one is missing.
    pub fn of(header: &Header) -> Result<Self, ImportError> {
        Ok(Self {
            name: header.need(&["name"])?,
            cpu: header.need(&["cpu_milli"])?,
            memory: header.need(&["memory_mib"])?,
            gpus: header.need(&["num_gpu"])?,
            gpu_milli: header.need(&["gpu_milli"])?,
            models: header.find(&["gpu_spec"]),
            qos: header.need(&["qos"])?,
            phase: header.find(&["pod_phase"]),
            created: header.need(&["creation_time"])?,
            deleted: header.need(&["deletion_time"])?,
            scheduled: header.need(&["scheduled_time"])?,
        })
    }

    /// Reads a row.
    ///
    /// # Errors
    /// A field is not in the form of the traces.
    pub(crate) fn read(&self, row: &Row<'_>) -> Result<Record, CellError> {
        let phase = row.optional(self.phase.as_ref())?;
        let scheduled_s = row.parse(&self.scheduled, time_s)?;
        let (Some(started_s), false) = (scheduled_s, phase == Some("Pending")) else {
            return Ok(Record::NeverStarted);
        };
        let mut total = Amounts::new();
        total.set(Resource::Cpu, row.parse(&self.cpu, number)?);
        total.set(Resource::Memory, row.parse(&self.memory, number)? << 20);
        total.set(Resource::Gpu, self.gpu_milli(row)?);
        if total.is_empty() {
            return Ok(Record::WithoutResources);
        }
        let created_s = row.parse(&self.created, |text| time_s(text)?.ok_or("is no time"))?;
        let run_s = row.parse(&self.deleted, |text| {
            let deleted_s = time_s(text)?.ok_or("is no time; each pod ends")?;
            u64::try_from(deleted_s - started_s).map_err(|_| "is before scheduled_time")
        })?;
        Ok(Record::Job(Box::new(PastJob {
            id: row.text(&self.name)?.to_owned(),
            tenant: row.text(&self.qos)?.to_owned(),
            submitted_s: created_s.min(started_s),
            started_s,
            run_s,
            nodes: 1,
            total,
            gpu_models: self.models(row)?,
            limit_s: None,
            is_running: false,
        })))
    }

    fn gpu_milli(&self, row: &Row<'_>) -> Result<u64, CellError> {
        let gpus = row.parse(&self.gpus, number)?;
        let milli = match gpus {
            0 => 0,
            _ => row.parse(&self.gpu_milli, number)?,
        };
        Ok(gpus * milli.min(1_000))
    }

    fn models(&self, row: &Row<'_>) -> Result<Vec<String>, CellError> {
        let models = row.optional(self.models.as_ref())?.unwrap_or_default();
        let models = models.split('|').filter(|model| !is_absent(model));
        Ok(models.map(str::to_ascii_lowercase).collect())
    }
}

/// No amount of the traces comes near; sums stay exact.
const MOST: u64 = 1 << 32;

fn number(text: &str) -> Result<u64, &'static str> {
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    let number = whole.parse().ok().filter(|number| *number <= MOST);
    number.ok_or("is no whole number")
}

#[cfg(test)]
mod tests {
    use super::super::table::Table;
    use super::*;

    const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0001,12000,16384,1,220,,BE,Running,100,1900,140
openb-pod-0002,88000,327680,8,1000,V100M16|V100M32,Burstable,Succeeded,200,300,200.0
openb-pod-0003,4000,8192,0,0,nan,LS,Pending,300,400,
openb-pod-0004,4000,8192,0,0,nan,LS,Failed,300,250,300
";

    #[test]
    fn pods_read() {
        let mut table = Table::open(PODS.as_bytes(), b',', HOW).expect("a table");
        let columns = Columns::of(table.header()).expect("columns");
        let mut next = || {
            let row = table
                .next()
                .expect("readable")
                .expect("a row")
                .expect("fields");
            columns.read(&row).map_err(|error| error.on(row.line()))
        };
        let Ok(Record::Job(shared)) = next() else {
            panic!("a pod with a part of a GPU");
        };
        let total = "cpu=12,memory=16Gi,gpu=220m".parse().expect("amounts");
        assert_eq!(
            (shared.total, shared.run_s, shared.tenant.as_str()),
            (total, 1_760, "BE")
        );
        let Ok(Record::Job(whole)) = next() else {
            panic!("a pod with eight GPUs");
        };
        assert_eq!(whole.total.get(&Resource::Gpu), 8_000);
        assert_eq!(whole.gpu_models, ["v100m16", "v100m32"]);
        assert_eq!(next().expect("reads"), Record::NeverStarted);
        let error = next().expect_err("it ends before its start").to_string();
        assert!(
            error.contains("line 5, column deletion_time: \"250\" is before"),
            "{error}"
        );
    }
}
