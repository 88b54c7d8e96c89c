//! Memory that this process holds in its slice: the tables of it.

use super::addresses::Addresses;
use super::arrays::Arrays;
use super::device_full::DeviceFullMessages;
use super::ending_contexts::EndingContexts;
use super::graphs::Graphs;
use super::host_spill::Spilled;
use super::libraries::Libraries;
use super::loaded_symbols::LoadedSymbols;
use super::nvml_baseline::Baselines;
use super::overheads::Overheads;
use super::physical::AllocationTable;
use super::pools::Pools;
use super::refusals::{Refusals, RefusedKind};
use super::shared::Shared;
use super::small_blocks::Small;
use super::stream_frees::StreamFrees;
use crate::slice::handle::Slice;
use core::ops::Deref;
use gpuslice_region::Device;
use parking_lot::Mutex;

/// Slice, with the memory of it that this process holds.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Slice in which memory is reserved and charged.
    slice: Slice,
    /// Charge of each address that this process got from the driver.
    pub(crate) addresses: Addresses,
    /// Blocks that small allocations share.
    pub(crate) small: Small,
    /// Charges of addresses that the driver frees when a stream reaches the free.
    pub(crate) stream_frees: StreamFrees,
    /// Physical memory that was taken apart from addresses.
    pub(crate) physical: Mutex<AllocationTable>,
    /// Memory that this process shares with others.
    pub(crate) shared: Shared,
    /// Spilled memory of this process, which is in host memory.
    pub(crate) spilled: Spilled,
    /// Messages about requests that the quota had no room for.
    refusals: Refusals,
    /// Messages about requests that the device had no memory for.
    pub(crate) device_full_messages: DeviceFullMessages,
    /// Arrays that this process made.
    pub(crate) arrays: Arrays,
    /// Pools that this process allocates from.
    pub(crate) pools: Pools,
    /// Executables of graphs that take memory.
    pub(crate) graphs: Graphs,
    /// Memory that this process was charged for beside allocations.
    pub(crate) overheads: Overheads,
    /// Libraries, and the contexts that they are loaded into.
    pub(crate) libraries: Libraries,
    /// Look-ups of code that need not be measured again.
    pub(crate) loaded_symbols: LoadedSymbols,
    /// Figures of the last measurement.
    pub(crate) baselines: Baselines,
    /// Contents of contexts that may be ending.
    pub(crate) ending_contexts: EndingContexts,
}

impl Deref for Memory {
    type Target = Slice;

    #[inline]
    fn deref(&self) -> &Slice {
        &self.slice
    }
}

impl Memory {
    /// Returns the state of a process that holds no memory yet.
    pub(crate) fn new(slice: Slice) -> Self {
        Self {
            slice,
            addresses: Addresses::default(),
            small: Small::default(),
            stream_frees: StreamFrees::default(),
            physical: Mutex::default(),
            shared: Shared::default(),
            spilled: Spilled::default(),
            refusals: Refusals::default(),
            device_full_messages: DeviceFullMessages::default(),
            arrays: Arrays::default(),
            pools: Pools::default(),
            graphs: Graphs::default(),
            overheads: Overheads::default(),
            libraries: Libraries::default(),
            loaded_symbols: LoadedSymbols::default(),
            baselines: Baselines::default(),
            ending_contexts: EndingContexts::default(),
        }
    }

    /// Counts a denial of `asked` bytes that the program gets to see, and prints it.
    #[cold]
    pub(crate) fn count_refusal(&self, device: Device, what: RefusedKind, asked: u64) {
        self.member().count_quota_denial(device);
        self.refusals.say(&self.slice, device, what, asked);
    }

    /// Returns the bytes that the driver has given this process of a device, by the ledger. Bytes that graphs may take later are
    /// charged already, and are not among them.
    pub(crate) fn own(&self, device: Device) -> u64 {
        self.member().own(device).saturating_sub(self.graphs.charged_in_advance(device))
    }
}
