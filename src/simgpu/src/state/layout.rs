//! Layout of the state file. It consists of plain integers, and is valid when all bytes are zero.

use core::sync::atomic::AtomicU32;

use super::settings::Settings;
use super::sizes::{DEVICES, GROUPS, NAME, PROCESSES};
use crate::engine::EngineState;
use crate::faults::FaultTable;
use crate::os::robust_mutex::RobustMutex;

/// The first word of the file: `SIMGPU`, and a number that belongs to the layout.
pub const MAGIC: u64 = 0x0055_5047_4d49_5300;
/// The version of the layout. It must change whenever the layout does.
pub const LAYOUT_VERSION: u32 = 13;

/// The use of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum MemoryKind {
    /// Memory from `cuMemAlloc` and `cuMemAllocPitch`.
    Linear,
    /// Memory from `cuMemAllocManaged`.
    Managed,
    /// Memory from `cuMemCreate`.
    Vmm,
    /// Memory that pools have reserved.
    Pool,
    /// Arrays and mipmapped arrays.
    Array,
    /// Contexts, with their heaps, stacks and buffers.
    Context,
    /// Code and device variables.
    Module,
    /// Memory that graph pools have reserved.
    Graph,
}

/// Number of kinds of memory.
pub const KINDS: usize = 8;

impl MemoryKind {
    /// All kinds, in the order of their numbers.
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

    /// Returns the name of the kind in the report.
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

/// Bytes in use, now and at their peak.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Level {
    /// Bytes in use now.
    pub held: u64,
    /// The most bytes that were in use at once.
    pub peak: u64,
}

/// The figures of one process on one device.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Bytes of each [`MemoryKind`] that the process holds.
    pub held: [u64; KINDS],
    /// The most bytes that the process held at once, of all kinds together.
    pub peak: u64,
    /// Bytes of the process's managed memory that are in host memory.
    pub on_host: u64,
    /// The most bytes of managed memory that were in host memory at once.
    pub on_host_peak: u64,
    /// Number of successful allocations.
    pub allocations: u64,
    /// Number of allocations that failed because the device had too little memory.
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
    /// How long contexts that were removed since used the multiprocessors, in nanoseconds.
    pub busy_ns: u64,
    /// Durations of all kernels of these contexts together, in nanoseconds.
    pub kernel_ns: u64,
    /// Number of kernels of these contexts.
    pub launches: u64,
}

impl Usage {
    /// Returns the bytes of all kinds together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.held.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// The use of the slot of a process.
pub mod life {
    /// No process has the slot, or the figures of the last one were forgotten.
    pub const FREE: u32 = 0;
    /// A process has the slot. It is alive, or it has died and no other process has noticed this.
    pub const LIVE: u32 = 1;
    /// The process of the slot is dead. The slot keeps the process's figures.
    pub const DEAD: u32 = 2;
}

/// A slot, with the figures of one process.
#[repr(C)]
#[derive(Debug)]
pub struct Process {
    /// The use of the slot: a number of [`life`].
    pub life: u32,
    /// Index of the process's group.
    pub group: u32,
    /// The PID that the process itself sees.
    pub pid: u32,
    /// The checkpoint phase of the process, as a number of `checkpoint::phase`.
    pub phase: AtomicU32,
    /// The inode of the namespace in which the process has that PID.
    pub pid_namespace: u64,
    /// The process's position in the order of all processes that ever joined, from 1.
    pub serial: u64,
    /// When the process joined, in nanoseconds of the monotonic clock.
    pub joined_ns: u64,
    /// The program's name.
    pub name: [u8; NAME],
    /// Bytes that a checkpoint took off the devices, by device and [`MemoryKind`].
    pub evicted: [[u64; KINDS]; DEVICES],
    /// The process's life lock: one of its threads holds it until the process ends.
    pub life_lock: RobustMutex,
    /// The process's figures by device.
    pub usage: [Usage; DEVICES],
}

/// A group: processes whose memory is also summed up together.
#[repr(C)]
#[derive(Debug)]
pub struct ProcessGroup {
    /// The group's name; empty for an unused entry.
    pub name: [u8; NAME],
    /// The sum over the processes of the group, by device.
    pub levels: [Level; DEVICES],
}

/// Memory that one process lets other processes use.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Export {
    /// The number of this export, never reused; 0 for an unused entry.
    pub number: u64,
    /// Size of the memory, in bytes.
    pub bytes: u64,
    /// The device of the memory.
    pub device: u32,
    /// The slot of the process that is charged for the memory.
    pub owner: u32,
    /// The [`MemoryKind`] of the memory, as a number.
    pub kind: u64,
    /// The processes that use the memory, one bit for each slot.
    pub users: [u64; PROCESSES / 64],
}

/// Largest number of exports at one time.
pub const EXPORTS: usize = 1024;

/// Memory of a dead process that the device does not have back yet.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Leaving {
    /// Bytes that the device gets back; 0 for an unused entry.
    pub bytes: u64,
    /// When the device has the bytes back, in nanoseconds of the monotonic clock.
    pub until_ns: u64,
    /// The device that gets the bytes back.
    pub device: u32,
    /// Index of the dead process's group.
    pub group: u32,
}

/// Largest number of entries for leaving memory. If no entry is free, the device has the memory back at once.
pub const LEAVING: usize = 256;

/// The shared file, except the engines of the devices. They follow at [`ENGINES_AT`].
#[repr(C)]
#[derive(Debug)]
pub struct State {
    /// The word [`MAGIC`].
    pub magic: u64,
    /// The number [`LAYOUT_VERSION`].
    pub version: u32,
    /// 1 as soon as all other words of the new file are set.
    pub ready: AtomicU32,
    /// The lock of the file, which protects the words that follow.
    pub mutex: RobustMutex,
    /// The lock of the driver's resource manager, for calls that a real driver lets pass one at a time on the whole
    /// machine. It protects no words.
    pub manager: RobustMutex,
    /// The settings of the simulated machine.
    pub settings: Settings,
    /// 1 if the engines have the properties that the settings say.
    pub timed: u64,
    /// Number of processes that ever joined.
    pub joined: u64,
    /// How often a process has taken over the lock from one that died with it.
    pub takeovers: u64,
    /// The slots in which a process may live, one bit for each. In other slots certainly none lives.
    pub perhaps_live: [u64; PROCESSES / 64],
    /// When the slots were last searched for dead processes, in nanoseconds of the monotonic clock.
    pub looked_ns: u64,
    /// Number of exports that were ever made.
    pub exported: u64,
    /// The memory that processes share.
    pub exports: [Export; EXPORTS],
    /// Memory of dead processes that the devices do not have back yet.
    pub leaving: [Leaving; LEAVING],
    /// Faults that are set at run time.
    pub faults: FaultTable,
    /// The sum over all processes, by device.
    pub levels: [Level; DEVICES],
    /// The groups.
    pub groups: [ProcessGroup; GROUPS],
    /// The processes.
    pub processes: [Process; PROCESSES],
}

/// Offset of the first engine in the file.
pub const ENGINES_AT: usize = size_of::<State>().next_multiple_of(1 << 16);
/// Bytes from the start of one engine to the start of the next.
pub const ENGINE_STRIDE: usize = size_of::<EngineState>().next_multiple_of(1 << 16);

impl State {
    /// Computes every total again from the figures of the processes.
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

/// Returns a name in its stored form. A name that is too long is cut.
#[must_use]
pub fn name_bytes(name: &[u8]) -> [u8; NAME] {
    let mut bytes = [0; NAME];
    // The last byte stays zero, so that a reader in C finds the end.
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
