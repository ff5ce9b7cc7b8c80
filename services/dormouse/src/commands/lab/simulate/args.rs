//! Arguments of `lab simulate`.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use dormouse_replay::scenario::dynamoml::Configuration;
use dormouse_replay::scenario::generate::Kind;
use dormouse_replay::scenario::settings::Setting;
use dormouse_replay::serving::traces::Kind as Trace;

use crate::cli::duration::between;

/// Simulate a cluster: the real services over a virtual clock
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse lab simulate scenario.json\n  dormouse lab simulate scenario.json --policy static,dorm-3,default --report report.html\n  dormouse lab simulate scenario.json --set policy.theta1=0.1,0.2 --set costs.adjustment_s=60 -o json\n  dormouse lab simulate table2:1..20 --policy dorm-3,default\n  dormouse lab simulate scenario.json --write-log log.parquet && dormouse log verify --log log.parquet\n  dormouse lab simulate --generate trace --seed 7 --jobs 5000 --nodes 100 > trace.json\n  dormouse lab simulate --faults 1..100\n  dormouse lab simulate serving:a serving:b serving:c --seeds 1..10"
)]
pub struct SimulateArgs {
    /// Scenario files, - for standard input, or table2:SEEDS and trace:SEEDS for generated ones.
    /// serving:TRACE compares scaling rules of services on the traces a, b, c, constant, steps, bursts and
    /// day. dynamoml:all, :sharing, :scaling and :none are the experiment of the DynamoML paper; gains are
    /// relative to the last one named.
    #[arg(value_name = "SCENARIO", required_unless_present_any = ["generate", "faults"])]
    pub scenarios: Vec<Source>,
    /// Set a field by its dotted path; several values are simulated one by one.
    #[arg(long = "set", value_name = "PATH=VALUE[,VALUE…]")]
    pub settings: Vec<Setting>,
    /// Policies to compare: scenario (its own), default, static, drf, dorm-1, dorm-2, dorm-3.
    #[arg(long = "policy", value_name = "NAME", value_delimiter = ',')]
    pub policies: Vec<String>,
    /// Write the log of the simulated cluster: JSON lines, or Parquet if it ends in .parquet.
    #[arg(long, value_name = "FILE")]
    pub write_log: Option<PathBuf>,
    /// Write one page that compares the runs, with charts.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Check every service's invariants after every event.
    #[arg(long)]
    pub check: bool,
    /// Parallel simulations; default: the number of processors.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Print a generated scenario instead: table2 (the Dorm paper's evaluation) or trace.
    #[arg(long, value_name = "KIND", conflicts_with_all = ["scenarios", "faults"])]
    pub generate: Option<Kind>,
    /// Seed of the generated scenario.
    #[arg(long, default_value_t = 1, requires = "generate")]
    pub seed: u64,
    #[command(flatten)]
    pub size: SizeArgs,
    /// Seeds of serving:TRACE.
    #[arg(long, default_value = "1..10", value_name = "SEED[..SEED]")]
    pub seeds: Seeds,
    /// Time until a replica of serving:TRACE is ready.
    #[arg(
        long = "start",
        default_value = "15s,60s",
        value_delimiter = ',',
        value_name = "TIME",
        value_parser = start
    )]
    pub starts: Vec<f64>,
    /// Disturb the cluster by crashes, delays, lost nodes and failing checkpoints of each seed. Without a
    /// SCENARIO the seed also chooses cluster and jobs.
    #[arg(long, value_name = "SEED[..SEED]")]
    pub faults: Option<Seeds>,
    /// With --faults: the log also rolls back once or twice, as after a power failure.
    #[arg(long, requires = "faults", conflicts_with = "scenarios")]
    pub log_goes_back: bool,
}

/// Size of a generated trace.
#[derive(Debug, Clone, Copy, Args)]
pub struct SizeArgs {
    /// Jobs of a generated trace.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: u32,
    /// Nodes of a generated trace.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes: u32,
    /// Time over which the jobs of a generated trace arrive.
    #[arg(long, default_value = "7d", value_name = "TIME", value_parser = period)]
    pub period: Duration,
}

fn period(text: &str) -> Result<Duration, String> {
    between(
        text,
        Duration::from_millis(1)..=Duration::from_hours(24 * 36_500),
    )
}

fn start(text: &str) -> Result<f64, String> {
    between(text, Duration::ZERO..=Duration::from_mins(10)).map(|start| start.as_secs_f64())
}

impl SimulateArgs {
    /// Returns the selected service traces.
    ///
    /// # Errors
    /// If other scenarios are named with them.
    pub fn served(&self) -> anyhow::Result<Option<Vec<Trace>>> {
        let traces = self.scenarios.iter().filter_map(|source| match source {
            Source::Served(trace) => Some(*trace),
            Source::File(_) | Source::Generated(..) | Source::Experiment(_) => None,
        });
        let traces: Vec<Trace> = traces.collect();
        if !traces.is_empty() && traces.len() < self.scenarios.len() {
            anyhow::bail!(
                "serving:TRACE is compared with its like only; leave the other scenarios out"
            );
        }
        Ok(Some(traces).filter(|traces| !traces.is_empty()))
    }
}

/// One seed, or an inclusive range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seeds(pub RangeInclusive<u64>);

impl std::str::FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a seed such as 7, or a range such as 1..20");
        let number = |text: &str| text.parse().map_err(|_| wrong());
        match text.split_once("..") {
            None => number(text).map(|seed| Self(seed..=seed)),
            Some((from, to)) => {
                let seeds = number(from)?..=number(to.trim_start_matches('='))?;
                if seeds.is_empty() {
                    return Err(format!("{text:?} is an empty range"));
                }
                Ok(Self(seeds))
            }
        }
    }
}

impl std::fmt::Display for Seeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.start() == self.0.end() {
            write!(f, "{}", self.0.start())
        } else {
            write!(f, "{}..{}", self.0.start(), self.0.end())
        }
    }
}

impl SimulateArgs {
    /// Returns the scenario files.
    pub fn read(&self) -> Vec<&Path> {
        let read = self.scenarios.iter().filter_map(|source| match source {
            Source::File(file) => Some(file.as_path()),
            _ => None,
        });
        read.collect()
    }
}

/// The origin of scenarios.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    File(PathBuf),
    Generated(Kind, Seeds),
    Served(Trace),
    Experiment(Configuration),
}

impl std::str::FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("serving", trace)) => Ok(Self::Served(trace.parse()?)),
            Some(("dynamoml", configuration)) => Ok(Self::Experiment(configuration.parse()?)),
            Some((kind, seeds)) if kind.parse::<Kind>().is_ok() => {
                Ok(Self::Generated(kind.parse()?, seeds.parse()?))
            }
            _ => Ok(Self::File(text.into())),
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Served(trace) => write!(f, "serving:{}", trace.as_str()),
            Self::Experiment(configuration) => write!(f, "dynamoml:{}", configuration.as_str()),
            Self::Generated(Kind::Table2, seeds) => write!(f, "table2:{seeds}"),
            Self::Generated(Kind::Trace, seeds) => write!(f, "trace:{seeds}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_and_sources_read() {
        assert_eq!("3..5".parse(), Ok(Seeds(3..=5)));
        assert_eq!("3..=5".parse(), Ok(Seeds(3..=5)));
        assert_eq!("7".parse(), Ok(Seeds(7..=7)));
        assert!("5..3".parse::<Seeds>().is_err());
        assert!("x".parse::<Seeds>().is_err());
        let generated = Source::Generated(Kind::Table2, Seeds(1..=2));
        assert_eq!("table2:1..2".parse(), Ok(generated));
        assert_eq!("serving:b".parse(), Ok(Source::Served(Trace::B)));
        assert!("serving:x".parse::<Source>().is_err());
        let plain = Source::Experiment(Configuration::None);
        assert_eq!("dynamoml:none".parse(), Ok(plain));
        assert!("dynamoml:some".parse::<Source>().is_err());
        assert_eq!("a:b.json".parse(), Ok(Source::File("a:b.json".into())));
    }
}
