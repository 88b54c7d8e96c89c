//! The state that the engine of a device keeps for the contexts of a process.

use crate::engine::{ClientId, ClientTruth, EngineState};
use crate::os::clock;

/// The figures of several contexts together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClientTotals {
    /// How long the contexts used the multiprocessors, in nanoseconds.
    pub(crate) busy_ns: u64,
    /// Durations of all kernels together, in nanoseconds.
    pub(crate) kernel_ns: u64,
    /// Number of kernels.
    pub(crate) launches: u64,
}

/// Returns the number by which the engine knows a process. A PID may be reused, but this number never is.
pub(crate) fn process_number(serial: u64) -> u32 {
    u32::try_from(serial & u64::from(u32::MAX)).unwrap_or(0)
}

impl ClientTotals {
    fn and(self, other: &ClientTruth) -> Self {
        Self {
            busy_ns: self.busy_ns.saturating_add(other.busy_ns),
            kernel_ns: self.kernel_ns.saturating_add(other.kernel_ns),
            launches: self.launches.saturating_add(other.launches),
        }
    }
}

/// Returns the figures of all living contexts of a process together.
pub(crate) fn process_totals(engine: &mut EngineState, serial: u64) -> ClientTotals {
    let mut done = ClientTotals::default();
    engine.each_client(clock::now(), |client| {
        if client.pid == process_number(serial) {
            done = done.and(&client);
        }
    });
    done
}

/// Returns how long the multiprocessors of a device were busy, in nanoseconds.
pub(crate) fn device_busy(engine: &mut EngineState) -> u64 {
    engine.device_truth(clock::now()).busy_ns
}

/// Removes all contexts of a dead process from a device, and returns their figures.
pub(crate) fn remove_process(engine: &mut EngineState, serial: u64) -> ClientTotals {
    let done = process_totals(engine, serial);
    let mut clients = Vec::new();
    engine.each_client(clock::now(), |client| {
        if client.pid == process_number(serial) {
            clients.push(client.id);
        }
    });
    for client in clients {
        let _ = engine.remove_client(client, clock::now());
    }
    done
}

/// Removes one context from a device, and returns its figures.
pub(crate) fn remove_client(engine: &mut EngineState, client: ClientId) -> ClientTotals {
    let now = clock::now();
    let Ok(truth) = engine.client_truth(client, now) else { return ClientTotals::default() };
    let _ = engine.remove_client(client, now);
    ClientTotals::default().and(&truth)
}

/// Repairs an engine after a process died while it changed the engine.
pub(crate) fn repair(engine: &mut EngineState) {
    engine.repair(clock::now());
}
