//! Tables of the memory that this process holds in its slice.

use super::addresses::Addresses;
use super::arrays::Arrays;
use super::device_full::DeviceFullMessages;
use super::ending_contexts::EndingContexts;
use super::graphs::Graphs;
use super::host_spill::Spilled;
use super::libraries::Libraries;
use super::loaded_symbols::LoadedSymbols;
use super::managed_bytes::ManagedBytes;
use super::nvml_baseline::Baselines;
use super::overheads::Overheads;
use super::physical::AllocationTable;
use super::pools::Pools;
use super::refusals::{Refusals, RefusedKind};
use super::shared::Shared;
use super::small_blocks::Small;
use super::stream_frees::StreamFrees;
use crate::driver_calls::nvml::memory::{Session, Silence};
use crate::slice::device::SliceDevice;
use crate::slice::handle::Slice;
use core::ops::Deref;
use gpuslice_region::Device;
use parking_lot::Mutex;

/// Slice, with the tables of the memory that this process holds in it.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Slice in which memory is reserved and charged.
    slice: Slice,
    /// Charge of each address that this process got from the driver.
    pub(crate) addresses: Addresses,
    /// Blocks that small allocations share.
    pub(crate) small: Small,
    /// Bytes of managed memory.
    pub(crate) managed: ManagedBytes,
    /// Charges of addresses that the driver frees when a stream reaches the free.
    pub(crate) stream_frees: StreamFrees,
    /// Physical memory that this process holds apart from addresses.
    pub(crate) physical: Mutex<AllocationTable>,
    /// Memory that this process shares with other processes.
    pub(crate) shared: Shared,
    /// Spilled memory of this process.
    pub(crate) spilled: Spilled,
    /// Messages about requests for which the quota had no room.
    refusals: Refusals,
    /// Messages about requests for which the device had no memory.
    pub(crate) device_full_messages: DeviceFullMessages,
    /// Arrays that this process made.
    pub(crate) arrays: Arrays,
    /// Pools that this process allocates from.
    pub(crate) pools: Pools,
    /// Executables of graphs that take memory.
    pub(crate) graphs: Graphs,
    /// Memory that this process was charged for and that is no allocation.
    pub(crate) overheads: Overheads,
    /// Libraries, and the contexts into which they are loaded.
    pub(crate) libraries: Libraries,
    /// Look-ups of code that the library need not measure again.
    pub(crate) loaded_symbols: LoadedSymbols,
    /// Baseline of each device, from the last measurement.
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
            managed: ManagedBytes::default(),
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

    /// Counts a denial of `asked` bytes that the program sees as an error, and prints a message about it.
    #[cold]
    pub(crate) fn count_refusal(&self, device: Device, what: RefusedKind, asked: u64) {
        self.member().count_quota_denial(device);
        self.refusals.say(&self.slice, device, what, asked);
    }

    /// Returns the bytes of a device that this process holds, by a source of NVML's figures.
    pub(crate) fn own_by(&self, device: Device, nvml: Session) -> Result<u64, Silence> {
        let answer = nvml.own();
        self.baselines.note_answer(answer);
        Ok(self.with_managed(device, answer?))
    }

    /// Returns the bytes of a device that this process holds by NVML's figure `nvml`. NVML reports no managed memory.
    fn with_managed(&self, device: Device, nvml: u64) -> u64 {
        nvml.saturating_add(self.managed.bytes(device))
    }

    /// Returns true if NVML's figure and the ledger may count different memory. Then a change counts only if free memory shows it
    /// too.
    pub(crate) fn needs_both_figures(&self) -> bool {
        self.shared.has_imported() || self.managed.has_uncounted()
    }

    /// Returns the bytes of a device that this process holds by NVML. `None`: NVML does not answer, or did not lately.
    pub(crate) fn ask_nvml(&self, place: SliceDevice) -> Option<u64> {
        Some(self.with_managed(place.device, self.baselines.ask(place)?))
    }

    /// Returns the bytes of a device that the driver has given to this process, by the ledger. It leaves out bytes that are
    /// charged for graphs in advance.
    pub(crate) fn own(&self, device: Device) -> u64 {
        self.member().own(device).saturating_sub(self.graphs.charged_in_advance(device))
    }
}
