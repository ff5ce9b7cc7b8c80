//! The library's cost of a launch: alternating bursts through the library and past it in one process.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::cuda::{Cuda, check};

const BURST: u32 = 512;
/// Without this variable the library replaces nothing.
const SOCKET: &str = "DORMOUSE_GPU_SOCKET";

/// Medians, and quartiles of the differences, in tenths of a nanosecond.
pub fn paired(rounds: u64) -> Result<()> {
    let held = Cuda::load(false)?;
    held.on(0)?;
    let socket = std::env::var_os(SOCKET);
    // SAFETY: the library's own thread does not read the environment.
    unsafe { std::env::remove_var(SOCKET) };
    let direct = Cuda::load(false)?;
    if let Some(socket) = socket {
        // SAFETY: as above.
        unsafe { std::env::set_var(SOCKET, socket) };
    }
    ensure!(
        std::env::var_os("LD_PRELOAD").is_none() || held.launch as usize != direct.launch as usize,
        "the library does not stand before the driver"
    );
    let kernel = held.kernel(0)?;
    let stream = held.stream()?;
    let burst = |cuda: &Cuda| -> Result<i64> {
        let null = std::ptr::null_mut();
        let begun = Instant::now();
        for _ in 0..BURST {
            // SAFETY: a kernel without arguments.
            let result = unsafe { (cuda.launch)(kernel, 1, 1, 1, 1, 1, 1, 0, stream, null, null) };
            check("cuLaunchKernel", result)?;
        }
        let tenths = begun.elapsed().as_nanos() * 10 / u128::from(BURST);
        held.synchronise()?;
        Ok(i64::try_from(tenths)?)
    };
    let (mut without, mut with, mut differences) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let (first, second) = match round % 2 {
            0 => (&direct, &held),
            _ => (&held, &direct),
        };
        let (first, second) = (burst(first)?, burst(second)?);
        let (past, through) = match round % 2 {
            0 => (first, second),
            _ => (second, first),
        };
        // Skips the wait for the token and one-time setup.
        if round >= rounds / 10 {
            without.push(past);
            with.push(through);
            differences.push(through - past);
        }
    }
    println!(
        "past {} through {}",
        part(&mut without, 2),
        part(&mut with, 2)
    );
    println!(
        "added {} quartiles {} {}",
        part(&mut differences, 2),
        part(&mut differences, 1),
        part(&mut differences, 3)
    );
    Ok(())
}

fn part(values: &mut [i64], quarter: usize) -> i64 {
    values.sort_unstable();
    let at = values.len().saturating_sub(1) * quarter / 4;
    values.get(at).copied().unwrap_or(0)
}
