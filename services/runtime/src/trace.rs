//! W3C trace contexts: parsed, formatted, and remembered by sequence.

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// Recent events that can be a parent or link.
const REMEMBERED: usize = 100_000;

pub(crate) fn parse(traceparent: &str) -> Option<SpanContext> {
    let mut parts = traceparent.split('-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if version.len() != 2 || trace.len() != 32 || span.len() != 16 {
        return None;
    }
    let context = SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(span).ok()?,
        TraceFlags::new(u8::from_str_radix(flags.get(..2)?, 16).ok()?),
        true,
        TraceState::NONE,
    );
    context.is_valid().then_some(context)
}

pub(crate) fn format(context: &SpanContext) -> String {
    format!(
        "00-{}-{}-{:02x}",
        context.trace_id(),
        context.span_id(),
        context.trace_flags().to_u8()
    )
}

/// The last trace contexts; a ring bounds the memory.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    ring: Vec<(u64, Packed)>,
}

type Packed = (TraceId, SpanId, u8, bool);

#[derive(Debug, Clone)]
pub(crate) struct Cause {
    pub context: SpanContext,
    /// True if the flag is a sampling decision; a command's is not.
    pub decides: bool,
}

impl Cause {
    pub fn published(traceparent: &str) -> Option<Self> {
        let decides = true;
        parse(traceparent).map(|context| Self { context, decides })
    }
}

impl Remembered {
    pub fn insert(&mut self, sequence: u64, traceparent: &str, decides: bool) {
        let Some(context) = parse(traceparent) else {
            return;
        };
        if self.ring.is_empty() {
            self.ring = vec![(0, (TraceId::INVALID, SpanId::INVALID, 0, false)); REMEMBERED];
        }
        let packed = (
            context.trace_id(),
            context.span_id(),
            context.trace_flags().to_u8(),
            decides,
        );
        if let Some(place) = self.ring.get_mut(slot(sequence)) {
            *place = (sequence, packed);
        }
    }

    pub fn get(&self, sequence: u64) -> Option<Cause> {
        let (kept, (trace, span, flags, decides)) = *self.ring.get(slot(sequence))?;
        let flags = TraceFlags::new(flags);
        (kept == sequence && sequence != 0).then(|| Cause {
            context: SpanContext::new(trace, span, flags, true, TraceState::NONE),
            decides,
        })
    }
}

fn slot(sequence: u64) -> usize {
    usize::try_from(sequence % REMEMBERED as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_reads_back() {
        let context = parse(TRACEPARENT).expect("valid");
        assert_eq!(format(&context), TRACEPARENT);
        for wrong in [
            "",
            "00",
            "00-0-0-0",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        ] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn old_contexts_are_forgotten() {
        let mut remembered = Remembered::default();
        remembered.insert(5, TRACEPARENT, true);
        assert!(remembered.get(5).is_some());
        assert!(remembered.get(4).is_none());
        remembered.insert(5 + REMEMBERED as u64, TRACEPARENT, true);
        assert!(remembered.get(5).is_none());
    }
}
