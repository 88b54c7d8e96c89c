//! Copies within the device, and fills.
//!
//! The driver runs them on multiprocessors or copy engines, and both use the device's memory bandwidth. Their cost goes by
//! operation and size: powers of two share an estimate. A copy is none of these where its arguments show memory of the host, or
//! where only the driver knows its direction (`host_copies`).

use super::launch::{legacy, per_thread};
use crate::compute::{Launch, LaunchKind};
use crate::driver_calls::streams::Stream;
use crate::hooks::gpu_time::{gate, host_copy};
use crate::hooks::hooked_call::HookedCall;
use core::ptr;
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::types::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUarray, CUstream, PlaneCopy, Status, VolumeCopy, c_uint, memory_type,
};
use gpuslice_policy::compute::cost::estimate::{Key, LaunchShape};

/// Operation, in the place of a function's handle: no handle is that small.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Copy = 1,
    CopyOfArray = 2,
    CopyOfRows = 3,
    Fill = 4,
    FillOfRows = 5,
    Batch = 6,
}

/// A number of bytes or elements in either width.
pub(crate) trait Count: Copy {
    /// Returns the number with 64 bits.
    fn wide(self) -> u64;
}

impl Count for usize {
    fn wide(self) -> u64 {
        self as u64
    }
}

impl Count for c_uint {
    fn wide(self) -> u64 {
        u64::from(self)
    }
}

/// Describes an operation on `bytes` bytes. All sizes up to a KiB share an estimate, and then all up to each power of two.
fn work(operation: Operation, bytes: u64, stream: Stream) -> Launch {
    in_parts(operation, bytes, 1, stream)
}

/// Describes an operation on `bytes` bytes in `parts` parts. Each power of two of parts has its own estimate.
fn in_parts(operation: Operation, bytes: u64, parts: u64, stream: Stream) -> Launch {
    let power = |of: u64| {
        let power = of.max(1).checked_next_power_of_two();
        power.and_then(|power| c_uint::try_from(power).ok()).unwrap_or(c_uint::MAX)
    };
    let grid = [power(bytes.div_ceil(1024)), power(parts), 1];
    let shape = LaunchShape { function: operation as u64, grid, block: [0; 3], shared: 0 };
    Launch { key: Key::kernel(&shape), kind: LaunchKind::Copy, stream }
}

/// Describes a batch of `count` copies of `bytes` bytes together.
pub(crate) fn copied_together(bytes: u64, count: usize, stream: Stream) -> Launch {
    in_parts(Operation::Batch, bytes, count as u64, stream)
}

/// Describes a copy of `bytes` contiguous bytes.
pub(crate) fn copied(bytes: u64, stream: Stream) -> Launch {
    work(Operation::Copy, bytes, stream)
}

/// Returns the bytes of `height` rows of `width` elements of type `V`.
fn rows<V>(width: impl Count, height: impl Count) -> u64 {
    width.wide().saturating_mul(height.wide()).saturating_mul(size_of::<V>() as u64)
}

/// Declares two hooks for each operation. One is for the calls whose null stream is the legacy default stream, the other for the
/// calls whose null stream is the thread's own. All forms of a call with the same order of arguments share a hook.
macro_rules! hooks {
    ($( $(#[$about:meta])* $legacy:ident, $own:ident <$($type:ident $(: $bound:ident)?),*>
        ($($arg:ident: $ty:ty),*) on $stream:expr => $operation:ident, $bytes:expr; )*) => { $(
        hooks! { $(#[$about])* legacy $legacy <$($type $(: $bound)?),*> ($($arg: $ty),*) $stream, $operation, $bytes }
        hooks! { $(#[$about])* per_thread $own <$($type $(: $bound)?),*> ($($arg: $ty),*) $stream, $operation, $bytes }
    )* };
    ($(#[$about:meta])* $on:ident $name:ident <$($type:ident $(: $bound:ident)?),*> ($($arg:ident: $ty:ty),*)
        $stream:expr, $operation:ident, $bytes:expr) => {
        $(#[$about])*
        pub(crate) fn $name<$($type: Copy $(+ $bound)?),*>(
            call: &HookedCall<unsafe extern "C-unwind" fn($($ty),*) -> Status>,
        ) -> Status {
            let ($($arg,)*) = call.arguments();
            gate(|| work(Operation::$operation, $bytes, $on($stream)), || call.forward())
        }
    };
}

hooks! {
    /// `cuMemcpyDtoD`.
    copy, copy_per_thread<A, N: Count>(_to: A, _from: A, bytes: N) on ptr::null_mut() => Copy, bytes.wide();
    /// `cuMemcpyDtoDAsync`.
    copy_async, copy_async_per_thread<A, N: Count>(_to: A, _from: A, bytes: N, stream: CUstream) on stream
        => Copy, bytes.wide();
    /// `cuMemcpyAtoA`.
    between_arrays, between_arrays_per_thread<N: Count>(
        _to: CUarray, _to_offset: N, _from: CUarray, _from_offset: N, bytes: N
    ) on ptr::null_mut() => CopyOfArray, bytes.wide();
    /// `cuMemcpyAtoD`.
    from_array, from_array_per_thread<A, N: Count>(_to: A, _from: CUarray, _offset: N, bytes: N) on ptr::null_mut()
        => CopyOfArray, bytes.wide();
    /// `cuMemcpyDtoA`.
    to_array, to_array_per_thread<A, N: Count>(_to: CUarray, _offset: N, _from: A, bytes: N) on ptr::null_mut()
        => CopyOfArray, bytes.wide();
    /// `cuMemsetD8`, `cuMemsetD16`, `cuMemsetD32`.
    fill, fill_per_thread<A, V, N: Count>(_to: A, _value: V, count: N) on ptr::null_mut()
        => Fill, rows::<V>(count, 1_usize);
    /// `cuMemsetD8Async` and the like.
    fill_async, fill_async_per_thread<A, V, N: Count>(_to: A, _value: V, count: N, stream: CUstream) on stream
        => Fill, rows::<V>(count, 1_usize);
    /// `cuMemsetD2D8` and the like.
    fill_rows, fill_rows_per_thread<A, V, N: Count>(_to: A, _pitch: N, _value: V, width: N, height: N)
        on ptr::null_mut() => FillOfRows, rows::<V>(width, height);
    /// `cuMemsetD2D8Async` and the like.
    fill_rows_async, fill_rows_async_per_thread<A, V, N: Count>(
        _to: A, _pitch: N, _value: V, width: N, height: N, stream: CUstream
    ) on stream => FillOfRows, rows::<V>(width, height);
}

/// Memories between which a copy moves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Between {
    /// Source and destination are memory of devices, arrays included.
    Devices,
    /// At least one is memory of the host.
    Host,
    /// Only the driver knows them.
    Unknown,
}

impl Between {
    fn of(from: c_uint, to: c_uint) -> Self {
        let is_device = |kind| matches!(kind, memory_type::DEVICE | memory_type::ARRAY);
        match (from, to) {
            (from, to) if is_device(from) && is_device(to) => Self::Devices,
            (memory_type::HOST, _) | (_, memory_type::HOST) => Self::Host,
            _ => Self::Unknown,
        }
    }
}

/// Description of a copy in memory.
pub(crate) trait Description {
    /// Returns the bytes that are copied, and the memories between which they move; `None` if `copy` is null.
    ///
    /// # Safety
    /// `copy` is null or valid for reads.
    unsafe fn bytes(copy: *const Self) -> Option<(u64, Between)>;
}

impl Description for CUDA_MEMCPY2D {
    unsafe fn bytes(copy: *const Self) -> Option<(u64, Between)> {
        // SAFETY: by this function's contract `copy` is null or readable. `PlaneCopy` is the same structure with integers for
        // enumerations.
        let copy: PlaneCopy = unsafe { read_in(copy.cast()) }?;
        Some((rows::<u8>(copy.width, copy.height), Between::of(copy.from.kind, copy.to.kind)))
    }
}

impl Description for CUDA_MEMCPY3D {
    unsafe fn bytes(copy: *const Self) -> Option<(u64, Between)> {
        // SAFETY: by this function's contract `copy` is null or readable. `VolumeCopy` is the same structure with integers for
        // enumerations.
        let copy: VolumeCopy = unsafe { read_in(copy.cast()) }?;
        let bytes = rows::<u8>(copy.width, copy.height).saturating_mul(copy.depth as u64);
        Some((bytes, Between::of(copy.from.kind, copy.to.kind)))
    }
}

/// Makes a copy that is described in memory.
///
/// # Safety
/// `copy` is null or valid for reads.
unsafe fn described_on<C: Description>(
    copy: *const C,
    stream: Stream,
    is_sync: bool,
    call: impl FnOnce() -> Status,
) -> Status {
    // SAFETY: by this function's contract `copy` is null or valid.
    match unsafe { C::bytes(copy) } {
        Some((bytes, Between::Devices)) => gate(|| work(Operation::CopyOfRows, bytes, stream), call),
        Some((bytes, between)) => host_copy(stream, bytes, is_sync && between == Between::Host, call),
        None => call(),
    }
}

macro_rules! described {
    ($( $(#[$about:meta])* $on:ident $name:ident ($($stream:ident)?); )*) => { $(
        $(#[$about])*
        pub(crate) fn $name<C: Description>(
            call: &HookedCall<unsafe extern "C-unwind" fn(*const C $(, described!(@type $stream))?) -> Status>,
        ) -> Status {
            let (copy, $($stream)?) = call.arguments();
            let on = $on(described!(@handle $($stream)?));
            // SAFETY: `described_on` requires that `copy` is null or readable, and so does the driver.
            unsafe { described_on(copy, on, described!(@sync $($stream)?), || call.forward()) }
        }
    )* };
    (@type $stream:ident) => { CUstream };
    (@handle $stream:ident) => { $stream };
    (@handle) => { ptr::null_mut() };
    (@sync $stream:ident) => { false };
    (@sync) => { true };
}

described! {
    /// `cuMemcpy2D`, aligned or not, and `cuMemcpy3D`.
    legacy described();
    /// `cuMemcpy2D`, aligned or not, and `cuMemcpy3D`, with a null stream that is the thread's own.
    per_thread described_per_thread();
    /// `cuMemcpy2DAsync` and `cuMemcpy3DAsync`.
    legacy described_async(stream);
    /// `cuMemcpy2DAsync` and `cuMemcpy3DAsync`, with a null stream that is the thread's own.
    per_thread described_async_per_thread(stream);
}
