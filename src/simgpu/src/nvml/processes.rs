//! Functions about the processes that use a device.

use core::ffi::c_char;
use std::fs;

use gpuslice_driver::types::{nvmlDevice_t, nvmlProcessUtilizationSample_t};

use super::attribution::{Share, process_of, shares};
use super::entry::NvmlCall;
use super::layouts::{
    NO_INSTANCE, ProcessDetail, ProcessDetailList, ProcessInfo, ProcessInfoV1, ProcessUse, ProcessUseList,
    version,
};
use super::statuses;
use crate::config::gpu_instance_id;
use crate::engine::{DeviceSample, ProcessSample};
use crate::os::clock;
use crate::state::layout::{MemoryKind, Process, life, name_text};
use crate::state::settings::Settings;
use crate::state::sizes::PROCESSES;
use crate::status::Outcome;

/// Number of entries that is always enough for the utilisation of all processes.
#[allow(clippy::cast_possible_truncation, reason = "a few hundred")]
const ENTRIES: u32 = PROCESSES as u32;

/// Returns the numbers that NVML gives to the instances of a device.
pub(super) fn instance_ids(machine: &Settings, device: usize) -> (u32, u32) {
    let gpu_instance =
        machine.instance(device).and_then(|instance| u32::try_from(gpu_instance_id(instance)).ok());
    gpu_instance.map_or((NO_INSTANCE, NO_INSTANCE), |number| (number, 0))
}

impl From<ProcessDetail> for ProcessInfo {
    fn from(detail: ProcessDetail) -> Self {
        let ProcessDetail { pid, used, gpu_instance, compute_instance, .. } = detail;
        Self { pid, used, gpu_instance, compute_instance }
    }
}

impl From<ProcessDetail> for ProcessInfoV1 {
    fn from(detail: ProcessDetail) -> Self {
        Self { pid: detail.pid, used: detail.used }
    }
}

impl NvmlCall {
    /// Returns the processes that have a context or memory on a device, in the order in which they joined the simulation.
    fn running(&self, device: nvmlDevice_t) -> Result<Vec<ProcessDetail>, u32> {
        let (state, subject) = self.on(device)?;
        let view = self.library()?.view;
        let mut found = Vec::new();
        for device in subject.devices(&state.settings) {
            let (gpu_instance, compute_instance) = instance_ids(&state.settings, device);
            let living = |(_, process): &(usize, &Process)| process.life == life::LIVE;
            for (slot, process) in state.processes.iter().enumerate().filter(living) {
                let Some(usage) = process.usage.get(device) else { continue };
                if usage.contexts == 0 && usage.total() == 0 {
                    continue;
                }
                let Some(pid) = view.listed(&state, process) else { continue };
                let imported = if view.imports { state.imported(slot, device) } else { 0 };
                let of_managed = usage.held.get(MemoryKind::Managed as usize).copied().unwrap_or(0);
                let hidden = if view.managed { 0 } else { of_managed };
                let total = usage.total().saturating_sub(hidden).saturating_add(imported);
                let used = view.bytes.unwrap_or(total);
                let detail = ProcessDetail { pid, used, gpu_instance, compute_instance, protected: 0 };
                found.push((process.serial, detail));
            }
        }
        found.sort_unstable_by_key(|(serial, _)| *serial);
        Ok(found.into_iter().map(|(_, detail)| detail).collect())
    }

    /// Writes the compute processes, in the form of list that the caller uses.
    pub(super) fn compute<T>(&self, device: nvmlDevice_t, count: *mut u32, to: *mut T) -> Outcome
    where
        T: Copy + From<ProcessDetail>,
    {
        let entries: Vec<T> = self.running(device)?.into_iter().map(T::from).collect();
        self.write_list(count, to, &entries)
    }

    /// Writes an empty list, for kinds of processes that are not simulated: graphics processes and MPS clients.
    pub(super) fn no_processes(&self, device: nvmlDevice_t, count: *mut u32) -> Outcome {
        self.on(device)?;
        self.read(count)?;
        self.write(count, 0)
    }

    pub(super) fn details(&self, device: nvmlDevice_t, list: *mut ProcessDetailList) -> Outcome {
        /// Modes of the detailed list: compute, graphics, MPS clients.
        const COMPUTE: u32 = 0;
        const MODES: u32 = 3;
        let running = self.running(device)?;
        let asked = self.read(list)?;
        if asked.version != version::<ProcessDetailList>(1) || asked.mode >= MODES {
            return Err(statuses::INVALID_ARGUMENT);
        }
        let entries = if asked.mode == COMPUTE { running } else { Vec::new() };
        let mut count = asked.count;
        let written = self.write_list(&raw mut count, asked.entries, &entries);
        self.write(list, ProcessDetailList { count, ..asked })?;
        written
    }

    /// Returns how much each process used a device since an instant, in microseconds of the wall clock.
    fn use_since(&self, device: nvmlDevice_t, last_seen: u64) -> Result<Vec<Share>, u32> {
        let view = self.library()?.view;
        let (mut state, device) = self.whole(device)?;
        if !view.is_attributable() {
            return Err(statuses::NOT_SUPPORTED);
        }
        let (now, last_seen) = (clock::now(), last_seen.saturating_sub(view.epoch_us));
        let engine = view.device(&mut state, device);
        engine.advance(now);
        let last_seen = last_seen.max(engine.forgotten_us());
        let (mut windows, mut samples): (Vec<u64>, Vec<ProcessSample>) = (Vec::new(), Vec::new());
        engine.device_samples(now, last_seen, |sample: DeviceSample| windows.push(sample.timestamp_us));
        engine.process_samples(now, last_seen, |sample| samples.push(sample));
        samples.retain_mut(|sample| {
            let pid = process_of(&state, sample.pid).map(|process| view.sampled(&state, process));
            sample.pid = pid.unwrap_or(0);
            pid.is_some()
        });
        let mut shares = shares(&windows, &samples);
        shares
            .iter_mut()
            .for_each(|share| share.timestamp_us = share.timestamp_us.saturating_add(view.epoch_us));
        Ok(shares)
    }

    /// Writes the use by each process. If the caller's memory has too few entries, writes the number that is enough. If there is
    /// no new sample, returns an error.
    pub(super) fn utilization_of_processes(
        &self,
        device: nvmlDevice_t,
        to: *mut nvmlProcessUtilizationSample_t,
        count: *mut u32,
        last_seen: u64,
    ) -> Outcome {
        let shares = self.use_since(device, last_seen)?;
        let room = self.read(count)?;
        if to.is_null() || room == 0 {
            self.write(count, ENTRIES)?;
            return Err(statuses::INSUFFICIENT_SIZE);
        }
        let entry = |share: &Share| nvmlProcessUtilizationSample_t {
            pid: share.pid,
            timestamp: share.timestamp_us,
            sm: share.sm,
            memory: share.memory,
            ..nvmlProcessUtilizationSample_t::default()
        };
        let entries: Vec<_> = shares.iter().map(entry).collect();
        if entries.is_empty() {
            self.write(count, 0)?;
            return Err(statuses::NOT_FOUND);
        }
        self.write_list(count, to, &entries)
    }

    /// Writes the use by each process, in the form that begins with a version and has all engines.
    pub(super) fn utilization_list(&self, device: nvmlDevice_t, list: *mut ProcessUseList) -> Outcome {
        let asked = self.read(list)?;
        if asked.version != version::<ProcessUseList>(1) {
            self.on(device)?;
            return Err(statuses::ARGUMENT_VERSION_MISMATCH);
        }
        let shares = self.use_since(device, asked.last_seen)?;
        let entry = |share: &Share| ProcessUse {
            timestamp: share.timestamp_us,
            pid: share.pid,
            sm: share.sm,
            memory: share.memory,
            others: [0; 4],
        };
        let entries: Vec<_> = shares.iter().map(entry).collect();
        let (mut count, written) = (asked.count, self.room_for(&asked, &entries));
        match written {
            Err(statuses::INSUFFICIENT_SIZE) => count = ENTRIES,
            _ => count = u32::try_from(entries.len()).unwrap_or(count),
        }
        self.write(list, ProcessUseList { count, ..asked })?;
        written
    }

    fn room_for(&self, asked: &ProcessUseList, entries: &[ProcessUse]) -> Outcome {
        let mut count = asked.count;
        if asked.entries.is_null() || count == 0 {
            return Err(statuses::INSUFFICIENT_SIZE);
        }
        if entries.is_empty() {
            return Err(statuses::NOT_FOUND);
        }
        self.write_list(&raw mut count, asked.entries, entries)
    }

    /// Writes the command of a process. It comes from `/proc`; if that is not readable, it is the
    /// name that the process registered.
    pub(super) fn process_name(&self, pid: u32, to: *mut c_char, room: u32) -> Outcome {
        if to.is_null() || room == 0 {
            return Err(statuses::INVALID_ARGUMENT);
        }
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command =
            String::from_utf8_lossy(line.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
        let state = self.truth()?;
        let joined = state.processes.iter().find(|process| process.life == life::LIVE && process.pid == pid);
        let called = joined.map(|process| name_text(&process.name));
        let name = Some(command).filter(|name| !name.is_empty()).or(called).ok_or(statuses::NOT_FOUND)?;
        let end = name.floor_char_boundary(usize::try_from(room).unwrap_or(0) - 1);
        self.write_text(to, room, name.get(..end).unwrap_or_default())
    }
}
