//! Changes that time makes: the levels of budgets and the phases of reservations.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::budget::{BudgetLevel, whole_hours};
use dormouse_messages::events::{BudgetLevelChanged, ReservationPhaseChanged};
use dormouse_messages::reservation::Occurrence;
use dormouse_messages::{Amounts, NodeId, Proposal, TenantId, Timestamp};
use dormouse_state::{ClusterState, Node, ReservationState, Spending};

/// Returns at most `most` changes that are due, and the time of the next one.
pub fn changes(
    state: &ClusterState,
    now: Timestamp,
    most: usize,
) -> (Vec<Proposal>, Option<Timestamp>) {
    let budgets = state.budgets.iter();
    let budgets: Vec<_> = budgets
        .map(|(tenant, before)| (tenant, before.level, before.at(now)))
        .collect();
    let changed = budgets
        .iter()
        .filter_map(|(tenant, before, spending)| level(tenant, *before, spending));
    let due = changed.chain(phases(state, now));
    let levels = budgets.iter().filter_map(|(.., it)| it.next_change());
    let reservations = state.reservations.iter();
    let phases = reservations.filter_map(|(_, it)| it.settings.next_change(now));
    (due.take(most).collect(), levels.chain(phases).min())
}

/// Returns the change of a level, if the sums have another one than the log names.
fn level(tenant: &TenantId, before: BudgetLevel, spending: &Spending) -> Option<Proposal> {
    let level = spending.level_now();
    let spent = spending.most_spent().filter(|_| level != before)?;
    let event = BudgetLevelChanged {
        tenant: tenant.clone(),
        level,
        used: whole_hours(spent.used),
        budget: whole_hours(spent.limit),
        resource: spent.resource.name().to_owned(),
        until: spending.until,
        basis: None,
    };
    Some(Proposal::new(event, spending.configured))
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
