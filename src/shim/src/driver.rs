//! What do we ask the driver ourselves? Always through the real functions, never through our own entries.

use crate::captures::apart;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::mem::MaybeUninit;
use gpuslice_driver::Symbol;
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::device_attribute::OF_HOST_MEMORY;
use gpuslice_driver::types::{
    CUcontext, CUdevice, CUdeviceptr, CUfunction, CUgreenCtx, CUkernel, CUlibrary, CUmemLocation,
    CUmemoryPool, CUmodule, CUstream, Status, memory_type, nvmlDevice_t, status,
};
use std::ptr;

/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
const RESERVED_CURRENT: c_uint = 5;
/// `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`.
const USED_CURRENT: c_uint = 7;
/// `CU_STREAM_CAPTURE_STATUS_NONE`.
const NOT_CAPTURING: c_uint = 0;

/// Calls a real function whose first argument is an output, and returns that output if the call succeeded.
macro_rules! ask {
    ($name:ident, $output:ty $(, $argument:expr)*) => {{
        let mut output = MaybeUninit::<$output>::zeroed();
        let function = slot::real::<real::$name>(Symbol::$name)?;
        // SAFETY: the output is valid for writes, the other arguments are values.
        let code = unsafe { function(output.as_mut_ptr().cast() $(, $argument)*) };
        // SAFETY: zeroed at first and plain data, so initialised whatever the driver wrote.
        (code == status::SUCCESS).then(|| unsafe { output.assume_init() })
    }};
}

/// The version of the driver API.
pub(crate) fn version() -> Option<c_int> {
    ask!(cuDriverGetVersion, c_int)
}

/// The address that `cuGetProcAddress` finds, by its oldest form, which every driver has; none where it finds none.
pub(crate) fn proc_address(name: &CStr, version: c_int, flags: u64) -> Option<*const c_void> {
    let function = slot::real::<real::cuGetProcAddress>(Symbol::cuGetProcAddress)?;
    let mut found = ptr::null_mut();
    // SAFETY: a text that ends in zero and room for the answer.
    let code = unsafe { function(name.as_ptr(), &raw mut found, version, flags) };
    (code == status::SUCCESS && !found.is_null()).then_some(found.cast_const())
}

/// The context that is current on this thread, as a number; none where there is none.
pub(crate) fn current_context() -> Option<usize> {
    let context: CUcontext = ask!(cuCtxGetCurrent, CUcontext)?;
    (!context.is_null()).then(|| context.expose_provenance())
}

/// The device of the context that is current on this thread.
pub(crate) fn current_device() -> Option<CUdevice> {
    ask!(cuCtxGetDevice, CUdevice)
}

/// How many devices CUDA shows; none before a successful `cuInit`.
pub(crate) fn device_count() -> Option<c_int> {
    ask!(cuDeviceGetCount, c_int)
}

/// The handle of a device.
pub(crate) fn device(ordinal: c_int) -> Option<CUdevice> {
    ask!(cuDeviceGet, CUdevice, ordinal)
}

/// The UUID of a device, or of the instance that a device is.
pub(crate) fn device_uuid(device: CUdevice) -> Option<[u8; 16]> {
    newest_uuid(device).or_else(|| ask!(cuDeviceGetUuid, [u8; 16], device))
}

/// The form that knows instances, from CUDA 11.4 on.
fn newest_uuid(device: CUdevice) -> Option<[u8; 16]> {
    ask!(cuDeviceGetUuid_v2, [u8; 16], device)
}

/// Bytes of memory that a device has.
pub(crate) fn device_total(device: CUdevice) -> Option<u64> {
    ask!(cuDeviceTotalMem_v2, usize, device).map(|bytes| bytes as u64)
}

/// Bytes that nobody holds of the device of the current context.
pub(crate) fn device_free() -> Option<u64> {
    let function = slot::real::<real::cuMemGetInfo_v2>(Symbol::cuMemGetInfo_v2)?;
    let (mut free, mut total) = (0_usize, 0_usize);
    // SAFETY: both outputs are valid for writes.
    let code = beside_captures(|| unsafe { function(&raw mut free, &raw mut total) });
    (code == status::SUCCESS).then_some(free as u64)
}

/// Managed memory of the current context, by its address.
pub(crate) fn allocate_managed(bytes: u64, flags: c_uint) -> Result<u64, Status> {
    let function = slot::real::<real::cuMemAllocManaged>(Symbol::cuMemAllocManaged);
    let function = function.ok_or(status::NOT_SUPPORTED)?;
    let bytes = usize::try_from(bytes).map_err(|_| status::OUT_OF_MEMORY)?;
    let mut address: CUdeviceptr = 0;
    // SAFETY: the output is valid for writes.
    done(unsafe { function(&raw mut address, bytes, flags) })?;
    Ok(address)
}

/// `CU_MEM_ADVISE_SET_PREFERRED_LOCATION`.
pub(crate) const PREFER: c_uint = 3;
/// `CU_MEM_ADVISE_SET_ACCESSED_BY`.
const LET_ACCESS: c_uint = 5;
/// `CU_DEVICE_CPU`: the host, where a device is named.
pub(crate) const HOST: CUdevice = -1;
/// The host as a place. Its number means nothing.
pub(crate) const HOST_PLACE: CUmemLocation = CUmemLocation { kind: 2, id: 0 };

/// Makes managed memory stay with the host, whoever uses it.
pub(crate) fn prefer_host(address: u64, bytes: u64) -> Result<(), Status> {
    advise(address, bytes, PREFER, HOST)
}

/// Makes managed memory be mapped for a device wherever it is, so that no use of it is a reason to move it.
pub(crate) fn let_access(address: u64, bytes: u64, device: CUdevice) -> Result<(), Status> {
    advise(address, bytes, LET_ACCESS, device)
}

/// By the first form, or where a driver has none any more by the second.
fn advise(address: u64, bytes: u64, advice: c_uint, device: CUdevice) -> Result<(), Status> {
    let bytes = usize::try_from(bytes).map_err(|_| status::INVALID_VALUE)?;
    if let Some(function) = slot::real::<real::cuMemAdvise>(Symbol::cuMemAdvise) {
        // SAFETY: values only; the driver checks them.
        return done(unsafe { function(address, bytes, advice, device) });
    }
    let place = if device == HOST { HOST_PLACE } else { CUmemLocation { kind: 1, id: device } };
    let function = slot::real::<real::cuMemAdvise_v2>(Symbol::cuMemAdvise_v2).ok_or(status::NOT_SUPPORTED)?;
    // SAFETY: as above.
    done(unsafe { function(address, bytes, advice, place) })
}

/// Frees memory that the program never got to see, or whose free is ours to do. The driver waits for all that uses it.
pub(crate) fn free(address: u64) -> Status {
    slot::real::<real::cuMemFree_v2>(Symbol::cuMemFree_v2).map_or(status::NOT_SUPPORTED, |free| {
        // SAFETY: an address that the driver gave out, and the program names no more.
        beside_captures(|| unsafe { free(address) })
    })
}

/// Waits until a stream has done what it was given.
pub(crate) fn wait_for(stream: CUstream) -> Status {
    slot::real::<real::cuStreamSynchronize>(Symbol::cuStreamSynchronize).map_or(
        status::NOT_SUPPORTED,
        |wait| {
            // SAFETY: the driver checks the handle.
            unsafe { wait(stream) }
        },
    )
}

fn done(code: Status) -> Result<(), Status> {
    if code == status::SUCCESS { Ok(()) } else { Err(code) }
}

/// A property of a device, by its number.
pub(crate) fn device_attribute(device: CUdevice, attribute: c_uint) -> Option<u64> {
    ask!(cuDeviceGetAttribute, c_int, attribute, device).and_then(|value| u64::try_from(value).ok())
}

/// Multiprocessors of a device.
pub(crate) fn multiprocessors(device: CUdevice) -> Option<u64> {
    /// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
    const MULTIPROCESSOR_COUNT: c_uint = 16;
    device_attribute(device, MULTIPROCESSOR_COUNT)
}

/// Whether a device's memory is the host's, so that its free memory moves with every program of the machine: an integrated GPU, or
/// one whose memory is a NUMA node of the system or in the host's page tables.
pub(crate) fn shares_host_memory(device: CUdevice) -> bool {
    OF_HOST_MEMORY
        .into_iter()
        .any(|attribute| device_attribute(device, attribute).is_some_and(|value| value != 0))
}

/// Whether an address is of a device's memory, as far as the driver says.
pub(crate) fn is_on_device(address: u64) -> bool {
    /// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`.
    const MEMORY_TYPE: c_uint = 2;
    let Some(function) = slot::real::<real::cuPointerGetAttribute>(Symbol::cuPointerGetAttribute) else {
        return false;
    };
    let mut kind: c_uint = 0;
    // SAFETY: this attribute has the width of the output; the driver checks the address.
    let code = apart(|| unsafe { function((&raw mut kind).cast(), MEMORY_TYPE, address) });
    code == status::SUCCESS && kind == memory_type::DEVICE
}

/// A limit of the current context.
pub(crate) fn context_limit(limit: c_uint) -> Option<usize> {
    beside_captures(|| ask!(cuCtxGetLimit, usize, limit))
}

/// Whether libraries are loaded into all contexts at once.
pub(crate) fn loads_eagerly() -> bool {
    /// `CU_MODULE_EAGER_LOADING`.
    const EAGER: c_uint = 1;
    beside_captures(|| ask!(cuModuleGetLoadingMode, c_uint)) == Some(EAGER)
}

/// The library of a kernel.
pub(crate) fn library_of_kernel(kernel: CUkernel) -> Option<usize> {
    let library = beside_captures(|| ask!(cuKernelGetLibrary, CUlibrary, kernel))?;
    Some(library.addr())
}

/// The module of a function.
pub(crate) fn module_of_function(function: CUfunction) -> Option<usize> {
    let module = beside_captures(|| ask!(cuFuncGetModule, CUmodule, function))?;
    Some(module.addr())
}

/// Whether a device's primary context is alive.
pub(crate) fn primary_context_is_active(device: CUdevice) -> Option<bool> {
    let function = slot::real::<real::cuDevicePrimaryCtxGetState>(Symbol::cuDevicePrimaryCtxGetState)?;
    let (mut flags, mut active): (c_uint, c_int) = (0, 0);
    // SAFETY: both outputs are valid for writes.
    let code = beside_captures(|| unsafe { function(device, &raw mut flags, &raw mut active) });
    (code == status::SUCCESS).then_some(active != 0)
}

/// Whether a context is still alive.
pub(crate) fn context_is_alive(context: CUcontext) -> bool {
    let mut version: c_uint = 0;
    let function = slot::real::<real::cuCtxGetApiVersion>(Symbol::cuCtxGetApiVersion);
    // SAFETY: the output is valid for writes; the driver checks the handle.
    function.is_some_and(|function| unsafe { function(context, &raw mut version) } == status::SUCCESS)
}

/// The context that a stream belongs to; the current one for the default streams.
pub(crate) fn stream_context(stream: CUstream) -> Option<usize> {
    // 0 is the default stream, 1 the legacy one, 2 the thread's own.
    if stream.addr() <= 2 {
        return current_context();
    }
    let function = slot::real::<real::cuStreamGetCtx>(Symbol::cuStreamGetCtx)?;
    let mut context: CUcontext = ptr::null_mut();
    // SAFETY: the output is valid for writes; the driver checks the handle.
    let code = apart(|| unsafe { function(stream, &raw mut context) });
    (code == status::SUCCESS && !context.is_null()).then(|| context.expose_provenance())
}

/// The handle by which a green context is used as a context.
pub(crate) fn view_of(green: CUgreenCtx) -> Option<usize> {
    let function = slot::real::<real::cuCtxFromGreenCtx>(Symbol::cuCtxFromGreenCtx)?;
    let mut view: CUcontext = ptr::null_mut();
    // SAFETY: the output is valid for writes; the driver checks the handle.
    let code = apart(|| unsafe { function(&raw mut view, green) });
    (code == status::SUCCESS && !view.is_null()).then(|| view.expose_provenance())
}

/// Whether what is launched on a stream waits for the legacy default stream, and that for it. So it is where the driver does
/// not say.
pub(crate) fn waits_for_legacy(stream: CUstream) -> bool {
    const NON_BLOCKING: u32 = 1;
    let Some(function) = slot::real::<real::cuStreamGetFlags>(Symbol::cuStreamGetFlags) else { return true };
    let mut flags = 0;
    // SAFETY: the output is valid for writes; the driver checks the handle.
    let code = apart(|| unsafe { function(stream, &raw mut flags) });
    code != status::SUCCESS || flags & NON_BLOCKING == 0
}

/// The device of a context that need not be current.
pub(crate) fn context_device(context: usize) -> Option<CUdevice> {
    within(context, current_device)?
}

/// Runs calls with a context current that need not be. None if it cannot be made current.
pub(crate) fn within<T>(context: usize, calls: impl FnOnce() -> T) -> Option<T> {
    if current_context() == Some(context) {
        return Some(calls());
    }
    let push = slot::real::<real::cuCtxPushCurrent_v2>(Symbol::cuCtxPushCurrent_v2)?;
    let pop = slot::real::<real::cuCtxPopCurrent_v2>(Symbol::cuCtxPopCurrent_v2)?;
    // SAFETY: a context that the driver gave out; it is taken off the stack again below.
    let code = unsafe { push(ptr::with_exposed_provenance_mut(context)) };
    if code != status::SUCCESS {
        return None;
    }
    let done = calls();
    let mut popped: CUcontext = ptr::null_mut();
    // SAFETY: the output is valid for writes; takes off what was pushed above.
    unsafe { pop(&raw mut popped) };
    Some(done)
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub(crate) const RELAXED: c_uint = 2;

/// Sets what this thread's calls may do while anything is captured; what it was before.
pub(crate) fn exchange_capture_mode(mode: c_uint) -> Option<c_uint> {
    let mut mode = mode;
    let function =
        slot::real::<real::cuThreadExchangeStreamCaptureMode>(Symbol::cuThreadExchangeStreamCaptureMode)?;
    // SAFETY: an enumeration of the size of an integer, valid for reads and writes.
    let code = unsafe { function((&raw mut mode).cast()) };
    (code == status::SUCCESS).then_some(mode)
}

/// Makes calls that the driver does not let a thread make while others capture in global mode. What is asked often is made
/// [`apart`], which looks first whether anything is captured.
pub(crate) fn beside_captures<T>(calls: impl FnOnce() -> T) -> T {
    let before = exchange_capture_mode(RELAXED);
    let done = calls();
    if let Some(mode) = before {
        exchange_capture_mode(mode);
    }
    done
}

/// Where the allocation begins that an address lies in.
pub(crate) fn start_of(address: CUdeviceptr) -> Option<u64> {
    apart(|| ask!(cuMemGetAddressRange_v2, CUdeviceptr, ptr::null_mut(), address))
}

/// The pool that stream-ordered allocations of a device come from.
pub(crate) fn current_pool(device: CUdevice) -> Option<usize> {
    let pool = apart(|| ask!(cuDeviceGetMemPool, CUmemoryPool, device))?;
    Some(pool.expose_provenance())
}

/// The pool that a device has from the start.
pub(crate) fn default_pool(device: CUdevice) -> Option<usize> {
    let pool = apart(|| ask!(cuDeviceGetDefaultMemPool, CUmemoryPool, device))?;
    Some(pool.expose_provenance())
}

/// Bytes that a pool holds of its device's memory.
pub(crate) fn pool_reserved(pool: usize) -> Option<u64> {
    pool_attribute(pool, RESERVED_CURRENT)
}

/// Bytes of a pool that allocations hold.
pub(crate) fn pool_used(pool: usize) -> Option<u64> {
    pool_attribute(pool, USED_CURRENT)
}

fn pool_attribute(pool: usize, attribute: c_uint) -> Option<u64> {
    let function = slot::real::<real::cuMemPoolGetAttribute>(Symbol::cuMemPoolGetAttribute)?;
    let mut value = 0_u64;
    let pool = ptr::with_exposed_provenance_mut(pool);
    // SAFETY: both attributes that are asked for are 64-bit; the driver checks the handle.
    let code = apart(|| unsafe { function(pool, attribute, (&raw mut value).cast()) });
    (code == status::SUCCESS).then_some(value)
}

/// Makes a pool give back what no allocation holds, down to `keep` bytes.
pub(crate) fn trim_pool(pool: usize, keep: u64) {
    let Ok(keep) = usize::try_from(keep) else { return };
    if let Some(function) = slot::real::<real::cuMemPoolTrimTo>(Symbol::cuMemPoolTrimTo) {
        // SAFETY: the driver checks the handle; nothing is written.
        beside_captures(|| unsafe { function(ptr::with_exposed_provenance_mut(pool), keep) });
    }
}

/// Whether a stream records its calls instead of running them.
pub(crate) fn is_capturing(stream: CUstream) -> bool {
    slot::real::<real::cuStreamIsCapturing>(Symbol::cuStreamIsCapturing)
        .is_some_and(|function| capture_state(function, stream).is_some_and(|state| state != NOT_CAPTURING))
}

/// Whether a stream may record its calls instead of running them: where the driver does not say that it runs them, a
/// capture elsewhere forbids to touch it.
pub(crate) fn may_capture(stream: CUstream, per_thread: bool) -> bool {
    let function = if per_thread {
        slot::real::<real::cuStreamIsCapturing_ptsz>(Symbol::cuStreamIsCapturing_ptsz)
    } else {
        slot::real::<real::cuStreamIsCapturing>(Symbol::cuStreamIsCapturing)
    };
    function.is_some_and(|function| capture_state(function, stream) != Some(NOT_CAPTURING))
}

fn capture_state(function: real::cuStreamIsCapturing, stream: CUstream) -> Option<c_uint> {
    let mut state: c_uint = NOT_CAPTURING;
    // SAFETY: the output is an enumeration of the size of an integer; the driver checks the handle.
    let code = unsafe { function(stream, (&raw mut state).cast()) };
    (code == status::SUCCESS).then_some(state)
}

/// The text by which NVML names a device, `GPU-…` or `MIG-…`.
pub(crate) fn nvml_uuid(device: nvmlDevice_t) -> Option<String> {
    let function = slot::real::<real::nvmlDeviceGetUUID>(Symbol::nvmlDeviceGetUUID)?;
    let mut text = [0_u8; 96];
    // SAFETY: writes at most the given number of bytes.
    let code = unsafe { function(device, text.as_mut_ptr().cast::<c_char>(), 96) };
    let text = CStr::from_bytes_until_nul(&text).ok()?;
    (code == status::SUCCESS).then(|| text.to_string_lossy().into_owned())
}
