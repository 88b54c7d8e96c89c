//! Calls after which a stream waits for something other than a kernel: an event, a host function, a copy between devices.
//!
//! The library does not know how long that takes, and it is no GPU time. So the open batch of kernels ends before the call.
//! Otherwise the wait would lie between the batch's events and count as time of its kernels.

use super::launch::{legacy, per_thread};
use crate::hooks::gpu_time::ends_run;
use crate::hooks::hooked_call::HookedCall;
use core::ptr;
use gpuslice_driver::types::{CUstream, Status};

/// Declares two hooks for each order of arguments. One is for the calls whose null stream is the legacy default stream, the other
/// for the calls whose null stream is the thread's own.
macro_rules! hooks {
    ($( $(#[$about:meta])* $legacy:ident, $own:ident <$($type:ident),*> ($($arg:ident: $ty:ty),*) on $stream:expr; )*) => { $(
        hooks! { $(#[$about])* legacy $legacy <$($type),*> ($($arg: $ty),*) $stream }
        hooks! { $(#[$about])* per_thread $own <$($type),*> ($($arg: $ty),*) $stream }
    )* };
    ($(#[$about:meta])* $on:ident $name:ident <$($type:ident),*> ($($arg:ident: $ty:ty),*) $stream:expr) => {
        $(#[$about])*
        pub(crate) fn $name<$($type: Copy),*>(
            call: &HookedCall<unsafe extern "C-unwind" fn($($ty),*) -> Status>,
        ) -> Status {
            let ($($arg,)*) = call.arguments();
            ends_run($on($stream), || call.forward())
        }
    };
}

hooks! {
    /// `cuStreamWaitEvent` and `cuLaunchHostFunc`.
    first_of_three, first_of_three_per_thread<A, B>(stream: CUstream, _second: A, _third: B) on stream;
    /// `cuStreamWaitValue32`, `cuStreamBatchMemOp`, `cuStreamAddCallback` and `cuLaunchHostFunc_v2`.
    first_of_four, first_of_four_per_thread<A, B, C>(stream: CUstream, _second: A, _third: B, _fourth: C) on stream;
    /// `cuMemcpy3DPeer`.
    none_of_one, none_of_one_per_thread<A>(_copy: A) on ptr::null_mut();
    /// `cuMemcpyPeer`.
    none_of_five, none_of_five_per_thread<A, B, C, D, E>(_to: A, _there: B, _from: C, _here: D, _bytes: E) on ptr::null_mut();
    /// `cuMemcpy3DPeerAsync`.
    last_of_two, last_of_two_per_thread<A>(_copy: A, stream: CUstream) on stream;
    /// `cuWaitExternalSemaphoresAsync` and `cuFabricCpyBatchAsync`.
    last_of_four, last_of_four_per_thread<A, B, C>(_first: A, _second: B, _third: C, stream: CUstream) on stream;
    /// `cuMemcpyPeerAsync`.
    last_of_six, last_of_six_per_thread<A, B, C, D, E>(
        _to: A, _there: B, _from: C, _here: D, _bytes: E, stream: CUstream
    ) on stream;
}
