//! Memory that the library allocates, frees or advises, and facts about addresses.

use super::capture_mode::{relaxed_if_capturing, with_relaxed_capture_mode};
use core::ffi::c_uint;
use core::ptr;
use gpuslice_driver::Symbol;
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{CUdevice, CUdeviceptr, CUmemLocation, Status, memory_type, status};

/// `CU_MEM_ADVISE_SET_PREFERRED_LOCATION`.
pub(crate) const PREFER: c_uint = 3;

/// `CU_MEM_ADVISE_SET_ACCESSED_BY`.
const LET_ACCESS: c_uint = 5;

/// `CU_DEVICE_CPU`: names the host in place of a device.
pub(crate) const HOST: CUdevice = -1;

/// The host as a location. Its number means nothing.
pub(crate) const HOST_PLACE: CUmemLocation = CUmemLocation { kind: 2, id: 0 };

/// Allocates managed memory in the current context, and returns its address.
pub(crate) fn allocate_managed(bytes: u64, flags: c_uint) -> Result<u64, Status> {
    let function = slot::real::<real::cuMemAllocManaged>(Symbol::cuMemAllocManaged);
    let function = function.ok_or(status::NOT_SUPPORTED)?;
    let bytes = usize::try_from(bytes).map_err(|_| status::OUT_OF_MEMORY)?;
    let mut address: CUdeviceptr = 0;
    // SAFETY: the function needs an output that is valid for writes: `address` is on this stack.
    done(unsafe { function(&raw mut address, bytes, flags) })?;
    Ok(address)
}

/// Advises the driver to keep managed memory in host memory, whichever device uses it.
pub(crate) fn prefer_host(address: u64, bytes: u64) -> Result<(), Status> {
    advise(address, bytes, PREFER, HOST)
}

/// Advises the driver to map managed memory for a device wherever the memory is, so that accesses of the device do not move it.
pub(crate) fn let_access(address: u64, bytes: u64, device: CUdevice) -> Result<(), Status> {
    advise(address, bytes, LET_ACCESS, device)
}

/// Gives an advice by the first form of the function, or by the second form if the driver does not have the first.
fn advise(address: u64, bytes: u64, advice: c_uint, device: CUdevice) -> Result<(), Status> {
    let bytes = usize::try_from(bytes).map_err(|_| status::INVALID_VALUE)?;
    if let Some(function) = slot::real::<real::cuMemAdvise>(Symbol::cuMemAdvise) {
        // SAFETY: the function needs valid values: the driver checks them. It takes no pointer.
        return done(unsafe { function(address, bytes, advice, device) });
    }
    let place = if device == HOST { HOST_PLACE } else { CUmemLocation { kind: 1, id: device } };
    let function = slot::real::<real::cuMemAdvise_v2>(Symbol::cuMemAdvise_v2).ok_or(status::NOT_SUPPORTED)?;
    // SAFETY: the function needs valid values: the driver checks them. It takes no pointer.
    done(unsafe { function(address, bytes, advice, place) })
}

/// Frees memory that the program never saw, or that the program has asked to free. The driver waits for all uses of the memory.
pub(crate) fn free(address: u64) -> Status {
    slot::real::<real::cuMemFree_v2>(Symbol::cuMemFree_v2).map_or(status::NOT_SUPPORTED, |free| {
        // SAFETY: the function requires memory that no code uses any more, by this function's contract. The driver checks the
        // address.
        with_relaxed_capture_mode(|| unsafe { free(address) })
    })
}

fn done(code: Status) -> Result<(), Status> {
    if code == status::SUCCESS { Ok(()) } else { Err(code) }
}

/// Returns true if the driver reports that an address is in a device's memory.
pub(crate) fn is_on_device(address: u64) -> bool {
    /// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`.
    const MEMORY_TYPE: c_uint = 2;
    let Some(function) = slot::real::<real::cuPointerGetAttribute>(Symbol::cuPointerGetAttribute) else {
        return false;
    };
    let mut kind: c_uint = 0;
    // SAFETY: the function needs an output as wide as the attribute: `kind` is an integer of that width. The driver checks the
    // address.
    let code = relaxed_if_capturing(|| unsafe { function((&raw mut kind).cast(), MEMORY_TYPE, address) });
    code == status::SUCCESS && kind == memory_type::DEVICE
}

/// Returns the start of the allocation in which an address lies.
pub(crate) fn start_of(address: CUdeviceptr) -> Option<u64> {
    relaxed_if_capturing(|| ask!(cuMemGetAddressRange_v2, CUdeviceptr, ptr::null_mut(), address))
}
