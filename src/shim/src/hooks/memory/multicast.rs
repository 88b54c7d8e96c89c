//! Multicast objects, which stand for memory of several devices.
//!
//! They take no memory, so they are charged nothing. Memory that is bound to one stays charged until it is unbound. It is also
//! released once the object has neither a handle nor a mapping in this process.

use crate::hooks::hooked_call::HookedCall;
use crate::hooks::protocol::around;
use crate::memory::physical::{AllocationId, Bound};
use crate::memory::physical_uses;
use crate::process::Process;
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUmemGenericAllocationHandle, Status, status};

/// `cuMulticastCreate`.
pub(crate) fn create(call: &HookedCall<real::cuMulticastCreate>) -> Status {
    let (output, _) = call.arguments();
    around(
        |_| (),
        || call.forward(),
        |process, (), code| {
            // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
            if let Some(handle) = unsafe { read_in(output) }.filter(|_| code == status::SUCCESS) {
                process.physical.lock().add_free(handle);
            }
        },
    )
}

/// `cuMulticastBindMem`.
pub(crate) fn bind_memory(call: &HookedCall<real::cuMulticastBindMem>) -> Status {
    let (object, offset, memory, _, bytes, _) = call.arguments();
    bound((object, offset, bytes), |process| physical_uses::pin(process, memory), || call.forward())
}

/// `cuMulticastBindMem_v2`.
pub(crate) fn bind_memory_on(call: &HookedCall<real::cuMulticastBindMem_v2>) -> Status {
    let (object, _, offset, memory, _, bytes, _) = call.arguments();
    bound((object, offset, bytes), |process| physical_uses::pin(process, memory), || call.forward())
}

/// `cuMulticastBindAddr`.
pub(crate) fn bind_address(call: &HookedCall<real::cuMulticastBindAddr>) -> Status {
    let (object, offset, address, bytes, _) = call.arguments();
    bound((object, offset, bytes), |process| physical_uses::pin_mapped(process, address), || call.forward())
}

/// `cuMulticastBindAddr_v2`.
pub(crate) fn bind_address_on(call: &HookedCall<real::cuMulticastBindAddr_v2>) -> Status {
    let (object, _, offset, address, bytes, _) = call.arguments();
    bound((object, offset, bytes), |process| physical_uses::pin_mapped(process, address), || call.forward())
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
pub(crate) fn unbind(call: &HookedCall<real::cuMulticastUnbind>) -> Status {
    let (object, device, offset, bytes) = call.arguments();
    around(
        |process| process.place(device).map(|place| place.device),
        || call.forward(),
        |process, device, code| {
            if code != status::SUCCESS {
                return;
            }
            let gone = process.physical.lock().unbind(object, device, offset as u64, bytes as u64);
            gone.into_iter().for_each(|memory| physical_uses::unpin(process, memory));
        },
    )
}
