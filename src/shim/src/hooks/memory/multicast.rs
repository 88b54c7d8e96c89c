//! Multicast objects, which stand for memory of several devices.
//!
//! They take no memory, so they are charged nothing. Memory that is bound to one stays charged until it is unbound. It is also
//! released once the object has neither a handle nor a mapping in this process.

use crate::hooks::protocol::around;
use crate::memory::physical::{AllocationId, Bound};
use crate::memory::physical_uses;
use crate::process::Process;
use core::ffi::c_ulonglong;
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{
    CUdevice, CUdeviceptr, CUmemGenericAllocationHandle, CUmulticastObjectProp, Status, status,
};

/// `cuMulticastCreate`.
pub(crate) unsafe fn create(
    real: real::cuMulticastCreate,
    output: *mut CUmemGenericAllocationHandle,
    wanted: *const CUmulticastObjectProp,
) -> Status {
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    let call = || unsafe { real(output, wanted) };
    around(
        |_| (),
        call,
        |process, (), code| {
            // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
            if let Some(handle) = unsafe { read_in(output) }.filter(|_| code == status::SUCCESS) {
                process.physical.lock().add_free(handle);
            }
        },
    )
}

/// `cuMulticastBindMem`.
pub(crate) unsafe fn bind_memory(
    real: real::cuMulticastBindMem,
    object: CUmemGenericAllocationHandle,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
    memory_offset: usize,
    bytes: usize,
    flags: c_ulonglong,
) -> Status {
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    let call = || unsafe { real(object, offset, memory, memory_offset, bytes, flags) };
    bound((object, offset, bytes), |process| physical_uses::pin(process, memory), call)
}

/// `cuMulticastBindMem_v2`.
#[allow(clippy::too_many_arguments, reason = "the driver's own, and the function")]
pub(crate) unsafe fn bind_memory_on(
    real: real::cuMulticastBindMem_v2,
    object: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
    memory_offset: usize,
    bytes: usize,
    flags: c_ulonglong,
) -> Status {
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    let call = || unsafe { real(object, device, offset, memory, memory_offset, bytes, flags) };
    bound((object, offset, bytes), |process| physical_uses::pin(process, memory), call)
}

/// `cuMulticastBindAddr`.
pub(crate) unsafe fn bind_address(
    real: real::cuMulticastBindAddr,
    object: CUmemGenericAllocationHandle,
    offset: usize,
    address: CUdeviceptr,
    bytes: usize,
    flags: c_ulonglong,
) -> Status {
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    let call = || unsafe { real(object, offset, address, bytes, flags) };
    bound((object, offset, bytes), |process| physical_uses::pin_mapped(process, address), call)
}

/// `cuMulticastBindAddr_v2`.
pub(crate) unsafe fn bind_address_on(
    real: real::cuMulticastBindAddr_v2,
    object: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    address: CUdeviceptr,
    bytes: usize,
    flags: c_ulonglong,
) -> Status {
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    let call = || unsafe { real(object, device, offset, address, bytes, flags) };
    bound((object, offset, bytes), |process| physical_uses::pin_mapped(process, address), call)
}

fn bound(
    (object, offset, bytes): (CUmemGenericAllocationHandle, usize, usize),
    pin: impl FnOnce(&'static Process) -> Option<AllocationId>,
    call: impl FnOnce() -> Status,
) -> Status {
    around(pin, call, |process, memory, code| {
        let Some(memory) = memory else { return };
        let bound = Bound { offset: offset as u64, bytes: bytes as u64, memory };
        let is_kept = code == status::SUCCESS && process.physical.lock().bind(object, bound);
        if !is_kept {
            physical_uses::unpin(process, memory);
        }
    })
}

/// `cuMulticastUnbind`: unbinds the memory that one device has bound in a range.
pub(crate) unsafe fn unbind(
    real: real::cuMulticastUnbind,
    object: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    bytes: usize,
) -> Status {
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    let call = || unsafe { real(object, device, offset, bytes) };
    around(
        |process| process.place(device).map(|place| place.device),
        call,
        |process, device, code| {
            if code != status::SUCCESS {
                return;
            }
            let gone = process.physical.lock().unbind(object, device, offset as u64, bytes as u64);
            gone.into_iter().for_each(|memory| physical_uses::unpin(process, memory));
        },
    )
}
