//! Events about budgets and reservations.

use dormouse_messages::budget::BudgetLevel;
use dormouse_messages::reservation::{Reservation, ReservationPhase};
use dormouse_messages::{Event, Resource};

use crate::cli::duration::Span;
use crate::commands::tenant::entitlement::budget;

fn joined<T: ToString>(names: impl Iterator<Item = T>) -> String {
    let names: Vec<String> = names.map(|it| it.to_string()).collect();
    names.join(", ")
}

/// Describes an event about a budget or a reservation.
pub fn describe(event: &Event) -> String {
    match event {
        Event::BudgetConfigured(e) => format!("{}: {}", e.tenant, budget(e)),
        Event::BudgetLevelChanged(e) => {
            let amount = |hours: u64| match Resource::from_name(&e.resource) {
                Ok(resource) => resource.display(hours),
                Err(_) => hours.to_string(),
            };
            let of = format!(
                "{} of {} {} hours",
                amount(e.used),
                amount(e.budget),
                e.resource
            );
            match e.level {
                BudgetLevel::Open => format!("{} has budget again: {of} used", e.tenant),
                BudgetLevel::Warned => format!("{} has used 80 % of its budget: {of}", e.tenant),
                BudgetLevel::Used => format!("{} has used its budget: {of}", e.tenant),
            }
        }
        Event::ReservationConfigured(e) => {
            format!("{}: {}", e.reservation, reservation(&e.settings))
        }
        Event::ReservationRemoved(e) => e.reservation.to_string(),
        Event::ReservationPhaseChanged(e) => {
            let nodes = joined(e.nodes.iter());
            match e.phase {
                ReservationPhase::Planned => {
                    format!(
                        "{} comes at {} on {nodes}",
                        e.reservation,
                        e.from.to_words()
                    )
                }
                ReservationPhase::Approaching => format!(
                    "{} comes at {}: other jobs leave {nodes}",
                    e.reservation,
                    e.from.to_words()
                ),
                ReservationPhase::Active => {
                    format!("{} has {nodes} until {}", e.reservation, e.until.to_words())
                }
                ReservationPhase::Over => format!("{} is over", e.reservation),
            }
        }
        _ => String::new(),
    }
}

/// Describes the settings of a reservation.
#[must_use]
pub fn reservation(settings: &Reservation) -> String {
    let what = if settings.nodes.is_empty() {
        settings.amounts.to_string()
    } else {
        joined(settings.nodes.iter())
    };
    let span = |seconds: u64| Span(std::time::Duration::from_secs(seconds));
    let every = settings
        .every_s
        .map(|every| format!(", every {}", span(every)));
    let tenants = settings.tenants.iter().map(ToString::to_string);
    let jobs = settings.jobs.iter().map(ToString::to_string);
    let whom = match joined(tenants.chain(jobs)) {
        nobody if nobody.is_empty() => "nobody".to_owned(),
        whom => whom,
    };
    format!(
        "{what} from {} for {}{} for {whom}",
        settings.from.to_words(),
        span(settings.length_s),
        every.unwrap_or_default()
    )
}
