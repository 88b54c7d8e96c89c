//! The part of this process in the simulation.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpuslice_driver::Symbol;
use gpuslice_driver::types::{Status, status};
use parking_lot::{Mutex, MutexGuard};

use super::event_contention::EventContention;
use super::host_queue::HostQueue;
use super::loading::Loading;
use super::objects::ProcessObjects;
use crate::config::{Managing, NvmlView, ProcessConfig};
use crate::faults::Verdict;
use crate::model::arena::Arena;
use crate::os::clock;
use crate::os::messages;
use crate::os::threads::LifeThread;
use crate::state::file::{Locked, Shared, default_path};
use crate::state::layout::{MemoryKind, life};
use crate::state::roster::NewProcess;
use crate::state::settings::Settings;
use crate::status::{Outcome, statuses};

/// The part of this process in the simulation.
#[derive(Debug)]
pub(crate) struct Simulation {
    /// The state that all processes share.
    pub(crate) shared: Shared,
    /// Settings of this process.
    pub(crate) config: ProcessConfig,
    /// Settings of the machine.
    pub(crate) settings: Settings,
    /// The machine's number of each device that this process sees.
    pub(crate) visible: Vec<usize>,
    /// The process's slot.
    pub(crate) slot: usize,
    /// The process's serial, never reused.
    pub(crate) serial: u64,
    /// Addresses and bytes of its device memory.
    pub(crate) arena: Arena,
    /// Tasks of the host thread.
    pub(crate) host: HostQueue,
    /// Late loading of code.
    pub(crate) loading: Loading,
    /// Threads that record events at the same time.
    pub(crate) event_contention: EventContention,
    /// Devices on which the driver has taken its unexplained memory, one bit each.
    unexplained: AtomicU64,
    objects: Mutex<ProcessObjects>,
}

static SIMULATION: OnceLock<Simulation> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());
/// Set in a forked child. The child takes no part.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Returns the simulation, if this process has joined it.
pub(crate) fn get() -> Option<&'static Simulation> {
    if FORKED.load(Ordering::Relaxed) {
        return None;
    }
    SIMULATION.get()
}

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Joins the simulation. A second call does nothing.
pub(crate) fn join() -> Outcome {
    if FORKED.load(Ordering::Relaxed) {
        return Err(status::NOT_INITIALIZED);
    }
    if SIMULATION.get().is_some() {
        return Ok(());
    }
    let _starting = STARTING.lock();
    if SIMULATION.get().is_some() {
        return Ok(());
    }
    let simulation = Simulation::start(&default_path())?;
    if SIMULATION.set(simulation).is_ok() {
        // SAFETY: `pthread_atfork` needs functions that may run in a forked child: `in_child` only stores a flag.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
    Ok(())
}

impl Simulation {
    fn start(path: &Path) -> Result<Self, Status> {
        let config = ProcessConfig::from_environment();
        let wanted = Settings::read(|name| std::env::var(name).ok()).map_err(|wrong| {
            messages::say(&format!("not understood: {wrong}"));
            status::INVALID_VALUE
        })?;
        let shared = Shared::open(path, &wanted).map_err(|error| {
            messages::say(&format!("{}: {error}", path.display()));
            statuses::UNKNOWN
        })?;
        // The call began before the file was open, so its faults act only now.
        let verdict = Verdict::default().with(Symbol::cuInit, shared.faults(), None);
        verdict.status.map_or(Ok(()), Err)?;
        let life = LifeThread::start().ok_or(status::OUT_OF_MEMORY)?;
        let mut state = shared.lock();
        state.reap_dead(None);
        if !state.inhabited() && state.settings != wanted {
            state.clear(&wanted);
        }
        let settings = state.settings;
        if state.timed == 0 {
            for device in 0..settings.count() {
                state.engine(device).set_config(settings.time, clock::now());
            }
            state.timed = 1;
        }
        NvmlView::read(&|name| std::env::var(name).ok()).apply(&mut state);
        let visible = config.visible(&settings);
        if visible.is_empty() {
            return Err(status::NO_DEVICE);
        }
        let arena = Arena::new().ok_or(status::OUT_OF_MEMORY)?;
        let slot = enroll(&mut state, &shared, &config, life)?;
        let serial = state.processes.get(slot).map_or(0, |process| process.serial);
        drop(state);
        let objects = Mutex::new(ProcessObjects::new(visible.len()));
        let (host, loading, unexplained) = (HostQueue::default(), Loading::default(), AtomicU64::new(0));
        Ok(Self {
            shared,
            config,
            settings,
            visible,
            slot,
            serial,
            arena,
            host,
            loading,
            event_contention: EventContention::default(),
            unexplained,
            objects,
        })
    }

    /// Returns the objects of this process. This lock is taken before the lock of the shared state, never after it.
    pub(crate) fn objects(&self) -> MutexGuard<'_, ProcessObjects> {
        self.objects.lock()
    }

    /// Returns the shared state, after all dead processes are reaped.
    pub(crate) fn truth(&self) -> Locked<'_> {
        let mut state = self.shared.lock();
        state.reap_dead(Some(self.slot));
        state
    }

    /// Returns the machine's number of a device of this process.
    pub(crate) fn device(&self, device: i32) -> Result<usize, Status> {
        let ordinal = usize::try_from(device).map_err(|_| statuses::INVALID_DEVICE)?;
        self.visible.get(ordinal).copied().ok_or(statuses::INVALID_DEVICE)
    }

    /// Returns the GPU that a device of this process is, or belongs to.
    pub(crate) fn gpu(&self, device: i32) -> Result<usize, Status> {
        Ok(self.settings.gpu_of(self.device(device)?))
    }

    /// Returns the process's number of a device of the machine. It is -1 if the process does not see the device.
    pub(crate) fn ordinal(&self, device: usize) -> i32 {
        let ordinal = self.visible.iter().position(|visible| *visible == device);
        ordinal.and_then(|ordinal| i32::try_from(ordinal).ok()).unwrap_or(-1)
    }

    /// Returns the shared state, if this process still counts as living. While a process is being killed, some of its threads may
    /// run after another process has reaped it. They must change nothing.
    fn own(&self) -> Option<Locked<'_>> {
        let state = self.shared.lock();
        let process = state.processes.get(self.slot)?;
        (process.life == life::LIVE && process.serial == self.serial).then_some(state)
    }

    /// Charges device memory for an allocation of the program, and counts it.
    pub(crate) fn allocate(&self, device: usize, kind: MemoryKind, bytes: u64) -> Outcome {
        let _turn = self.shared.lock_manager();
        let mut state = self.own().ok_or(status::OUT_OF_MEMORY)?;
        state.reap_dead(Some(self.slot));
        state.charge(self.slot, device, kind, bytes).map_err(|_| status::OUT_OF_MEMORY)?;
        state.count(self.slot, device);
        if kind == MemoryKind::Linear && self.settings.unexplained_bytes > 0 {
            self.take_unexplained(&mut state, device);
        }
        Ok(())
    }

    /// Charges the driver's unexplained memory at a process's first allocation on a device, if there is room.
    fn take_unexplained(&self, state: &mut Locked<'_>, device: usize) {
        let bit = 1_u64.wrapping_shl(u32::try_from(device).unwrap_or(u32::MAX));
        if self.unexplained.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            let _full = state.charge(self.slot, device, MemoryKind::Context, self.settings.unexplained_bytes);
        }
    }

    /// Counts an allocation without a charge.
    pub(crate) fn count_allocation(&self, device: usize) {
        if let Some(mut state) = self.own() {
            state.count(self.slot, device);
        }
    }

    /// Counts the end of an allocation.
    pub(crate) fn uncount_allocation(&self, device: usize) {
        if let Some(mut state) = self.own() {
            state.uncount(self.slot, device);
        }
    }

    /// Returns the bytes that new managed memory of `bytes` takes of its device.
    pub(crate) fn at_once(&self, bytes: u64) -> Result<u64, Status> {
        match self.config.managing {
            Managing::AtOnce | Managing::Exclusive => Ok(bytes),
            Managing::WhenTouched => Ok(0),
            Managing::Never => Err(status::NOT_SUPPORTED),
        }
    }

    /// Changes the number of bytes of managed memory in host memory.
    pub(crate) fn change_host(&self, device: usize, change: impl FnOnce(u64) -> u64) {
        let Some(mut state) = self.own() else { return };
        if let Some(usage) = state.usage(self.slot, device) {
            usage.on_host = change(usage.on_host);
            usage.on_host_peak = usage.on_host_peak.max(usage.on_host);
        }
    }

    /// Refunds the memory of an allocation, and counts its end.
    pub(crate) fn release(&self, device: usize, kind: MemoryKind, bytes: u64) {
        let _turn = self.shared.lock_manager();
        let Some(mut state) = self.own() else { return };
        state.refund(self.slot, device, kind, bytes);
        state.uncount(self.slot, device);
    }

    /// Charges device memory that is not an allocation of the program.
    pub(crate) fn grow(&self, device: usize, kind: MemoryKind, bytes: u64) -> Outcome {
        let _turn = self.shared.lock_manager();
        let mut state = self.own().ok_or(status::OUT_OF_MEMORY)?;
        state.reap_dead(Some(self.slot));
        state.charge(self.slot, device, kind, bytes).map_err(|_| status::OUT_OF_MEMORY)
    }

    /// Refunds device memory that is not an allocation of the program.
    pub(crate) fn shrink(&self, device: usize, kind: MemoryKind, bytes: u64) {
        let _turn = self.shared.lock_manager();
        if let Some(mut state) = self.own() {
            state.refund(self.slot, device, kind, bytes);
        }
    }
}

/// Takes a slot, and lets the life thread hold its life lock.
fn enroll(
    state: &mut Locked<'_>,
    shared: &Shared,
    config: &ProcessConfig,
    life: LifeThread,
) -> Result<usize, Status> {
    let new_process = NewProcess { pid: std::process::id(), name: &config.program, group: &config.group };
    let slot = state.claim(&new_process).map_err(|none| {
        messages::say(&format!("no room in the state file: {none:?}"));
        statuses::UNKNOWN
    })?;
    let process = state.processes.get_mut(slot).ok_or(statuses::UNKNOWN)?;
    let alive = shared.life_lock(slot).ok_or(statuses::UNKNOWN)?;
    life.hold(alive).ok_or(status::OUT_OF_MEMORY)?;
    process.life = life::LIVE;
    Ok(slot)
}
