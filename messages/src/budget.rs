//! A tenant's budget: amounts times hours in a period, and what happens when they are used.

use std::fmt;
use std::str::FromStr;

use jiff::Span;
use jiff::civil::Weekday;
use jiff::tz::Offset;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Resource;
use crate::quota::Quota;
use crate::time::Timestamp;

/// Milliseconds of an hour: budgets are written in hours and counted in milliseconds.
pub const HOUR_MS: u64 = 3_600_000;

/// The part of a budget that is warned of, in percent.
pub const WARNED_PERCENT: u128 = 80;

/// The time after which a budget begins again. Periods begin at midnight UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    Day,
    /// From Monday.
    Week,
    Month,
    Year,
    /// Never begins again.
    Once,
}

/// The consequence of a used budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AtLimit {
    /// The log says so.
    Warn,
    /// No further job starts and no running job grows.
    #[default]
    Queue,
    /// As `queue`, and training and batch jobs save and stop until the next period.
    Preempt,
}

impl AtLimit {
    /// Describes the consequence to a person.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Warn => "then a warning",
            Self::Queue => "then no further job starts",
            Self::Preempt => "then training and batch jobs stop",
        }
    }
}

/// A tenant's budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantBudget {
    /// Amounts times hours.
    pub hours: Quota,
    /// The time in which they may be used.
    pub period: Period,
    /// The rest, at most one period's, adds to the next period; an excess is taken from it.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub carry: bool,
    /// The consequence when they are used.
    pub at_limit: AtLimit,
}

/// The use of a budget that the log names.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum BudgetLevel {
    /// Below 80 %.
    #[default]
    Open,
    /// 80 % or more of one resource.
    Warned,
    /// All of one resource.
    Used,
}

const PERIODS: [(&str, Period); 5] = [
    ("day", Period::Day),
    ("week", Period::Week),
    ("month", Period::Month),
    ("year", Period::Year),
    ("once", Period::Once),
];

impl Period {
    /// Returns the word of documents and flags.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
            Self::Once => "once",
        }
    }

    /// Returns the period's beginning and end around `at`; [`Period::Once`] begins at `at` and has no end.
    #[must_use]
    pub fn around(self, at: Timestamp) -> (Timestamp, Option<Timestamp>) {
        self.of_calendar(at).unwrap_or((at, None))
    }

    fn of_calendar(self, at: Timestamp) -> Option<(Timestamp, Option<Timestamp>)> {
        let at = jiff::Timestamp::from_microsecond(at.as_micros()).ok()?;
        let date = Offset::UTC.to_datetime(at).date();
        let (from, length) = match self {
            Self::Day => (date, Span::new().days(1)),
            Self::Week => {
                let since = date.weekday().since(Weekday::Monday);
                let monday = date.checked_sub(Span::new().days(i64::from(since))).ok()?;
                (monday, Span::new().weeks(1))
            }
            Self::Month => (date.first_of_month(), Span::new().months(1)),
            Self::Year => (date.first_of_year(), Span::new().years(1)),
            Self::Once => return None,
        };
        let until = Timestamp::in_utc(from.checked_add(length).ok()?)?;
        Some((Timestamp::in_utc(from)?, Some(until)))
    }
}

impl FromStr for TenantBudget {
    type Err = String;

    /// Parses `gpu=10000h/month` or `gpu=100h,cpu=2000h/week`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!(
                "{text:?} is no budget such as gpu=10000h/month or gpu=100h,cpu=2000h/week: {why}"
            )
        };
        let (hours, period) = text
            .rsplit_once('/')
            .ok_or_else(|| wrong("write its period after a slash"))?;
        let known = PERIODS.iter().find(|(name, _)| *name == period);
        let (_, period) =
            known.ok_or_else(|| wrong("its period is day, week, month, year or once"))?;
        let part = |part: &str| {
            let part = part.trim();
            part.strip_suffix('h')
                .map(str::to_owned)
                .ok_or_else(|| wrong("write hours with an h behind each amount"))
        };
        let parts: Result<Vec<String>, String> = hours.split(',').map(part).collect();
        let hours: Quota = parts?
            .join(",")
            .parse()
            .map_err(|error| wrong(&format!("{error}")))?;
        if hours.is_empty() {
            return Err(wrong("name a resource"));
        }
        Ok(Self {
            hours,
            period: *period,
            carry: false,
            at_limit: AtLimit::default(),
        })
    }
}

/// Writes `gpu=10000h/month`.
impl fmt::Display for TenantBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (resource, hours)) in self.hours.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}={}h", resource.name(), resource.display(hours))?;
        }
        write!(f, "/{}", self.period.as_str())
    }
}

/// Returns amount-milliseconds as amounts times hours in the log's units, rounded down.
#[must_use]
pub fn whole_hours(amount_ms: u128) -> u64 {
    u64::try_from(amount_ms / u128::from(HOUR_MS)).unwrap_or(u64::MAX)
}

/// Describes amount-milliseconds as hours: `9812.5` of a GPU, `64Gi` of memory, rounded down.
#[must_use]
pub fn hours(resource: &Resource, amount_ms: u128) -> String {
    let amount = whole_hours(amount_ms);
    match resource {
        Resource::Memory => resource.display(amount >> 20 << 20),
        _ if amount < 10_000 => {
            let text = format!("{}.{:03}", amount / 1000, amount % 1000);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        _ => format!("{}.{}", amount / 1000, amount % 1000 / 100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn a_budget_reads_back() {
        for text in [
            "gpu=10000h/month",
            "cpu=2000h,gpu=0.5h/week",
            "memory=64Gih/once",
        ] {
            let budget: TenantBudget = text.parse().expect("a budget");
            let again: TenantBudget = budget.to_string().parse().expect("a budget");
            assert_eq!(budget, again, "{text}");
        }
        for text in [
            "gpu=5h",
            "gpu=5/month",
            "gpu=5h/quarter",
            "/month",
            "gpu=xh/day",
        ] {
            let error = text.parse::<TenantBudget>().expect_err(text);
            assert!(error.contains("gpu=10000h/month"), "{error}");
        }
    }

    #[test]
    fn periods_begin_at_midnight() {
        let friday = at("2028-02-25T13:00:00Z");
        let around = |period: Period| {
            let (from, until) = period.around(friday);
            let day = |it: Timestamp| it.to_string()[..10].to_owned();
            (day(from), until.map(day).unwrap_or_default())
        };
        let pair = |from: &str, until: &str| (from.to_owned(), until.to_owned());
        assert_eq!(around(Period::Day), pair("2028-02-25", "2028-02-26"));
        assert_eq!(around(Period::Week), pair("2028-02-21", "2028-02-28"));
        assert_eq!(around(Period::Month), pair("2028-02-01", "2028-03-01"));
        assert_eq!(around(Period::Year), pair("2028-01-01", "2029-01-01"));
        assert_eq!(Period::Once.around(friday), (friday, None));
    }

    #[test]
    fn hours_are_rounded_down() {
        let of = |amount_ms: u128| hours(&Resource::Gpu, amount_ms);
        assert_eq!(of(3_600_000 * 1_000), "1");
        assert_eq!(of(3_600_000 * 10), "0.01");
        assert_eq!(of(3_600_000 * 12_599), "12.5");
        let gib_hours = u128::from(HOUR_MS) << 36;
        assert_eq!(hours(&Resource::Memory, gib_hours), "64Gi");
    }
}
