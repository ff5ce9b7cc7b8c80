//! Arithmetic of rooms and demands, which are vectors with the same columns.

pub(crate) fn fits(demand: &[u64], room: &[u64]) -> u64 {
    let each = demand.iter().zip(room).filter(|(amount, _)| **amount > 0);
    each.map(|(amount, room)| room / amount).min().unwrap_or(0)
}

pub(crate) fn covers(demand: &[u64], room: &[u64]) -> bool {
    demand.iter().zip(room).all(|(amount, room)| amount <= room)
}

/// Takes nothing and returns false if the containers do not fit.
pub(crate) fn take(demand: &[u64], count: u32, room: &mut [u64]) -> bool {
    if fits(demand, room) < u64::from(count) {
        return false;
    }
    for (room, amount) in room.iter_mut().zip(demand) {
        *room -= amount * u64::from(count);
    }
    true
}

pub(crate) fn give(demand: &[u64], count: u32, room: &mut [u64]) {
    for (room, amount) in room.iter_mut().zip(demand) {
        *room += amount * u64::from(count);
    }
}
