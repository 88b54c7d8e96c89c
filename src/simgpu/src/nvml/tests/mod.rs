//! Tests of NVML's answers. Each machine has its own state file.

use core::ffi::{CStr, c_char};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::attribution::{Share, shares};
use super::layouts::{
    ProcessDetail, ProcessDetailList, ProcessInfo, ProcessInfoV1, ProcessUse, ProcessUseList, Uuid,
};
use super::library::NvmlLibrary;
use super::{Hardware, NvmlCall, Tuning, Usage, layouts, statuses};
use crate::engine::{ProcessSample, StreamKind, WHOLE_DEVICE, Work};
use crate::hardware::texts;
use crate::os::{clock, pid_namespace};
use crate::state::device_time::process_number;
use crate::state::layout::{MemoryKind, life};
use crate::state::roster::NewProcess;
use gpuslice_driver::types::*;

mod figures;
mod identity;
mod samples;

const GIB: u64 = 1 << 30;
const MS: u64 = 1_000_000;

/// A machine with its own state file. The end of the value removes the file.
struct Machine {
    nvml: NvmlCall,
    library: &'static NvmlLibrary,
    path: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn fresh_path() -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("simgpu-nvml-test-{}-{number}", std::process::id()))
}

fn variables<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
    |name| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
}

fn machine(pairs: &[(&str, &str)]) -> Machine {
    let path = fresh_path();
    let library = Box::leak(Box::new(NvmlLibrary::open(path.clone(), variables(pairs)).unwrap()));
    Machine { nvml: NvmlCall::of(library), library, path }
}

impl Machine {
    fn device(&self, index: u32) -> nvmlDevice_t {
        let mut device = core::ptr::null_mut();
        assert_eq!(self.nvml.nvmlDeviceGetHandleByIndex_v2(index, &raw mut device), Ok(()));
        device
    }

    /// Makes a process that has memory on a device. It lives as long as the thread of the test.
    fn process(&self, pid: u32, device: usize, bytes: u64) -> usize {
        self.process_of(pid, b"", device, bytes)
    }

    /// Makes a process that belongs to a group.
    fn process_of(&self, pid: u32, group: &[u8], device: usize, bytes: u64) -> usize {
        let mut state = self.library.shared.lock();
        let slot = state
            .claim(&NewProcess { pid, pid_namespace: pid_namespace::own(), name: b"worker", group })
            .unwrap();
        self.library.shared.life_lock(slot).unwrap().lock();
        state.processes[slot].life = life::LIVE;
        state.charge(slot, device, MemoryKind::Linear, bytes).unwrap();
        state.usage(slot, device).unwrap().contexts = 1;
        slot
    }

    /// Makes a device busy for a process, from `start` (an instant in the past) on.
    fn work(&self, slot: usize, device: usize, start: u64, ns: u64) {
        let mut state = self.library.shared.lock();
        let number = process_number(state.processes[slot].serial);
        let engine = state.engine(device);
        let client = engine.add_client(number, start).unwrap();
        let stream = engine.add_stream(client, StreamKind::NonBlocking).unwrap();
        engine.enqueue(stream, Work::Kernel { ns, occupancy: WHOLE_DEVICE }, start).unwrap();
    }

    fn memory(&self, device: nvmlDevice_t) -> nvmlMemory_t {
        let mut memory = nvmlMemory_t::default();
        assert_eq!(self.nvml.nvmlDeviceGetMemoryInfo(device, &raw mut memory), Ok(()));
        memory
    }

    fn compute(&self, device: nvmlDevice_t) -> Vec<ProcessInfo> {
        let (mut count, mut infos) = (16, [ProcessInfo::default(); 16]);
        let to = infos.as_mut_ptr().cast();
        assert_eq!(self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut count, to), Ok(()));
        infos[..count as usize].to_vec()
    }

    fn used_by(
        &self,
        device: nvmlDevice_t,
        last_seen: u64,
    ) -> Result<Vec<nvmlProcessUtilizationSample_t>, Status> {
        let (mut count, mut found) = (16, [nvmlProcessUtilizationSample_t::default(); 16]);
        let to = found.as_mut_ptr();
        self.nvml.nvmlDeviceGetProcessUtilization(device, to, &raw mut count, last_seen)?;
        Ok(found[..count as usize].to_vec())
    }
}
