//! Memory pools of stream-ordered allocation.

use super::capture_mode::{relaxed_if_capturing, with_relaxed_capture_mode};
use core::ffi::c_uint;
use core::ptr;
use gpuslice_driver::Symbol;
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{CUdevice, CUmemoryPool, status};

/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
const POOL_RESERVED_CURRENT: c_uint = 5;

/// `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`.
const POOL_USED_CURRENT: c_uint = 7;

/// Returns the pool from which stream-ordered allocations of a device come.
pub(crate) fn current_pool(device: CUdevice) -> Option<usize> {
    let pool = relaxed_if_capturing(|| ask!(cuDeviceGetMemPool, CUmemoryPool, device))?;
    Some(pool.expose_provenance())
}

/// Returns the default pool of a device.
pub(crate) fn default_pool(device: CUdevice) -> Option<usize> {
    let pool = relaxed_if_capturing(|| ask!(cuDeviceGetDefaultMemPool, CUmemoryPool, device))?;
    Some(pool.expose_provenance())
}

/// Returns the bytes that a pool holds of its device's memory.
pub(crate) fn pool_reserved(pool: usize) -> Option<u64> {
    pool_attribute(pool, POOL_RESERVED_CURRENT)
}

/// Returns the bytes of a pool that allocations hold.
pub(crate) fn pool_used(pool: usize) -> Option<u64> {
    pool_attribute(pool, POOL_USED_CURRENT)
}

fn pool_attribute(pool: usize, attribute: c_uint) -> Option<u64> {
    let function = slot::real::<real::cuMemPoolGetAttribute>(Symbol::cuMemPoolGetAttribute)?;
    let mut value = 0_u64;
    let pool = ptr::with_exposed_provenance_mut(pool);
    // SAFETY: the function needs an output as wide as the attribute: `value` is 64 bits wide, as both attributes are. The driver
    // checks the handle.
    let code = relaxed_if_capturing(|| unsafe { function(pool, attribute, (&raw mut value).cast()) });
    (code == status::SUCCESS).then_some(value)
}

/// Makes a pool release memory that no allocation holds, down to `keep` bytes.
pub(crate) fn trim_pool(pool: usize, keep: u64) {
    let Ok(keep) = usize::try_from(keep) else { return };
    if let Some(function) = slot::real::<real::cuMemPoolTrimTo>(Symbol::cuMemPoolTrimTo) {
        // SAFETY: the function needs a living handle: the driver checks it. The function writes no memory of this process.
        with_relaxed_capture_mode(|| unsafe { function(ptr::with_exposed_provenance_mut(pool), keep) });
    }
}
