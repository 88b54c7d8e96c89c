//! How each process used a device, millisecond by millisecond.

use std::collections::HashMap;

use super::device_time::{process_number, process_totals};
use super::file::Locked;
use super::layout::life;
use crate::os::clock;

/// A millisecond in which kernels or fills of a process ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Millisecond {
    /// The PID that the process itself sees.
    pub pid: u32,
    /// Number of the millisecond, on the monotonic clock.
    pub ms: u64,
    /// How long the multiprocessors were busy for the process in this millisecond, in nanoseconds.
    pub busy_ns: u32,
}

/// How much a process used a device since it joined the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessTotals {
    /// The PID that the process itself sees.
    pub pid: u32,
    /// How long kernels of the process ran, in nanoseconds.
    pub busy_ns: u64,
    /// Durations of all finished kernels of the process together, in nanoseconds.
    pub kernel_ns: u64,
    /// Number of finished kernels of the process.
    pub launches: u64,
}

impl Locked<'_> {
    /// Calls `give` with every busy millisecond of every process, from millisecond `from` to the present. Returns the first
    /// millisecond that is not over. The state keeps one minute.
    pub fn course(&mut self, device: usize, from: u64, mut give: impl FnMut(Millisecond)) -> u64 {
        let known = self.processes.iter().filter(|process| process.life != life::FREE);
        let pids: HashMap<u32, u32> =
            known.map(|process| (process_number(process.serial), process.pid)).collect();
        let engine = self.engine(device);
        let mut clients = HashMap::new();
        engine.each_removed(|client| {
            clients.insert(client.id.serial(), client.pid);
        });
        engine.each_client(clock::now(), |client| {
            clients.insert(client.id.serial(), client.pid);
        });
        engine.each_span(from, |serial, ms, busy_ns| {
            let pid = clients.get(&serial).and_then(|number| pids.get(number)).copied();
            give(Millisecond { pid: pid.unwrap_or(0), ms, busy_ns });
        })
    }

    /// Returns the figures of all processes up to now. Dead processes are included.
    pub fn process_totals(&mut self, device: usize) -> Vec<ProcessTotals> {
        let known = self.processes.iter().enumerate().filter(|(_, process)| process.life != life::FREE);
        let known: Vec<_> = known.map(|(slot, process)| (slot, process.serial, process.pid)).collect();
        let mut all = Vec::new();
        for (slot, serial, pid) in known {
            let now = process_totals(self.engine(device), serial);
            let Some(gone) = self.usage(slot, device) else { continue };
            all.push(ProcessTotals {
                pid,
                busy_ns: gone.busy_ns.saturating_add(now.busy_ns),
                kernel_ns: gone.kernel_ns.saturating_add(now.kernel_ns),
                launches: gone.launches.saturating_add(now.launches),
            });
        }
        all
    }
}
