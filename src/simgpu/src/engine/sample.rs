//! Utilisation as NVML reports it: integer percent in windows, visible after a delay.

use super::layout::{
    DEVICE_SAMPLES, DeviceSample, EngineState, PROCESS_SAMPLES, PROCESS_WINDOWS, ProcessSample,
};

impl EngineState {
    /// Returns the utilisation of the device in the newest readable window at `now_ns`. It is zero before the first window.
    pub(crate) fn utilization(&mut self, now_ns: u64) -> DeviceSample {
        let mut newest = DeviceSample::default();
        self.device_samples(now_ns, 0, |sample| newest = sample);
        newest
    }

    /// Passes each sample of the device that is newer than `last_seen_us` to `give`, oldest first.
    pub(crate) fn device_samples(
        &mut self,
        now_ns: u64,
        last_seen_us: u64,
        mut give: impl FnMut(DeviceSample),
    ) {
        self.advance(now_ns);
        let visible = self.visible_us();
        let stored = &self.device_samples;
        let held = newest(self.device_sampled, DEVICE_SAMPLES).filter_map(|place| stored.get(place));
        let wanted = |s: &&DeviceSample| s.timestamp_us > last_seen_us && s.timestamp_us <= visible;
        held.filter(wanted).for_each(|sample| give(*sample));
    }

    /// Passes on the samples of processes that are newer than `last_seen_us`, as far as the newest windows have
    /// them, oldest first. A process has no sample for a window without activity. Returns the number of samples;
    /// for 0, NVML returns "not found".
    pub(crate) fn process_samples(
        &mut self,
        now_ns: u64,
        last_seen_us: u64,
        mut give: impl FnMut(ProcessSample),
    ) -> usize {
        self.advance(now_ns);
        let visible = self.visible_us();
        let last_seen_us = last_seen_us.max(self.forgotten_us());
        let stored = &self.process_samples;
        let held = newest(self.process_sampled, PROCESS_SAMPLES).filter_map(|place| stored.get(place));
        let wanted = |s: &&ProcessSample| s.timestamp_us > last_seen_us && s.timestamp_us <= visible;
        held.filter(wanted).map(|sample| give(*sample)).count()
    }

    /// Returns the end of the newest window that has lost its samples of processes.
    pub(crate) fn forgotten_us(&self) -> u64 {
        let before = self.device_sampled.checked_sub(PROCESS_WINDOWS as u64 + 1);
        let sample = before.and_then(|n| self.device_samples.get(place(n, DEVICE_SAMPLES)));
        sample.map_or(0, |sample| sample.timestamp_us)
    }

    /// Returns the end of the newest readable window.
    fn visible_us(&self) -> u64 {
        self.clock.saturating_sub(self.config().sample_lag_ns) / 1000
    }

    /// Sets the end of the first window. Windows end at multiples of the period.
    pub(super) fn start_sampling(&mut self) {
        let period = self.config().sample_period_ns;
        self.sample_at = (self.clock / period + 1).saturating_mul(period);
    }

    /// Ends the present window at the clock's instant.
    pub(super) fn take_sample(&mut self) {
        let period = self.config().sample_period_ns;
        let timestamp_us = self.clock / 1000;
        let gpu = percent(self.busy_ns.saturating_sub(self.busy_mark), period);
        let memory = percent(self.memory_busy_ns.saturating_sub(self.memory_mark), period);
        let sample = DeviceSample { timestamp_us, gpu, memory };
        self.push_device_sample(sample);
        if self.config().sample_each == 0 {
            self.name_those_on_engines(sample);
        } else {
            self.name_each(timestamp_us);
        }
        self.mark_window();
        self.sample_at = self.sample_at.saturating_add(period);
    }

    /// Stores one sample for each engine. It names one process, but has the busy time of all processes.
    fn name_those_on_engines(&mut self, window: DeviceSample) {
        let DeviceSample { timestamp_us, gpu, memory } = window;
        let batch = self.process_sampled;
        let compute = ProcessSample { timestamp_us, pid: self.on_compute, sm: gpu, memory: 0, reserved: 0 };
        let copies = ProcessSample { timestamp_us, pid: self.on_memory, sm: 0, memory, reserved: 0 };
        let was_used = [self.busy_ns != self.busy_mark, self.memory_busy_ns != self.memory_mark];
        for (sample, was_used) in [compute, copies].into_iter().zip(was_used) {
            if was_used {
                self.push_process_sample(batch, sample);
            }
        }
    }

    /// Stores a sample for each process, with its own busy time.
    fn name_each(&mut self, timestamp_us: u64) {
        let period = self.config().sample_period_ns;
        let batch = self.process_sampled;
        for link in self.clients.links() {
            let client = self.clients.at(link);
            let busy = client.busy_ns.saturating_sub(client.busy_mark);
            let copied = client.memory_busy_ns.saturating_sub(client.memory_mark);
            if client.serial == 0 || (busy == 0 && copied == 0) {
                continue;
            }
            let pid = client.pid;
            let (sm, memory) = (percent(busy, period), percent(copied, period));
            self.push_process_sample(batch, ProcessSample { timestamp_us, pid, sm, memory, reserved: 0 });
        }
    }

    /// Skips windows without activity, and windows whose samples would be overwritten before a caller can read them. Returns true
    /// if no further window ends before `to`.
    pub(super) fn skip_samples(&mut self, to: u64) -> bool {
        let period = self.config().sample_period_ns;
        let ends = (to - self.sample_at) / period + 1;
        let spare = ends.saturating_sub(PROCESS_SAMPLES as u64 + 1);
        if self.active() {
            if spare > 0 {
                self.accrue(self.sample_at + (spare - 1) * period);
                self.forget_window();
            }
            return self.sample_at > to;
        }
        if self.busy_ns != self.busy_mark || self.memory_busy_ns != self.memory_mark {
            return false;
        }
        let first = ends.saturating_sub(DEVICE_SAMPLES as u64);
        for n in first..ends {
            let timestamp_us = (self.sample_at + n * period) / 1000;
            self.push_device_sample(DeviceSample { timestamp_us, gpu: 0, memory: 0 });
        }
        self.sample_at = self.sample_at.saturating_add(ends.saturating_mul(period));
        true
    }

    /// Starts a window at the clock's instant, without a sample for the time before.
    pub(super) fn forget_window(&mut self) {
        self.mark_window();
        self.start_sampling();
    }

    /// Counts the busy time up to the clock's instant as that of earlier windows.
    fn mark_window(&mut self) {
        self.busy_mark = self.busy_ns;
        self.memory_mark = self.memory_busy_ns;
        for link in self.clients.links() {
            let client = self.clients.at_mut(link);
            client.busy_mark = client.busy_ns;
            client.memory_mark = client.memory_busy_ns;
        }
    }

    fn push_device_sample(&mut self, sample: DeviceSample) {
        let place = place(self.device_sampled, DEVICE_SAMPLES);
        if let Some(slot) = self.device_samples.get_mut(place) {
            *slot = sample;
        }
        self.device_sampled = self.device_sampled.wrapping_add(1);
    }

    /// Stores a sample, or adds it to a sample of the same process in the same window. A process may have two contexts.
    fn push_process_sample(&mut self, batch: u64, sample: ProcessSample) {
        for n in batch..self.process_sampled {
            if let Some(slot) = self.process_samples.get_mut(place(n, PROCESS_SAMPLES))
                && slot.pid == sample.pid
            {
                slot.sm = (slot.sm + sample.sm).min(100);
                slot.memory = (slot.memory + sample.memory).min(100);
                return;
            }
        }
        if let Some(slot) = self.process_samples.get_mut(place(self.process_sampled, PROCESS_SAMPLES)) {
            *slot = sample;
        }
        self.process_sampled = self.process_sampled.wrapping_add(1);
    }
}

/// Returns the indices of the newest entries of a ring, beginning with the oldest of them.
pub(super) fn newest(pushed: u64, capacity: usize) -> impl DoubleEndedIterator<Item = usize> {
    (pushed.saturating_sub(capacity as u64)..pushed).map(move |n| place(n, capacity))
}

/// Returns the index of the `n`-th entry of a ring.
pub(super) fn place(n: u64, capacity: usize) -> usize {
    usize::try_from(n % (capacity.max(1) as u64)).unwrap_or(0)
}

fn percent(busy: u64, period: u64) -> u32 {
    let percent = u128::from(busy) * 100 / u128::from(period.max(1));
    u32::try_from(percent).unwrap_or(100).min(100)
}
