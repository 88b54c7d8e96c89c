//! The thread that asks NVML.
//!
//! Example: NVML takes 300 ms to start, because other processes start it too. The worker still polls timing events meanwhile. If
//! it waited for NVML itself, work in flight would not be charged during that time. The library would also not see kernels that
//! wait for each other.
//!
//! The thread starts when the worker first wants an answer. All signals except `SIGBUS` are blocked in it, because signals are
//! for the program's threads. If the thread cannot be started, the worker asks NVML.

use crate::compute::attribution::nvml_only;
use crate::compute::attribution::nvml_schedule::LINGER;
use crate::compute::cotenants::state::CotenantState;
use crate::compute::measuring::usage::UsageState;
use crate::compute::state::Compute;
use crate::os::signals::without_signals;
use crate::os::thread;
use core::ffi::c_void;
use core::ptr;
use gpuslice_region::sigbus_forwarding::{self, LibraryThread};

/// Requests answers of NVML from the thread. Starts the thread at the first call.
///
/// The status says that the thread runs before it is spawned. So two threads that tick at once start only one thread, and a
/// request before its first instruction is not lost. If the spawn fails, the calling thread asks NVML itself, however long that
/// takes.
pub(super) fn want_answers(compute: &'static Compute) {
    let status = &compute.nvml.status;
    if status.is_unstarted()
        && status.try_start()
        && without_signals(|| thread::spawn(compute, 256 << 10, main)).is_err()
    {
        status.set_failed();
    }
    if status.is_running() {
        compute.nvml.want();
    } else {
        compute.cotenants.ask_nvml(compute);
    }
}

extern "C" fn main(argument: *mut c_void) -> *mut c_void {
    thread::set_name(c"gpuslice-nvml");
    // SAFETY: `argument_of` requires a pointer to a living `Compute`: `want_answers` passes a `&'static Compute`.
    if let Some(compute) = unsafe { thread::argument_of::<Compute>(argument) } {
        compute.nvml.status.run(|| run(compute));
    }
    ptr::null_mut()
}

/// Asks NVML until the process ends. Closes it while the worker wants no answers.
///
/// After an answer the thread pauses, because all processes of the machine share NVML's lock. Without a request it sleeps for
/// [`LINGER`], closes NVML, and then sleeps without a limit. It does not close NVML earlier, because opening it takes tens of
/// milliseconds and a program may pause after each piece of work.
fn run(compute: &'static Compute) {
    let nvml = &compute.nvml;
    sigbus_forwarding::register_thread(LibraryThread::Nvml);
    while !compute.worker.is_ending() {
        sigbus_forwarding::unblock(LibraryThread::Nvml);
        if nvml.take_want() {
            ask(compute, CotenantState::ask_nvml);
            gpuslice_region::pause(nvml_only::ASK_EVERY.duration());
        } else if !nvml.sleep_until_wanted(Some(LINGER.duration())) {
            ask(compute, CotenantState::close_nvml);
            nvml.sleep_until_wanted(None);
        }
    }
}

/// Calls NVML, unless the process ends. The exit of the process sets a word, then takes the lock and keeps it. This function
/// reads the word under the lock. So no call of NVML begins after the exit has the lock.
fn ask(compute: &'static Compute, question: fn(&CotenantState, &UsageState)) {
    let _question = compute.nvml.question_lock.lock();
    if !compute.worker.is_ending() {
        question(&compute.cotenants, compute);
    }
}
