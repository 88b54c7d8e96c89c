//! The frame of every call of the driver API: faults, locks, and access to the caller's memory.

use core::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use gpuslice_driver::types::{Status, status};
use gpuslice_driver::{Symbol, arguments};

use crate::faults;
use crate::process::simulation::{self, Simulation};
use crate::process::thread_state;
use crate::status::{Outcome, statuses};

/// A call of the driver API in progress.
///
/// The code that makes this value promises: every pointer of the call is null or valid for the accesses of the driver API. So the
/// methods that follow such pointers are safe.
#[derive(Debug)]
pub struct DriverCall {
    address: fn(Symbol) -> *mut c_void,
}

/// Runs an exported function: applies the faults first, and then calls `work`. No panic leaves this function.
///
/// # Safety
/// Every pointer that `work` has from the caller must be null or valid for the accesses that the driver API makes through it.
pub unsafe fn enter(
    symbol: Symbol,
    address: fn(Symbol) -> *mut c_void,
    work: impl FnOnce(&DriverCall) -> Result<(), Status>,
) -> Status {
    let driver = DriverCall { address };
    let done = catch_unwind(AssertUnwindSafe(|| driver.run(symbol, work)));
    done.unwrap_or(statuses::UNKNOWN)
}

/// Returns true if a function works without `cuInit`.
fn works_uninitialised(symbol: Symbol) -> bool {
    matches!(
        symbol,
        Symbol::cuInit
            | Symbol::cuDriverGetVersion
            | Symbol::cuGetErrorName
            | Symbol::cuGetErrorString
            | Symbol::cuGetExportTable
            | Symbol::cuGetProcAddress
            | Symbol::cuGetProcAddress_v2
    )
}

impl DriverCall {
    fn run(&self, symbol: Symbol, work: impl FnOnce(&Self) -> Outcome) -> Status {
        let simulation = simulation::get();
        let verdict = faults::before(symbol, simulation.map(|simulation| simulation.shared.faults()));
        let outcome = match verdict.status {
            Some(wanted) => Err(wanted),
            // A host function may not call the driver. With the real driver, the call would deadlock.
            None if thread_state::in_callback() && !works_uninitialised(symbol) => Err(status::NOT_PERMITTED),
            None if simulation.is_none() && !works_uninitialised(symbol) => Err(status::NOT_INITIALIZED),
            None => {
                if let Some(simulation) = simulation {
                    simulation.wait_while_locked(symbol);
                    simulation.wait_while_loading(symbol);
                }
                work(self)
            }
        };
        if verdict.last {
            faults::die();
        }
        outcome.err().unwrap_or(status::SUCCESS)
    }

    /// Returns the simulation, if this process has joined it.
    pub(crate) fn simulation(&self) -> Result<&'static Simulation, Status> {
        simulation::get().ok_or(status::NOT_INITIALIZED)
    }

    /// Returns the address of the exported function of a symbol.
    pub(crate) fn address_of(&self, symbol: Symbol) -> *mut c_void {
        (self.address)(symbol)
    }

    /// Writes a result. The pointer must not be null.
    pub(crate) fn write<T: Copy>(&self, to: *mut T, value: T) -> Outcome {
        if to.is_null() {
            return Err(status::INVALID_VALUE);
        }
        self.offer(to, value);
        Ok(())
    }

    /// Writes a result, unless the pointer is null.
    pub(crate) fn offer<T: Copy>(&self, to: *mut T, value: T) {
        // SAFETY: `write_out` needs a pointer that is null or good for a write: the invariant of `DriverCall`.
        unsafe { arguments::write_out(to, value) };
    }

    /// Reads an argument. The pointer must not be null.
    pub(crate) fn read<T: Copy>(&self, from: *const T) -> Result<T, Status> {
        // SAFETY: `read_in` needs a pointer that is null or good for a read: the invariant of `DriverCall`.
        unsafe { arguments::read_in(from) }.ok_or(status::INVALID_VALUE)
    }

    /// Reads an element of an array argument. The pointer must not be null.
    pub(crate) fn read_at<T: Copy>(&self, from: *const T, index: usize) -> Result<T, Status> {
        if from.is_null() {
            return Err(status::INVALID_VALUE);
        }
        self.read(from.wrapping_add(index))
    }

    /// Writes an element of an array result. The pointer must not be null.
    pub(crate) fn write_at<T: Copy>(&self, to: *mut T, index: usize, value: T) -> Outcome {
        if to.is_null() {
            return Err(status::INVALID_VALUE);
        }
        self.write(to.wrapping_add(index), value)
    }

    /// Returns a text of the caller. The pointer must not be null.
    pub(crate) fn text(&self, from: *const c_char) -> Result<&CStr, Status> {
        if from.is_null() {
            return Err(status::INVALID_VALUE);
        }
        // SAFETY: `CStr::from_ptr` needs a text that ends in zero: `from` is not null, so it is one by the invariant.
        Ok(unsafe { CStr::from_ptr(from) })
    }

    /// Returns `length` bytes of the caller. The pointer must not be null.
    pub(crate) fn bytes(&self, from: *const c_void, length: usize) -> Result<&[u8], Status> {
        if from.is_null() {
            return Err(status::INVALID_VALUE);
        }
        // SAFETY: `from_raw_parts` needs `length` bytes. `from` is not null, so the invariant of `DriverCall` gives them.
        Ok(unsafe { core::slice::from_raw_parts(from.cast(), length) })
    }

    /// Writes a text of at most `room` bytes, its final zero included.
    pub(crate) fn write_text(&self, to: *mut c_char, room: usize, text: &str) -> Outcome {
        if to.is_null() || room == 0 {
            return Err(status::INVALID_VALUE);
        }
        let text = text.as_bytes();
        let length = text.len().min(room - 1);
        // SAFETY: `to` is not null, so it has `room` bytes by the invariant of `DriverCall`, and `length` is less than `room`.
        unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), length) };
        self.write(to.wrapping_add(length), 0)
    }
}
