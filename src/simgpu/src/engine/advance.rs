//! The event loop: moves the device from one instant to a later one, and charges the time to clients.

use super::layout::EngineState;
use super::table::Link;

/// The device's clock stops at this instant, a century and a half after its start. Work without an end ends later than that.
pub(super) const END_OF_TIME: u64 = 1 << 62;

impl EngineState {
    /// Moves the device to an instant of the caller's monotonic clock. An instant in the past changes nothing. So the caller may
    /// read its clock before it takes the lock.
    ///
    /// The result depends only on the times at which work was enqueued, and not on the number of calls. The cost grows with the
    /// completed items and the ended slices. Idle time costs nothing.
    pub(crate) fn advance(&mut self, now_ns: u64) {
        let now_ns = now_ns.min(END_OF_TIME);
        if self.clock == 0 {
            self.clock = now_ns;
            self.start_sampling();
        }
        loop {
            self.settle();
            let next = self.next_change();
            if next > now_ns {
                break;
            }
            self.pass(next);
            self.finish_kernels();
            self.finish_copies();
            self.look_at_marked();
            self.end_slice();
        }
        self.pass(now_ns);
    }

    /// Returns the instant that the state describes. It is the latest instant to which a caller has advanced the state.
    #[must_use]
    pub(crate) fn clock_ns(&self) -> u64 {
        self.clock
    }

    /// Starts all work that can start at the clock's instant.
    pub(super) fn settle(&mut self) {
        self.look_at_marked();
        self.start_copies();
        self.schedule();
    }

    /// Returns the instant of the next change that needs no call. Returns the largest number if there is none.
    pub(super) fn next_change(&self) -> u64 {
        self.next_compute().min(self.next_copy()).max(self.clock)
    }

    /// Advances the clock over a time in which only samples are taken.
    fn pass(&mut self, to: u64) {
        while self.sample_at <= to {
            if self.skip_samples(to) {
                break;
            }
            self.accrue(self.sample_at);
            self.take_sample();
        }
        self.accrue(to);
    }

    /// Returns true if any work is running.
    pub(super) fn active(&self) -> bool {
        self.clients.at(self.owner).running_count != 0 || self.engines.iter().any(|e| e.current != 0)
    }

    /// Charges the time up to `to` to the clients that use it, and sets the clock.
    pub(super) fn accrue(&mut self, to: u64) {
        if to <= self.clock {
            return;
        }
        let filling = self.accrue_compute(to);
        self.accrue_memory(to - self.clock, filling);
        self.clock = to;
    }

    /// Charges the owner of the multiprocessors. Returns the client with a running fill, and the fill's time.
    fn accrue_compute(&mut self, to: u64) -> (Link, u64) {
        let from = self.clock.max(self.resume_at);
        let owner = self.owner;
        if to <= from || owner == 0 {
            return (0, 0);
        }
        let client = self.clients.at_mut(owner);
        if client.running_count == 0 {
            return (0, 0);
        }
        let ran = to - from;
        client.busy_ns = client.busy_ns.saturating_add(ran);
        if client.running_fills < client.running_count {
            client.kernel_busy_ns = client.kernel_busy_ns.saturating_add(ran);
        }
        let (serial, fills) = (client.serial, client.running_fills);
        self.on_compute = client.pid;
        self.busy_ns = self.busy_ns.saturating_add(ran);
        self.note_busy(serial, from, to);
        if fills == 0 { (0, 0) } else { (owner, ran) }
    }

    /// Charges copies and fills. A client is charged once, even if it uses several engines.
    fn accrue_memory(&mut self, passed: u64, filling: (Link, u64)) {
        let mut seen: [Link; super::config::MAX_COPY_ENGINES] = [0; _];
        let mut longest = filling.1;
        for (engine, place) in self.engines.iter().zip(0..) {
            let client = self.streams.at(engine.current).client;
            if engine.current == 0 || seen.contains(&client) {
                continue;
            }
            if let Some(slot) = seen.get_mut::<usize>(place) {
                *slot = client;
            }
            longest = passed;
            let row = self.clients.at_mut(client);
            row.memory_busy_ns = row.memory_busy_ns.saturating_add(passed);
            self.on_memory = row.pid;
        }
        if filling.0 != 0 && !seen.contains(&filling.0) {
            let row = self.clients.at_mut(filling.0);
            row.memory_busy_ns = row.memory_busy_ns.saturating_add(filling.1);
            self.on_memory = row.pid;
        }
        self.memory_busy_ns = self.memory_busy_ns.saturating_add(longest);
    }
}
