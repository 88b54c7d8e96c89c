//! The contexts of a process in the engine of a device.

use crate::engine::{ClientId, ClientTruth, EngineState};
use crate::os::clock;

/// Figures of removed contexts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClientTotals {
    /// Time on the multiprocessors, in nanoseconds.
    pub(crate) busy_ns: u64,
    /// Durations of all kernels, in nanoseconds.
    pub(crate) kernel_ns: u64,
    /// Number of kernels.
    pub(crate) launches: u64,
}

/// Returns the number by which the engine knows a process. Unlike a PID it is never reused.
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

/// Returns the figures of a process's living contexts.
pub(crate) fn process_totals(engine: &mut EngineState, serial: u64) -> ClientTotals {
    let mut done = ClientTotals::default();
    engine.each_client(clock::now(), |client| {
        if client.pid == process_number(serial) {
            done = done.and(&client);
        }
    });
    done
}

/// Returns the busy time of a device's multiprocessors, in nanoseconds.
pub(crate) fn device_busy(engine: &mut EngineState) -> u64 {
    engine.device_truth(clock::now()).busy_ns
}

/// Removes a dead process's contexts from a device.
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

/// Removes one context from a device.
pub(crate) fn remove_client(engine: &mut EngineState, client: ClientId) -> ClientTotals {
    let now = clock::now();
    let Ok(truth) = engine.client_truth(client, now) else { return ClientTotals::default() };
    let _ = engine.remove_client(client, now);
    ClientTotals::default().and(&truth)
}

/// Repairs an engine after a process died while it changed it.
pub(crate) fn repair(engine: &mut EngineState) {
    engine.repair(clock::now());
}
