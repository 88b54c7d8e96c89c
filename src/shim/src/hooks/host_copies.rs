//! Copies from and to the host, and those whose direction only the driver knows: how large are they, and who waits?
//!
//! They are not GPU time of the slice's, but where a large one lies between kernels its time must not be taken for theirs.
//! Calls without `Async` come back when the copy is done; one between addresses of any kind may not (within a device
//! nobody waits), so nothing is concluded from its return.

use super::copies::Count;
use super::launch::{legacy, per_thread};
use crate::compute::host_copy;
use core::ptr;
use gpuslice_driver::types::{CUstream, Status};

/// Declares for each order of arguments the hook of the calls whose null stream is the legacy default stream, and that of
/// those whose null stream is the thread's own.
macro_rules! hooks {
    ($( $(#[$about:meta])* $legacy:ident, $own:ident <$($type:ident),*> ($($arg:ident: $ty:ty),*) of $bytes:ident on $stream:expr,
        $is_sync:literal; )*) => { $(
        hooks! { $(#[$about])* legacy $legacy <$($type),*> ($($arg: $ty),*) $bytes, $stream, $is_sync }
        hooks! { $(#[$about])* per_thread $own <$($type),*> ($($arg: $ty),*) $bytes, $stream, $is_sync }
    )* };
    ($(#[$about:meta])* $on:ident $name:ident <$($type:ident),*> ($($arg:ident: $ty:ty),*) $bytes:ident,
        $stream:expr, $is_sync:literal) => {
        $(#[$about])*
        pub(crate) unsafe fn $name<$($type: Copy,)* N: Count>(
            real: unsafe extern "C-unwind" fn($($ty),*) -> Status,
            $($arg: $ty),*
        ) -> Status {
            // SAFETY: the caller's own arguments.
            host_copy($on($stream), $bytes.wide(), $is_sync, || unsafe { real($($arg),*) })
        }
    };
}

hooks! {
    /// `cuMemcpyHtoD` and `cuMemcpyDtoH`.
    copy, copy_per_thread<A, B>(to: A, from: B, bytes: N) of bytes on ptr::null_mut(), true;
    /// `cuMemcpyHtoDAsync` and `cuMemcpyDtoHAsync`; `cuMemcpyAsync`.
    copy_async, copy_async_per_thread<A, B>(to: A, from: B, bytes: N, stream: CUstream) of bytes on stream, false;
    /// `cuMemcpyHtoA` and `cuMemcpyAtoH`, which differ in where the offset stands.
    array, array_per_thread<A, B, C>(to: A, second: B, third: C, bytes: N) of bytes on ptr::null_mut(), true;
    /// `cuMemcpyHtoAAsync` and `cuMemcpyAtoHAsync`.
    array_async, array_async_per_thread<A, B, C>(to: A, second: B, third: C, bytes: N, stream: CUstream) of bytes on stream, false;
    /// `cuMemcpy`.
    any, any_per_thread<A>(to: A, from: A, bytes: N) of bytes on ptr::null_mut(), false;
}
