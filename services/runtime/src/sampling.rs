//! Sampling of traces by `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`.
//!
//! 1. The named sampler decides about spans without a parent; a ratio, by the trace id.
//! 2. With `parentbased_…` a parent's decision counts, except a *command*'s, which sends no spans
//!    ([`Undecided`]).
//!
//! The SDK would trust every parent, and sample everything if the ratio is no number.

use std::sync::OnceLock;

use opentelemetry::trace::{Link, SpanKind, TraceContextExt, TraceId};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, SamplingResult, ShouldSample};

/// Context value: the parent has not decided about sampling.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Undecided;

#[derive(Debug, Clone)]
pub(crate) struct Sampling {
    root: Sampler,
    by_parent: bool,
}

impl Default for Sampling {
    /// OpenTelemetry's default.
    fn default() -> Self {
        Self {
            root: Sampler::AlwaysOn,
            by_parent: true,
        }
    }
}

static OWN: OnceLock<Sampling> = OnceLock::new();

impl Sampling {
    /// Parses the values of the two variables.
    ///
    /// # Errors
    /// When the values name no sampler.
    pub fn named(sampler: Option<&str>, argument: Option<&str>) -> Result<Self, String> {
        let Some(name) = sampler.map(str::trim).filter(|name| !name.is_empty()) else {
            return Ok(Self::default());
        };
        let (by_parent, root) = match name.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, name),
        };
        let root = match root {
            "always_on" => Sampler::AlwaysOn,
            "always_off" => Sampler::AlwaysOff,
            "traceidratio" => Sampler::TraceIdRatioBased(ratio(argument)?),
            _ => {
                return Err(format!(
                    "OTEL_TRACES_SAMPLER={name}: not a sampler here; use always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off or parentbased_traceidratio"
                ));
            }
        };
        Ok(Self { root, by_parent })
    }

    /// Parses the environment.
    ///
    /// # Errors
    /// As for [`Self::named`].
    pub fn of_environment() -> Result<Self, String> {
        let value = |name| std::env::var(name).ok();
        let argument = value("OTEL_TRACES_SAMPLER_ARG");
        Self::named(value("OTEL_TRACES_SAMPLER").as_deref(), argument.as_deref())
    }

    /// Installs this sampler for the process; the first one stays.
    pub fn install(self) -> &'static Self {
        OWN.get_or_init(|| self)
    }

    /// Errors of the environment do not stop a command.
    pub fn own() -> &'static Self {
        OWN.get_or_init(|| Self::of_environment().unwrap_or_default())
    }

    pub fn samples(&self, parent: &Context, trace: TraceId) -> bool {
        let result = self.should_sample(Some(parent), trace, "", &SpanKind::Producer, &[], &[]);
        result.decision == SamplingDecision::RecordAndSample
    }
}

fn ratio(argument: Option<&str>) -> Result<f64, String> {
    let said = argument.unwrap_or_default().trim();
    let ratio = said.parse().ok().filter(|it| (0.0..=1.0).contains(it));
    ratio.ok_or_else(|| {
        format!(
            "OTEL_TRACES_SAMPLER_ARG={said}: not a ratio; use a number from 0 to 1, such as 0.1"
        )
    })
}

impl ShouldSample for Sampling {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let deciding = parent.filter(|context| {
            self.by_parent
                && context.span().span_context().is_valid()
                && context.get::<Undecided>().is_none()
        });
        let sampler = match deciding.map(|context| context.span().span_context().is_sampled()) {
            None => &self.root,
            Some(true) => &Sampler::AlwaysOn,
            Some(false) => &Sampler::AlwaysOff,
        };
        sampler.should_sample(parent, trace, name, kind, attributes, links)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceState};

    fn parent(flags: TraceFlags) -> Context {
        let (trace, span) = (TraceId::from(7_u128), SpanId::from(7_u64));
        let context = SpanContext::new(trace, span, flags, true, TraceState::NONE);
        Context::new().with_remote_span_context(context)
    }

    #[track_caller]
    fn sampling(name: &str, argument: &str) -> Sampling {
        Sampling::named(Some(name), Some(argument)).expect("a sampler")
    }

    const EARLY: TraceId = TraceId::from_bytes([1; 16]);

    #[test]
    fn a_parent_decides_but_a_command_does_not() {
        let (sampled, not) = (parent(TraceFlags::SAMPLED), parent(TraceFlags::NOT_SAMPLED));
        let never = sampling("parentbased_traceidratio", "0");
        assert!(!never.samples(&Context::new(), EARLY));
        assert!(never.samples(&sampled, EARLY));
        assert!(!never.samples(&sampled.with_value(Undecided), EARLY));
        let always = Sampling::default();
        assert!(always.samples(&Context::new(), EARLY));
        assert!(!always.samples(&not, EARLY));
        assert!(always.samples(&not.with_value(Undecided), EARLY));
    }

    #[test]
    fn a_ratio_without_parents_decides_by_the_trace_alone() {
        let tenth = sampling("traceidratio", "0.1");
        let late = TraceId::from_bytes([255; 16]);
        for context in [
            Context::new(),
            parent(TraceFlags::SAMPLED),
            parent(TraceFlags::NOT_SAMPLED),
        ] {
            assert!(tenth.samples(&context, EARLY));
            assert!(!tenth.samples(&context, late));
        }
        let sampled = (0..1_000_u128)
            .filter(|it| tenth.samples(&Context::new(), TraceId::from(*it << 54 | *it)))
            .count();
        assert!((90..=110).contains(&sampled), "{sampled} of 1,000");
    }

    #[test]
    fn what_is_no_sampler_is_said() {
        let why = |name, argument| Sampling::named(Some(name), argument).expect_err("refused");
        assert!(why("jaeger_remote", None).contains("use always_on"));
        for ratio in [
            None,
            Some(""),
            Some("ten"),
            Some("10"),
            Some("NaN"),
            Some("-0.1"),
        ] {
            assert!(
                why("traceidratio", ratio).contains("a number from 0 to 1"),
                "{ratio:?}"
            );
        }
        for nothing in [None, Some(""), Some(" ")] {
            assert!(Sampling::named(nothing, Some("0")).is_ok());
        }
    }
}
