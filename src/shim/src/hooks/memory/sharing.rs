//! Memory that one process shares with another.
//!
//! The process that made the memory pays for it. An import is charged nothing. If the exporter is of the same slice, the import
//! is noted as a use, and inherits the charge when the exporter ends first. Memory of another slice is charged to that slice.

use super::physical::Incoming;
use crate::driver_calls::memory;
use crate::hooks::hooked_call::HookedCall;
use crate::hooks::protocol::around;
use crate::memory::share_keys::{self, HANDLE_BYTES};
use crate::process::Process;
use core::ffi::{c_int, c_uint};
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUdeviceptr, CUipcMemHandle, CUmemPoolPtrExportData, Status, status};
use gpuslice_region::SharedUse;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, and `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`.
const DESCRIPTOR: c_uint = 1;
/// `CU_MEM_HANDLE_TYPE_FABRIC`.
const FABRIC: c_uint = 8;

type HandleBytes = [u8; HANDLE_BYTES];

const _: () = assert!(size_of::<CUipcMemHandle>() == HANDLE_BYTES);
const _: () = assert!(size_of::<CUmemPoolPtrExportData>() == HANDLE_BYTES);

/// The leading fields of `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`, as far as descriptors need them.
#[repr(C)]
#[derive(Clone, Copy)]
struct ExternalHandle {
    kind: c_uint,
    unused: c_uint,
    descriptor: c_int,
}

/// `cuMemExportToShareableHandle`.
pub(crate) fn export(call: &HookedCall<real::cuMemExportToShareableHandle>) -> Status {
    let (output, handle, kind, _) = call.arguments();
    around(
        |process| process.physical.lock().number_of(handle),
        || call.forward(),
        |process, number, code| {
            let Some(number) = number.filter(|_| code == status::SUCCESS) else { return };
            let mut tables = process.physical.lock();
            match kind {
                DESCRIPTOR => {
                    let key = tables.descriptor_key(number).or_else(share_keys::new_key);
                    // SAFETY: `read_in` requires null or a readable descriptor. For this kind of handle the driver requires room
                    // for one at `output`.
                    let descriptor = unsafe { read_in(output.cast::<c_int>()) };
                    if let Some((key, descriptor)) = key.zip(descriptor)
                        && share_keys::set_key(descriptor, key)
                    {
                        tables.lend(process, number, key);
                    }
                }
                FABRIC => {
                    // SAFETY: `read_in` requires null or readable bytes. For this kind of handle the driver requires room for
                    // them at `output`.
                    if let Some(bytes) = unsafe { read_in(output.cast::<HandleBytes>()) } {
                        tables.lend(process, number, share_keys::key_of_bytes(&bytes));
                    }
                }
                _ => {}
            }
        },
    )
}

/// `cuMemImportFromShareableHandle`.
pub(crate) fn import(call: &HookedCall<real::cuMemImportFromShareableHandle>) -> Status {
    let (output, from, kind) = call.arguments();
    let key = || match kind {
        // A descriptor travels in the pointer itself.
        DESCRIPTOR => c_int::try_from(from.addr()).ok().and_then(share_keys::key_of_descriptor),
        FABRIC => {
            // SAFETY: `read_in` requires null or readable bytes. For this kind of handle the driver reads as many at `from`.
            let bytes = unsafe { read_in(from.cast::<HandleBytes>()) };
            bytes.map(|bytes| share_keys::key_of_bytes(&bytes))
        }
        _ => None,
    };
    around(
        |process| {
            process.shared.note_import();
            Incoming::expect(process, key())
        },
        || call.forward(),
        |process, incoming, code| {
            // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
            let handle = unsafe { read_in(output) }.filter(|_| code == status::SUCCESS);
            match handle {
                Some(handle) => incoming.arrive(process, handle),
                None => incoming.fail(process),
            }
        },
    )
}

/// `cuIpcGetMemHandle`.
pub(crate) fn ipc_get(call: &HookedCall<real::cuIpcGetMemHandle>) -> Status {
    let (output, address) = call.arguments();
    // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
    lent(address, || call.forward(), || unsafe { read_in(output.cast::<HandleBytes>()) })
}

/// `cuMemPoolExportPointer`.
pub(crate) fn pool_export_pointer(call: &HookedCall<real::cuMemPoolExportPointer>) -> Status {
    let (output, address) = call.arguments();
    // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
    lent(address, || call.forward(), || unsafe { read_in(output.cast::<HandleBytes>()) })
}

/// Makes a call that lends memory at an address to other processes, by a handle of bytes.
fn lent(
    address: CUdeviceptr,
    call: impl FnOnce() -> Status,
    handle: impl FnOnce() -> Option<HandleBytes>,
) -> Status {
    around(
        |_| (),
        call,
        |process, (), code| {
            let Some(bytes) = handle().filter(|_| code == status::SUCCESS) else { return };
            // The handle stands for the whole allocation, wherever in it the address lies.
            let base = memory::start_of(address).unwrap_or(address);
            process.lend_address(base, share_keys::key_of_bytes(&bytes));
        },
    )
}

/// `cuIpcOpenMemHandle` in both forms.
pub(crate) fn ipc_open(call: &HookedCall<real::cuIpcOpenMemHandle_v2>) -> Status {
    let (output, handle, _) = call.arguments();
    // SAFETY: `read_in` requires readable bytes: `handle` is a local value of this size.
    let bytes = || unsafe { read_in((&raw const handle).cast::<HandleBytes>()) };
    // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
    opened(bytes, || call.forward(), || unsafe { read_in(output) })
}

/// `cuMemPoolImportPointer`.
pub(crate) fn pool_import_pointer(call: &HookedCall<real::cuMemPoolImportPointer>) -> Status {
    let (output, _, data) = call.arguments();
    // SAFETY: `read_in` requires null or readable bytes. The driver reads as many at `data`.
    let bytes = || unsafe { read_in(data.cast_const().cast::<HandleBytes>()) };
    // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
    opened(bytes, || call.forward(), || unsafe { read_in(output) })
}

/// Makes a call that maps memory of another process to an address of this one.
fn opened(
    bytes: impl FnOnce() -> Option<HandleBytes>,
    call: impl FnOnce() -> Status,
    address: impl FnOnce() -> Option<u64>,
) -> Status {
    let expect = |process: &'static Process| {
        process.shared.note_import();
        let used = bytes().and_then(|bytes| process.borrow(share_keys::key_of_bytes(&bytes)));
        (used, process.owner_of_current().unwrap_or(0))
    };
    around(expect, call, |process, (used, context), code| {
        match address().filter(|_| code == status::SUCCESS) {
            Some(address) => {
                used.iter().for_each(|used| process.settle_use(used));
                process.shared.open(process, address, context, used);
            }
            None => fail(process, used),
        }
    })
}

/// Ends the expected use, because the driver refused the import.
fn fail(process: &Process, used: Option<SharedUse>) {
    if let Some(used) = used {
        process.end_use(used, true);
    }
}

/// `cuIpcCloseMemHandle`.
pub(crate) fn ipc_close(call: &HookedCall<real::cuIpcCloseMemHandle>) -> Status {
    let (address,) = call.arguments();
    around(
        |process| process.take_shared(address),
        || call.forward(),
        |process, ending, code| {
            if code == status::SUCCESS {
                ending.end(process);
            } else {
                process.shared.put_back(address, ending);
            }
        },
    )
}

/// `cuMemPoolImportFromShareableHandle`: imports a pool of another process, so that nothing of it is charged here.
pub(crate) fn pool_import(call: &HookedCall<real::cuMemPoolImportFromShareableHandle>) -> Status {
    let (output, ..) = call.arguments();
    around(
        |_| (),
        || call.forward(),
        |process, (), code| {
            // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
            if let Some(pool) = unsafe { read_in(output) }.filter(|_| code == status::SUCCESS) {
                process.pools.add_host(pool.addr());
            }
        },
    )
}

/// `cuImportExternalMemory`: imports memory of another interface, which that interface pays for, or memory that CUDA exported.
pub(crate) fn external_import(call: &HookedCall<real::cuImportExternalMemory>) -> Status {
    let (output, wanted) = call.arguments();
    let expect = |process: &'static Process| {
        process.shared.note_import();
        // SAFETY: `read_in` requires null or readable bytes. The driver reads `wanted`, which begins with them; an integer stands
        // for the enumeration.
        let given = unsafe { read_in(wanted.cast::<ExternalHandle>()) };
        let descriptor = given.filter(|given| given.kind == DESCRIPTOR)?.descriptor;
        process.borrow(share_keys::key_of_descriptor(descriptor)?)
    };
    let forward = || call.forward();
    around(expect, forward, |process, used, code| {
        let Some(used) = used else { return };
        // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
        match unsafe { read_in(output) }.filter(|_| code == status::SUCCESS) {
            Some(object) => {
                process.settle_use(&used);
                process.shared.import(object.addr(), used);
            }
            None => process.end_use(used, true),
        }
    })
}

/// `cuDestroyExternalMemory`: afterwards the program must not use buffers and arrays over that memory.
pub(crate) fn external_destroy(call: &HookedCall<real::cuDestroyExternalMemory>) -> Status {
    let (object,) = call.arguments();
    around(
        |process| process.shared.take_import(object.addr()),
        || call.forward(),
        |process, used, code| {
            let Some(used) = used else { return };
            if code == status::SUCCESS {
                process.end_use(used, true);
            } else {
                process.shared.import(object.addr(), used);
            }
        },
    )
}
