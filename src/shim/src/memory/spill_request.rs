//! Allocation that the library serves from host memory, because the quota has no room for it.

use super::host_spill::HostBlock;
use super::state::Memory;
use crate::driver_calls::{contexts, devices, memory};
use crate::os::{host_memory, messages};
use crate::slice::device::SliceDevice;
use core::fmt::Display;
use gpuslice_driver::types::{CUdevice, Status, status};
use gpuslice_policy::config::{LogLevel, gpu_uuid_text};
use gpuslice_policy::units::Bytes;
use gpuslice_region::Device;
use once_cell::race::OnceBool;

/// Allocation for which the quota has no room and that host memory may serve.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostReservation {
    pub(crate) memory: &'static Memory,
    /// Device on which the memory would have been.
    pub(crate) device: Device,
    handle: CUdevice,
    /// Context of the allocation.
    context: usize,
    bytes: u64,
}

/// Reason why an allocation is not served from host memory.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Host memory cannot serve the allocation, so the library refuses it.
    Full,
    /// The driver returned an error that it would also return for the program's own call.
    Status(Status),
}

impl HostReservation {
    /// Returns the bytes that the program asks for.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns a claim to host memory, if the slice may have any and the device can use it.
    #[cold]
    pub(crate) fn new(
        memory: &'static Memory,
        place: SliceDevice,
        context: Option<usize>,
        bytes: u64,
    ) -> Option<Self> {
        if !memory.region().limits(place.device).oversubscribe {
            return None;
        }
        if !devices::shares_managed_memory(place.handle) {
            say_once(&place, &"the device cannot use managed memory that the host has");
            return None;
        }
        if !host_memory::has_room_for(bytes) {
            say_once(&place, &format_args!("the host has no room for {}", Bytes::new(bytes)));
            return None;
        }
        Some(Self { memory, device: place.device, handle: place.handle, context: context?, bytes })
    }

    /// Gets the memory and returns its address. The caller records the address. The function calls the driver, so a hook must not
    /// call it while it decides or settles.
    pub(crate) fn get(&self, flags: u32) -> Result<u64, Failure> {
        // The bytes are counted before the allocation, so that spilled memory is never larger than the count.
        self.memory.member().spill(self.device, self.bytes);
        let got = contexts::within(self.context, || self.get_here(flags));
        let got = got.unwrap_or(Err((Failure::Full, "its context cannot be used", status::SUCCESS)));
        got.map_err(|(failure, what, code)| {
            self.memory.member().unspill(self.device, self.bytes);
            if let (Failure::Full, Some(place)) = (&failure, self.memory.place(self.handle)) {
                say_once(&place, &format_args!("{what} (status {code})"));
            }
            failure
        })
    }

    fn get_here(&self, flags: u32) -> Result<u64, (Failure, &'static str, Status)> {
        let address = memory::allocate_managed(self.bytes, flags).map_err(|code| {
            let failure = match code {
                status::OUT_OF_MEMORY | status::NOT_SUPPORTED => Failure::Full,
                code => Failure::Status(code),
            };
            (failure, "the driver gives no managed memory", code)
        })?;
        // Without `prefer_host`, accesses of the device move pages to it. Without `let_access`, its atomic operations do.
        let kept = memory::prefer_host(address, self.bytes)
            .and_then(|()| memory::let_access(address, self.bytes, self.handle));
        kept.map(|()| address).map_err(|code| {
            memory::free(address);
            (Failure::Full, "the driver does not keep managed memory with the host", code)
        })
    }

    /// Records the address of memory that the program has got.
    pub(crate) fn record(&self, address: u64) {
        let block = HostBlock { device: self.device, bytes: self.bytes, context: self.context };
        self.memory.spilled.add(address, block);
        static SAID: OnceBool = OnceBool::new();
        if SAID.set(true).is_ok() {
            messages::say(
                LogLevel::Warn,
                &format_args!(
                    "gpuslice: the quota has no room for {}: it is served from host memory, which the GPU reaches over the bus (GPU_MEM_OVERSUBSCRIBE=1).",
                    Bytes::new(self.bytes)
                ),
            );
        }
    }
}

/// Prints, once in the process, the reason why the library refuses a request that it could not serve from host memory.
fn say_once(place: &SliceDevice, why: &dyn Display) {
    static SAID: OnceBool = OnceBool::new();
    if SAID.set(true).is_ok() {
        messages::say(
            LogLevel::Warn,
            &format_args!(
                "gpuslice: {}: {why}; what passes the quota is refused although GPU_MEM_OVERSUBSCRIBE=1.",
                gpu_uuid_text(&place.uuid)
            ),
        );
    }
}
