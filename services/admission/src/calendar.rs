//! Changes that time makes: the levels of budgets and the phases of reservations.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::budget::HOUR_MS;
use dormouse_messages::events::{BudgetLevelChanged, ReservationPhaseChanged};
use dormouse_messages::reservation::Occurrence;
use dormouse_messages::{Amounts, NodeId, Proposal, Timestamp};
use dormouse_state::{ClusterState, Node, ReservationState};

/// Returns at most `most` changes that are due, and the time of the next one.
pub fn changes(
    state: &ClusterState,
    now: Timestamp,
    most: usize,
) -> (Vec<Proposal>, Option<Timestamp>) {
    let due = levels(state, now).chain(phases(state, now));
    let budgets = state.budgets.iter();
    let levels = budgets.filter_map(|(_, spending)| spending.at(now).next_change());
    let reservations = state.reservations.iter();
    let phases = reservations.filter_map(|(_, it)| it.settings.next_change(now));
    (due.take(most).collect(), levels.chain(phases).min())
}

fn levels(state: &ClusterState, now: Timestamp) -> impl Iterator<Item = Proposal> {
    state.budgets.iter().filter_map(move |(tenant, before)| {
        let spending = before.at(now);
        let level = spending.level_now();
        let spent = spending.most_spent().filter(|_| level != before.level)?;
        let hours =
            |amount_ms: u128| u64::try_from(amount_ms / u128::from(HOUR_MS)).unwrap_or(u64::MAX);
        let event = BudgetLevelChanged {
            tenant: tenant.clone(),
            level,
            used: hours(spent.used),
            budget: hours(spent.limit),
            resource: spent.resource.name().to_owned(),
            until: spending.until,
            basis: None,
        };
        Some(Proposal::new(event, spending.configured))
    })
}

fn phases(state: &ClusterState, now: Timestamp) -> impl Iterator<Item = Proposal> {
    // Nodes chosen by this decision, with their time.
    let mut chosen: Vec<(Occurrence, Vec<NodeId>)> = Vec::new();
    state.reservations.iter().filter_map(move |(name, it)| {
        let occurrence = it.settings.occurrence(now);
        if it.occurrence == Some(occurrence) && !it.reconfigured {
            return None;
        }
        let others = state
            .reservations
            .iter()
            .filter(|(other, _)| *other != name);
        let others = others.map(|(_, other)| {
            let named = other.settings.nodes.iter().chain(&other.nodes);
            (other.settings.occurrence(now), named.cloned().collect())
        });
        let others = others.chain(chosen.iter().cloned());
        let taken: BTreeSet<NodeId> = others
            .filter(|(other, _): &(Occurrence, Vec<NodeId>)| overlap(*other, occurrence))
            .flat_map(|(_, nodes)| nodes)
            .collect();
        let nodes = nodes(state, it, occurrence, &taken);
        chosen.push((occurrence, nodes.clone()));
        let event = ReservationPhaseChanged {
            reservation: name.clone(),
            phase: occurrence.phase,
            nodes,
            from: occurrence.from,
            until: occurrence.until,
            basis: None,
        };
        Some(Proposal::new(event, it.configured))
    })
}

fn overlap(one: Occurrence, other: Occurrence) -> bool {
    one.from < other.until && other.from < one.until
}

/// Returns the nodes of an occurrence. Those of an amount are chosen for each, and again if one is not usable
/// any more: nodes that no other reservation has then, first those that it has, then those with the fewest
/// containers that cannot move, until they have the amount.
fn nodes(
    state: &ClusterState,
    it: &ReservationState,
    now: Occurrence,
    taken: &BTreeSet<NodeId>,
) -> Vec<NodeId> {
    let settings = &it.settings;
    if !settings.nodes.is_empty() {
        return settings.nodes.iter().cloned().collect();
    }
    let same = it.occurrence.is_some_and(|before| before.from == now.from);
    let usable = |node: &NodeId| state.nodes.is_usable(node);
    if same && !it.reconfigured && it.nodes.iter().all(usable) {
        return it.nodes.clone();
    }
    let pinned = pinned(state);
    let has_any = |node: &Node| {
        let mut resources = settings.amounts.iter();
        resources.any(|(resource, _)| node.capacity.get(resource) > 0)
    };
    let mut usable: Vec<(&NodeId, &Node)> = state
        .nodes
        .usable()
        .filter(|(name, node)| has_any(node) && !taken.contains(*name))
        .collect();
    usable.sort_by_key(|(name, _)| {
        let has = it.nodes.contains(name);
        (!has, pinned.get(name).copied().unwrap_or(0), *name)
    });
    let mut sum = Amounts::new();
    let lacks = |sum: &Amounts| settings.amounts.first_short(sum, 1).is_some();
    let mut chosen = Vec::new();
    for (name, node) in usable {
        if !lacks(&sum) {
            break;
        }
        sum.add(&node.capacity, 1);
        chosen.push(name.clone());
    }
    chosen.sort();
    chosen
}

/// Counts the containers that cannot move, by node.
fn pinned(state: &ClusterState) -> BTreeMap<&NodeId, u32> {
    let mut pinned = BTreeMap::new();
    let fixed = state.jobs.values().filter(|job| !job.is_adjustable());
    for (node, _) in fixed.flat_map(|job| job.held()) {
        *pinned.entry(node).or_insert(0) += 1;
    }
    pinned
}
