//! The state of this process as a member of the simulation.

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
use crate::os::pid_namespace;
use crate::os::threads::LifeThread;
use crate::state::file::{Locked, Shared, default_path};
use crate::state::layout::{MemoryKind, life};
use crate::state::roster::NewProcess;
use crate::state::settings::Settings;
use crate::status::{Outcome, statuses};

/// This process as a member of the simulation.
#[derive(Debug)]
pub(crate) struct Simulation {
    /// The state that all processes share.
    pub(crate) shared: Shared,
    /// The settings of this process.
    pub(crate) config: ProcessConfig,
    /// The settings of the machine.
    pub(crate) settings: Settings,
    /// The devices that this process sees. Each entry is the number that the machine gives to the device.
    pub(crate) visible: Vec<usize>,
    /// The slot of this process in the shared state.
    pub(crate) slot: usize,
    /// The process's serial, never reused.
    pub(crate) serial: u64,
    /// The addresses of this process's device memory, and the bytes behind them.
    pub(crate) arena: Arena,
    /// The tasks of the host thread.
    pub(crate) host: HostQueue,
    /// The loads of code that are going on.
    pub(crate) loading: Loading,
    /// The delay of threads that record events at the same time.
    pub(crate) event_contention: EventContention,
    /// The devices on which the driver has taken its unexplained memory for this process, one bit for each.
    unexplained: AtomicU64,
    objects: Mutex<ProcessObjects>,
}

static SIMULATION: OnceLock<Simulation> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());
/// True in a forked child. The child is no member of the simulation.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Returns the simulation, if this process has joined it and is no forked child.
pub(crate) fn get() -> Option<&'static Simulation> {
    if FORKED.load(Ordering::Relaxed) {
        return None;
    }
    SIMULATION.get()
}

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Makes this process join the simulation. A second call does nothing.
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
    /// Reads the settings, opens the shared file, and takes a slot in it.
    ///
    /// The life thread starts before the file is locked, because the loader may block at the start of a thread. If no
    /// process lives and this one wants other settings, it makes the state new. The slot comes last, so that an
    /// earlier failure leaves no slot taken.
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
        // This call of `cuInit` began before the file was open. So faults from the file can act only now.
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

    /// Returns the objects of this process, locked. A thread that also needs the lock of the shared state takes this one first.
    pub(crate) fn objects(&self) -> MutexGuard<'_, ProcessObjects> {
        self.objects.lock()
    }

    /// Returns the shared state, locked, after it has reaped all dead processes.
    pub(crate) fn truth(&self) -> Locked<'_> {
        let mut state = self.shared.lock();
        state.reap_dead(Some(self.slot));
        state
    }

    /// Returns the number that the machine gives to a device. `device` is the number that this process gives to it.
    pub(crate) fn device(&self, device: i32) -> Result<usize, Status> {
        let ordinal = usize::try_from(device).map_err(|_| statuses::INVALID_DEVICE)?;
        self.visible.get(ordinal).copied().ok_or(statuses::INVALID_DEVICE)
    }

    /// Returns the GPU that a device of this process is, or that an instance belongs to.
    pub(crate) fn gpu(&self, device: i32) -> Result<usize, Status> {
        Ok(self.settings.gpu_of(self.device(device)?))
    }

    /// Returns the number that this process gives to a device of the machine; -1 if the process does not see the device.
    pub(crate) fn ordinal(&self, device: usize) -> i32 {
        let ordinal = self.visible.iter().position(|visible| *visible == device);
        ordinal.and_then(|ordinal| i32::try_from(ordinal).ok()).unwrap_or(-1)
    }

    /// Returns the shared state, locked, if this process still counts as living. While the kernel kills a process, some of its
    /// threads may still run after another process has reaped it. Such a thread must change nothing.
    fn own(&self) -> Option<Locked<'_>> {
        let state = self.shared.lock();
        let process = state.processes.get(self.slot)?;
        (process.life == life::LIVE && process.serial == self.serial).then_some(state)
    }

    /// Charges this process for an allocation of the program, and counts the allocation.
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

    /// At the first allocation on a device, charges the memory that a real driver takes there for
    /// unexplained reasons, if there is room.
    fn take_unexplained(&self, state: &mut Locked<'_>, device: usize) {
        let bit = 1_u64.wrapping_shl(u32::try_from(device).unwrap_or(u32::MAX));
        if self.unexplained.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            let _full = state.charge(self.slot, device, MemoryKind::Context, self.settings.unexplained_bytes);
        }
    }

    /// Counts an allocation that costs no memory of its own.
    pub(crate) fn count_allocation(&self, device: usize) {
        if let Some(mut state) = self.own() {
            state.count(self.slot, device);
        }
    }

    /// Counts the end of an allocation that cost no memory of its own.
    pub(crate) fn uncount_allocation(&self, device: usize) {
        if let Some(mut state) = self.own() {
            state.uncount(self.slot, device);
        }
    }

    /// Returns how many bytes of its device new managed memory takes at once, if it takes `bytes` as a whole.
    pub(crate) fn at_once(&self, bytes: u64) -> Result<u64, Status> {
        match self.config.managing {
            Managing::AtOnce | Managing::Exclusive => Ok(bytes),
            Managing::WhenTouched => Ok(0),
            Managing::Never => Err(status::NOT_SUPPORTED),
        }
    }

    /// Changes the count of bytes of managed memory that is on the host. `change` gets the old number and returns the new one.
    pub(crate) fn change_host(&self, device: usize, change: impl FnOnce(u64) -> u64) {
        let Some(mut state) = self.own() else { return };
        if let Some(usage) = state.usage(self.slot, device) {
            usage.on_host = change(usage.on_host);
            usage.on_host_peak = usage.on_host_peak.max(usage.on_host);
        }
    }

    /// Refunds the memory of an allocation of the program, and counts its end.
    pub(crate) fn release(&self, device: usize, kind: MemoryKind, bytes: u64) {
        let _turn = self.shared.lock_manager();
        let Some(mut state) = self.own() else { return };
        state.refund(self.slot, device, kind, bytes);
        state.uncount(self.slot, device);
    }

    /// Charges this process for device memory that is no allocation of the program.
    pub(crate) fn grow(&self, device: usize, kind: MemoryKind, bytes: u64) -> Outcome {
        let _turn = self.shared.lock_manager();
        let mut state = self.own().ok_or(status::OUT_OF_MEMORY)?;
        state.reap_dead(Some(self.slot));
        state.charge(self.slot, device, kind, bytes).map_err(|_| status::OUT_OF_MEMORY)
    }

    /// Refunds device memory that is no allocation of the program.
    pub(crate) fn shrink(&self, device: usize, kind: MemoryKind, bytes: u64) {
        let _turn = self.shared.lock_manager();
        if let Some(mut state) = self.own() {
            state.refund(self.slot, device, kind, bytes);
        }
    }
}

/// Takes a slot for this process, makes the life thread hold the slot's life lock, and returns the slot.
fn enroll(
    state: &mut Locked<'_>,
    shared: &Shared,
    config: &ProcessConfig,
    life: LifeThread,
) -> Result<usize, Status> {
    let (pid, pid_namespace) = (std::process::id(), pid_namespace::own());
    let new_process = NewProcess { pid, pid_namespace, name: &config.program, group: &config.group };
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
