//! Layout of the state file: plain integers, valid when zeroed.

use core::sync::atomic::AtomicU32;

use super::settings::Settings;
use super::sizes::{DEVICES, GROUPS, NAME, PROCESSES};
use crate::engine::EngineState;
use crate::faults::FaultTable;
use crate::os::robust_mutex::RobustMutex;

/// `SIMGPU` and a number that belongs to the layout.
pub const MAGIC: u64 = 0x0055_5047_4d49_5300;
/// Changes with the layout.
pub const LAYOUT_VERSION: u32 = 12;

/// Use of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum MemoryKind {
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Linear,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemCreate`.
    Vmm,
    /// Reserved by pools.
    Pool,
    /// Arrays and mipmapped arrays.
    Array,
    /// Contexts, with their heaps, stacks and buffers.
    Context,
    /// Code and device variables.
    Module,
    /// Reserved by graph pools.
    Graph,
}

/// Number of kinds.
pub const KINDS: usize = 8;

impl MemoryKind {
    /// All kinds, in order.
    pub const ALL: [Self; KINDS] = [
        Self::Linear,
        Self::Managed,
        Self::Vmm,
        Self::Pool,
        Self::Array,
        Self::Context,
        Self::Module,
        Self::Graph,
    ];

    /// Returns its name in the report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Managed => "managed",
            Self::Vmm => "vmm",
            Self::Pool => "pool",
            Self::Array => "array",
            Self::Context => "context",
            Self::Module => "module",
            Self::Graph => "graph",
        }
    }
}

/// Bytes in use, with their peak.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Level {
    /// Bytes in use.
    pub held: u64,
    /// Peak of the bytes in use.
    pub peak: u64,
}

/// The figures of one process on one device.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Bytes by [`MemoryKind`].
    pub held: [u64; KINDS],
    /// Peak of the bytes of all kinds together.
    pub peak: u64,
    /// Bytes of managed memory that are in host memory.
    pub on_host: u64,
    /// Peak of these bytes.
    pub on_host_peak: u64,
    /// Number of successful allocations.
    pub allocations: u64,
    /// Number of allocations that failed for lack of memory.
    pub refusals: u64,
    /// Number of living allocations.
    pub live: u64,
    /// Number of living contexts.
    pub contexts: u64,
    /// Number of contexts that were ever made.
    pub contexts_made: u64,
    /// Number of loaded modules and libraries.
    pub modules: u64,
    /// Number of modules and libraries that were ever loaded.
    pub modules_loaded: u64,
    /// Time of removed contexts on the multiprocessors, in nanoseconds.
    pub busy_ns: u64,
    /// Durations of all kernels of removed contexts, in nanoseconds.
    pub kernel_ns: u64,
    /// Number of kernels of removed contexts.
    pub launches: u64,
}

impl Usage {
    /// Returns the bytes of all kinds together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.held.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// States of a process slot.
pub mod life {
    /// Never used.
    pub const FREE: u32 = 0;
    /// A process has it. It is alive, or no process has noticed its death.
    pub const LIVE: u32 = 1;
    /// The process of the slot is dead. The slot keeps its figures.
    pub const DEAD: u32 = 2;
}

/// One process.
#[repr(C)]
#[derive(Debug)]
pub struct Process {
    /// See [`life`].
    pub life: u32,
    /// Index of its group.
    pub group: u32,
    /// The process's own PID.
    pub pid: u32,
    /// The process's checkpoint phase, by the numbers of `checkpoint::phase`.
    pub phase: AtomicU32,
    /// The process's position in the order of all processes that ever joined, from 1.
    pub serial: u64,
    /// Instant at which it joined, in nanoseconds of the monotonic clock.
    pub joined_ns: u64,
    /// The program's name.
    pub name: [u8; NAME],
    /// Bytes by device and [`MemoryKind`] that a checkpoint evicted from the devices.
    pub evicted: [[u64; KINDS]; DEVICES],
    /// The process's life lock: one of its threads holds it until the process ends.
    pub life_lock: RobustMutex,
    /// The process's figures by device.
    pub usage: [Usage; DEVICES],
}

/// A set of processes with a common sum.
#[repr(C)]
#[derive(Debug)]
pub struct ProcessGroup {
    /// The group's name; empty for an unused entry.
    pub name: [u8; NAME],
    /// The sum over its processes, by device.
    pub levels: [Level; DEVICES],
}

/// Memory that its owner lets other processes use.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Export {
    /// The memory's number, never reused; 0 for an unused entry.
    pub number: u64,
    /// Bytes.
    pub bytes: u64,
    /// The device whose memory it is.
    pub device: u32,
    /// The slot of the process that is charged for it.
    pub owner: u32,
    /// The memory's [`MemoryKind`] as a number.
    pub kind: u64,
    /// The processes that use it, one bit each.
    pub users: [u64; PROCESSES / 64],
}

/// Largest number of exports.
pub const EXPORTS: usize = 1024;

/// Memory of a dead process that the device does not have back yet.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Leaving {
    /// Bytes; 0 for an unused entry.
    pub bytes: u64,
    /// Instant at which the device has them back, in nanoseconds of the monotonic clock.
    pub until_ns: u64,
    /// The device.
    pub device: u32,
    /// Index of the process's group.
    pub group: u32,
}

/// Largest number of such entries. Without a free entry the device has the memory back at once.
pub const LEAVING: usize = 256;

/// The shared file, without the engines of the devices.
#[repr(C)]
#[derive(Debug)]
pub struct State {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`LAYOUT_VERSION`].
    pub version: u32,
    /// 1 once everything else is set.
    pub ready: AtomicU32,
    /// Guards the words that follow.
    pub mutex: RobustMutex,
    /// The lock of the driver's resource manager, for calls that it serialises on the whole machine. It guards no
    /// word.
    pub manager: RobustMutex,
    /// The simulated machine.
    pub settings: Settings,
    /// Whether the engines have the properties of the settings.
    pub timed: u64,
    /// Number of processes that ever joined.
    pub joined: u64,
    /// Number of times that the lock was taken over from a dead process.
    pub takeovers: u64,
    /// Slots in which a process may live, one bit each. Other slots need no look.
    pub perhaps_live: [u64; PROCESSES / 64],
    /// Instant at which the slots were last searched for dead processes.
    pub looked_ns: u64,
    /// Number of exports that were ever made.
    pub exported: u64,
    /// Exports.
    pub exports: [Export; EXPORTS],
    /// Memory of dead processes that the devices do not have back yet.
    pub leaving: [Leaving; LEAVING],
    /// Faults that are set at run time.
    pub faults: FaultTable,
    /// The sum over all processes, by device.
    pub levels: [Level; DEVICES],
    /// Groups.
    pub groups: [ProcessGroup; GROUPS],
    /// Processes.
    pub processes: [Process; PROCESSES],
}

/// Offset of the engines in the file.
pub const ENGINES_AT: usize = size_of::<State>().next_multiple_of(1 << 16);
/// Distance between two engines.
pub const ENGINE_STRIDE: usize = size_of::<EngineState>().next_multiple_of(1 << 16);

impl State {
    /// Rebuilds every total from the words of the processes.
    pub fn repair(&mut self) {
        for device in 0..DEVICES {
            let mut sums = [0_u64; GROUPS];
            let mut sum = 0_u64;
            for process in self.processes.iter().filter(|process| process.life == life::LIVE) {
                let total = process.usage.get(device).map_or(0, Usage::total);
                sum = sum.saturating_add(total);
                if let Some(group) = sums.get_mut(process.group as usize) {
                    *group = group.saturating_add(total);
                }
            }
            for left in self.leaving.iter().filter(|left| left.device as usize == device) {
                sum = sum.saturating_add(left.bytes);
                if let Some(group) = sums.get_mut(left.group as usize) {
                    *group = group.saturating_add(left.bytes);
                }
            }
            if let Some(level) = self.levels.get_mut(device) {
                level.held = sum;
            }
            for (group, sum) in self.groups.iter_mut().zip(sums) {
                if let Some(level) = group.levels.get_mut(device) {
                    level.held = sum;
                }
            }
        }
    }
}

/// Returns a name, cut to the room for it.
#[must_use]
pub fn name_bytes(name: &[u8]) -> [u8; NAME] {
    let mut bytes = [0; NAME];
    // One byte stays zero, so that a reader in C finds an end.
    for (to, from) in bytes.iter_mut().take(NAME - 1).zip(name) {
        *to = *from;
    }
    bytes
}

/// Returns a stored name as text.
#[must_use]
pub fn name_text(bytes: &[u8; NAME]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(NAME);
    String::from_utf8_lossy(bytes.get(..end).unwrap_or(bytes)).into_owned()
}
