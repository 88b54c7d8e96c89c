//! Contexts: what lived in one that ends?

use super::around;
use crate::driver;
use crate::ledger::{Charge, Owner};
use crate::slice::Slice;
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUcontext, CUdevice, Status, status};

/// Charges that were taken out of the map while the driver ends their context.
type Taken = Vec<(u64, Charge)>;

/// `cuCtxDestroy` in both forms.
pub(crate) unsafe fn destroy(real: real::cuCtxDestroy_v2, context: CUcontext) -> Status {
    // SAFETY: the caller's own argument.
    let call = || unsafe { real(context) };
    around(
        |slice| take(slice, context.addr()),
        call,
        |slice, taken, code| {
            end(slice, taken, code == status::SUCCESS);
        },
    )
}

/// `cuCtxDetach`: ends the context with its last use.
pub(crate) unsafe fn detach(real: real::cuCtxDetach, context: CUcontext) -> Status {
    // SAFETY: the caller's own argument.
    let call = || unsafe { real(context) };
    around(
        |slice| take(slice, context.addr()),
        call,
        |slice, taken, code| {
            end(slice, taken, code == status::SUCCESS && !driver::context_is_alive(context));
        },
    )
}

/// `cuDevicePrimaryCtxRetain`: the only call that tells a primary context's handle.
pub(crate) unsafe fn primary_retain(
    real: real::cuDevicePrimaryCtxRetain,
    output: *mut CUcontext,
    device: CUdevice,
) -> Status {
    // SAFETY: the caller's own arguments.
    let call = || unsafe { real(output, device) };
    around(
        |_| (),
        call,
        |slice, (), code| {
            // SAFETY: the caller's output, which the driver accepted.
            if let Some(context) = unsafe { read_in(output) }.filter(|_| code == status::SUCCESS) {
                let mut primaries = slice.primaries.lock();
                primaries.retain(|(_, of)| *of != device);
                primaries.push((context.addr(), device));
            }
        },
    )
}

/// `cuDevicePrimaryCtxRelease` in both forms: ends the context with its last use.
pub(crate) unsafe fn primary_release(real: real::cuDevicePrimaryCtxRelease_v2, device: CUdevice) -> Status {
    // SAFETY: the caller's own argument.
    let call = || unsafe { real(device) };
    around(
        |slice| take_primary(slice, device),
        call,
        |slice, taken, code| {
            let ended = driver::primary_context_is_active(device) == Some(false);
            end(slice, taken, code == status::SUCCESS && ended);
        },
    )
}

/// `cuDevicePrimaryCtxReset` in both forms: ends the context whoever uses it.
pub(crate) unsafe fn primary_reset(real: real::cuDevicePrimaryCtxReset_v2, device: CUdevice) -> Status {
    // SAFETY: the caller's own argument.
    let call = || unsafe { real(device) };
    around(
        |slice| take_primary(slice, device),
        call,
        |slice, taken, code| {
            end(slice, taken, code == status::SUCCESS);
        },
    )
}

fn take(slice: &Slice, context: usize) -> Taken {
    slice.addresses.take_owned(Owner::Context(context))
}

fn take_primary(slice: &Slice, device: CUdevice) -> Taken {
    let known = slice.primaries.lock().iter().find(|(_, of)| *of == device).map(|(context, _)| *context);
    known.map_or_else(Vec::new, |context| take(slice, context))
}

/// Gives back what lived in a context that ended, or records it again where the context lives on.
fn end(slice: &Slice, taken: Taken, ended: bool) {
    for (address, charge) in taken {
        if ended {
            slice.refund(charge.device, charge.bytes);
        } else {
            slice.addresses.insert(address, charge);
        }
    }
}
