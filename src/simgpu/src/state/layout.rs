//! Layout of the state file: plain integers, valid when zeroed.

use core::sync::atomic::AtomicU32;

use super::settings::Settings;
use super::sizes::{DEVICES, GROUPS, NAME, PROCESSES};
use crate::engine::EngineState;
use crate::faults::FaultTable;
use crate::os::robust_mutex::RobustMutex;

/// `SIMGPU` and a number that changes with the layout.
pub const MAGIC: u64 = 0x0055_5047_4d49_5300;
/// Counts up whenever the layout changes.
pub const VERSION: u32 = 11;

/// What device memory is spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum MemoryKind {
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Linear,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemCreate`.
    Vmm,
    /// What pools have reserved.
    Pool,
    /// Arrays and mipmapped arrays.
    Array,
    /// Contexts, with their heaps, stacks and buffers.
    Context,
    /// Code and device variables.
    Module,
    /// What the graph pool has reserved.
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

    /// Its name in the report.
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

/// Bytes in use, now and at the most.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Level {
    /// Bytes in use.
    pub held: u64,
    /// The most that were ever in use.
    pub peak: u64,
}

/// What one process has of one device.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Bytes by [`MemoryKind`].
    pub held: [u64; KINDS],
    /// The most that were ever held, over all kinds.
    pub peak: u64,
    /// Bytes of managed memory that are with the host.
    pub on_host: u64,
    /// The most that were ever there.
    pub on_host_peak: u64,
    /// Allocations that succeeded.
    pub allocations: u64,
    /// Allocations refused for want of memory.
    pub refusals: u64,
    /// Allocations that live.
    pub live: u64,
    /// Contexts that live.
    pub contexts: u64,
    /// Contexts that were ever made.
    pub contexts_made: u64,
    /// Modules and libraries that are loaded.
    pub modules: u64,
    /// Modules and libraries that were ever loaded.
    pub modules_loaded: u64,
    /// Time on the multiprocessors of contexts that are gone.
    pub busy_ns: u64,
    /// Durations of all kernels of contexts that are gone.
    pub kernel_ns: u64,
    /// Kernels of contexts that are gone.
    pub launches: u64,
}

impl Usage {
    /// Bytes over all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.held.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// Life of a process slot.
pub mod life {
    /// Never used.
    pub const FREE: u32 = 0;
    /// A process has it and was not seen to be dead.
    pub const LIVE: u32 = 1;
    /// Its process is dead; the slot tells what it had used.
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
    /// Its number as it sees it itself.
    pub pid: u32,
    /// Whether it runs, or where it is on the way to a checkpoint and back: `checkpoint` has the numbers.
    pub phase: AtomicU32,
    /// Counts all processes that ever joined.
    pub serial: u64,
    /// When it joined, nanoseconds of the monotonic clock.
    pub joined_ns: u64,
    /// The program's name.
    pub name: [u8; NAME],
    /// Bytes by device and [`MemoryKind`] that a checkpoint took off the devices.
    pub parked: [[u64; KINDS]; DEVICES],
    /// Held by a thread of the process for as long as it lives.
    pub life_lock: RobustMutex,
    /// Per device.
    pub usage: [Usage; DEVICES],
}

/// A set of processes whose sum is watched.
#[repr(C)]
#[derive(Debug)]
pub struct Group {
    /// Its name; empty where the group does not exist.
    pub name: [u8; NAME],
    /// Per device, over its processes.
    pub levels: [Level; DEVICES],
}

/// Memory that was given to other processes to use.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Export {
    /// Its number, never used twice; 0 where there is none.
    pub number: u64,
    /// Bytes.
    pub bytes: u64,
    /// The device whose memory it is.
    pub device: u32,
    /// The process that it is charged to.
    pub owner: u32,
    /// What kind of memory it is: a number of [`MemoryKind`].
    pub kind: u64,
    /// The processes that use it, a bit each.
    pub users: [u64; PROCESSES / 64],
}

/// Exports at a time.
pub const EXPORTS: usize = 1024;

/// Memory of a dead process that the device does not have back yet.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Leaving {
    /// Bytes; 0 where the entry is free.
    pub bytes: u64,
    /// When the device has them back, nanoseconds of the monotonic clock.
    pub until_ns: u64,
    /// The device.
    pub device: u32,
    /// Index of the process's group.
    pub group: u32,
}

/// Entries for it. What finds none is back at once.
pub const LEAVING: usize = 256;

/// The shared file, apart from the devices' time.
#[repr(C)]
#[derive(Debug)]
pub struct State {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// 1 once everything else is set.
    pub ready: AtomicU32,
    /// Whoever holds it may touch what follows.
    pub mutex: RobustMutex,
    /// Held during calls that the driver's resource manager serialises on the whole machine. Guards no word.
    pub manager: RobustMutex,
    /// What is simulated.
    pub settings: Settings,
    /// Whether the devices' time has the properties that the settings say.
    pub timed: u64,
    /// Processes that ever joined.
    pub joined: u64,
    /// How often the lock was taken over from a process that died with it.
    pub takeovers: u64,
    /// Slots in which there may be a living process, a bit each: all others need not be looked at.
    pub perhaps_live: [u64; PROCESSES / 64],
    /// When processes were last looked through for dead ones.
    pub looked_ns: u64,
    /// Exports that were ever made.
    pub exported: u64,
    /// Exports.
    pub exports: [Export; EXPORTS],
    /// Memory of the dead.
    pub leaving: [Leaving; LEAVING],
    /// Faults that are switched on at run time.
    pub faults: FaultTable,
    /// Per device, over all processes.
    pub levels: [Level; DEVICES],
    /// Groups.
    pub groups: [Group; GROUPS],
    /// Processes.
    pub processes: [Process; PROCESSES],
}

/// Where the devices' time begins in the file.
pub const ENGINES_AT: usize = size_of::<State>().next_multiple_of(1 << 16);
/// Distance between the times of two devices.
pub const ENGINE_STRIDE: usize = size_of::<EngineState>().next_multiple_of(1 << 16);

impl State {
    /// Makes every total anew from the words of the processes.
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

/// A name cut to the bytes there are for it.
#[must_use]
pub fn name_bytes(name: &[u8]) -> [u8; NAME] {
    let mut bytes = [0; NAME];
    // One byte stays zero, so that a reader in C finds an end.
    for (to, from) in bytes.iter_mut().take(NAME - 1).zip(name) {
        *to = *from;
    }
    bytes
}

/// A stored name as text.
#[must_use]
pub fn name_text(bytes: &[u8; NAME]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(NAME);
    String::from_utf8_lossy(bytes.get(..end).unwrap_or(bytes)).into_owned()
}
