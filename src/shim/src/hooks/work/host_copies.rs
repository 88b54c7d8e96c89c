//! Copies from and to the host, and copies whose direction only their addresses tell.
//!
//! They are no GPU time of the slice. But where a large one lies between kernels, its time must not count as theirs. Calls
//! without `Async` return when the copy is done. While time is paced, the driver is asked for the addresses of a copy of any
//! kind. Within a device it is a copy as in `copies`, and its return tells nothing.

use super::copies::{Count, copied};
use super::launch::{legacy, per_thread};
use crate::driver_calls::memory;
use crate::driver_calls::streams::Stream;
use crate::hooks::gpu_time::{gate, host_copy, is_paced};
use crate::hooks::hooked_call::HookedCall;
use crate::os::reentrancy::enter_or;
use core::ptr;
use gpuslice_driver::types::{CUdeviceptr, CUmemcpyAttributes, CUstream, Status};

/// Declares two hooks for each order of arguments. One is for the calls whose null stream is the legacy default stream, the other
/// for the calls whose null stream is the thread's own.
macro_rules! hooks {
    ($( $(#[$about:meta])* $legacy:ident, $own:ident <$($type:ident),*> ($($arg:ident: $ty:ty),*) of $bytes:ident on $stream:expr,
        $is_sync:literal; )*) => { $(
        hooks! { $(#[$about])* legacy $legacy <$($type),*> ($($arg: $ty),*) $bytes, $stream, $is_sync }
        hooks! { $(#[$about])* per_thread $own <$($type),*> ($($arg: $ty),*) $bytes, $stream, $is_sync }
    )* };
    ($(#[$about:meta])* $on:ident $name:ident <$($type:ident),*> ($($arg:ident: $ty:ty),*) $bytes:ident,
        $stream:expr, $is_sync:literal) => {
        $(#[$about])*
        pub(crate) fn $name<$($type: Copy,)* N: Count>(
            call: &HookedCall<unsafe extern "C-unwind" fn($($ty),*) -> Status>,
        ) -> Status {
            let ($($arg,)*) = call.arguments();
            host_copy($on($stream), $bytes.wide(), $is_sync, || call.forward())
        }
    };
}

hooks! {
    /// `cuMemcpyHtoD` and `cuMemcpyDtoH`.
    copy, copy_per_thread<A, B>(_to: A, _from: B, bytes: N) of bytes on ptr::null_mut(), true;
    /// `cuMemcpyHtoDAsync` and `cuMemcpyDtoHAsync`.
    copy_async, copy_async_per_thread<A, B>(_to: A, _from: B, bytes: N, stream: CUstream) of bytes on stream, false;
    /// `cuMemcpyHtoA` and `cuMemcpyAtoH`, which differ in where the offset stands.
    array, array_per_thread<A, B, C>(_to: A, _second: B, _third: C, bytes: N) of bytes on ptr::null_mut(), true;
    /// `cuMemcpyHtoAAsync` and `cuMemcpyAtoHAsync`.
    array_async, array_async_per_thread<A, B, C>(
        _to: A, _second: B, _third: C, bytes: N, stream: CUstream
    ) of bytes on stream, false;
}

/// Declares the hooks of the calls whose addresses may be of any memory.
macro_rules! between_any {
    ($( $(#[$about:meta])* $on:ident $name:ident($($last:ident: $ty:ty),*) $stream:expr; )*) => { $(
        $(#[$about])*
        pub(crate) fn $name(
            call: &HookedCall<unsafe extern "C-unwind" fn(CUdeviceptr, CUdeviceptr, usize $(, $ty)*) -> Status>,
        ) -> Status {
            let (to, from, bytes, $($last),*) = call.arguments();
            any($on($stream), (to, from), bytes, || call.forward())
        }
    )* };
}

between_any! {
    /// `cuMemcpy`.
    legacy anywhere() ptr::null_mut();
    /// `cuMemcpy_ptds`.
    per_thread anywhere_per_thread() ptr::null_mut();
    /// `cuMemcpyAsync`.
    legacy anywhere_async(stream: CUstream) stream;
    /// `cuMemcpyAsync_ptsz`.
    per_thread anywhere_async_per_thread(stream: CUstream) stream;
    /// `cuMemcpyWithAttributesAsync`.
    legacy anywhere_with(_attributes: *mut CUmemcpyAttributes, stream: CUstream) stream;
    /// `cuMemcpyWithAttributesAsync_ptsz`.
    per_thread anywhere_with_per_thread(_attributes: *mut CUmemcpyAttributes, stream: CUstream) stream;
}

fn any(
    stream: Stream,
    (to, from): (CUdeviceptr, CUdeviceptr),
    bytes: usize,
    call: impl FnOnce() -> Status,
) -> Status {
    let is_within = || memory::is_on_device(to) && memory::is_on_device(from);
    if is_paced() && enter_or(is_within, false) {
        return gate(|| copied(bytes.wide(), stream), call);
    }
    host_copy(stream, bytes.wide(), false, call)
}
