//! Exported entries: the table of symbols, expanded.
//!
//! A row without a hook becomes a jump to its target in `slot::JUMP_TARGETS`. A row with a hook becomes a function that finds the
//! real function and passes it to the hook together with the arguments, as a [`HookedCall`]. This file makes all exported
//! names but `dlsym`, `dlvsym` and `dlopen`.
#![allow(
    non_snake_case,
    clippy::wildcard_imports,
    reason = "the names are the driver's, and so are the types"
)]

use crate::driver_calls::nvml::initialization;
use crate::hooks::code::{context, green, library, library_handles, limits, module};
use crate::hooks::hooked_call::HookedCall;
use crate::hooks::memory::{array, linear, managed, multicast, physical, pool, sharing};
use crate::hooks::reports::{nvml, process_use, processes, report, use_rates};
use crate::hooks::start;
use crate::hooks::work::{
    batches, capture, copies, graph, graph_cost, host_copies, launch, stream, stream_waits, sync,
};
use crate::os::reentrancy;
use core::arch::naked_asm;
use core::ptr;
use gpuslice_driver::slot::{self, JUMP_TARGETS};
use gpuslice_driver::table::{ALL, COUNT};
use gpuslice_driver::types::*;
use gpuslice_driver::{Api, Symbol, functions};

/// Size of a jump target in bytes.
const WORD: usize = size_of::<usize>();

/// Expands the table of symbols: an entry function for each row, and the list of their addresses.
macro_rules! entries {
    ($( $family:ident: $reason:literal { $(
        $treatment:ident $name:ident $(@ $since:literal)? ( $($arg:ident: $ty:ty),* )
            $(-> ($ret:ty))? $(by $module:ident :: $hook:ident)?;
    )* } )*) => {
        $( $( entry!($name ( $($arg: $ty),* ) $($module $hook)?); )* )*

        /// The entry of each symbol, by [`Symbol::index`].
        static ENTRIES: [EntryAddress; COUNT] = [ $( $( EntryAddress($name as *const c_void), )* )* ];
    };
}

/// Expands one row. The entry of a row without a hook jumps to its target, or to [`first_call`] while it has no target. The entry
/// of a row with a hook passes the real function and the arguments to the hook.
macro_rules! entry {
    ($name:ident ( $($arg:ident: $ty:ty),* )) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "mov rax, qword ptr [rip + {slots} + {offset}]",
                "test rax, rax",
                "je 2f",
                "jmp rax",
                "2:",
                "mov r11d, {index}",
                "jmp {first}",
                slots = sym JUMP_TARGETS,
                offset = const Symbol::$name.index() * WORD,
                index = const Symbol::$name.index(),
                first = sym first_call,
            )
        }
    };
    ($name:ident ( $($arg:ident: $ty:ty),* ) $module:ident $hook:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> Status {
            let Some(real) = slot::real::<functions::$name>(Symbol::$name) else {
                return absent_status(Symbol::$name);
            };
            if const { is_nvml(Symbol::$name) } && initialization::is_hidden_from(Symbol::$name) {
                return status::NVML_UNINITIALIZED;
            }
            // SAFETY: `new` requires arguments that meet the driver's contract for `real`. The program calls this function with
            // them, so they do until the entry returns.
            let call = unsafe { HookedCall::new(real, ($($arg,)*)) };
            $module::$hook(&call)
        }
    };
}

/// Address of a function, known when the library is linked.
struct EntryAddress(*const c_void);

// SAFETY: `Sync` requires that threads may share the address: no code reads or writes through it.
unsafe impl Sync for EntryAddress {}

gpuslice_driver::for_each_symbol! { [entries] }

/// Hooks of look-up functions, which answer with the entries of this file.
mod lookup {
    use super::entry;
    use crate::entry::lookup;
    use crate::hooks::hooked_call::HookedCall;
    use gpuslice_driver::functions as real;
    use gpuslice_driver::types::Status;

    pub(super) use lookup::export_table;

    pub(super) fn proc_address(call: &HookedCall<real::cuGetProcAddress>) -> Status {
        lookup::proc_address(call, entry)
    }

    pub(super) fn proc_address_v2(call: &HookedCall<real::cuGetProcAddress_v2>) -> Status {
        lookup::proc_address_v2(call, entry)
    }
}

/// Returns the entry of a symbol, which programs get instead of the real function.
pub(crate) fn entry(symbol: Symbol) -> *const c_void {
    ENTRIES.get(symbol.index()).map_or(ptr::null(), |entry| entry.0)
}

/// Finds the real function of an entry without a jump target, then jumps to it with the caller's unchanged arguments. The entry
/// passes the symbol's index in `r11`, which carries no argument. The function saves all registers that carry arguments: six for
/// integers, and `xmm0` to `xmm7`.
#[unsafe(naked)]
unsafe extern "C" fn first_call() {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 128",
        "movups [rsp], xmm0",
        "movups [rsp + 16], xmm1",
        "movups [rsp + 32], xmm2",
        "movups [rsp + 48], xmm3",
        "movups [rsp + 64], xmm4",
        "movups [rsp + 80], xmm5",
        "movups [rsp + 96], xmm6",
        "movups [rsp + 112], xmm7",
        "mov edi, r11d",
        "call {find}",
        "movups xmm0, [rsp]",
        "movups xmm1, [rsp + 16]",
        "movups xmm2, [rsp + 32]",
        "movups xmm3, [rsp + 48]",
        "movups xmm4, [rsp + 64]",
        "movups xmm5, [rsp + 80]",
        "movups xmm6, [rsp + 96]",
        "movups xmm7, [rsp + 112]",
        "add rsp, 128",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "pop rbp",
        "jmp rax",
        find = sym find,
    )
}

/// Returns the address to which an entry jumps: the real function, or a function that answers in its place.
extern "C" fn find(index: usize) -> *const c_void {
    let Some(symbol) = ALL.get(index).copied() else { return not_initialized as *const c_void };
    let Some(real) = reentrancy::enter_or(|| slot::address(symbol), None) else { return absent(symbol) };
    if is_nvml(symbol) && initialization::is_hidden_from(symbol) {
        return uninitialized as *const c_void;
    }
    slot::set_jump_target(symbol, real);
    real.as_ptr().cast_const()
}

const fn is_nvml(symbol: Symbol) -> bool {
    matches!(symbol.api(), Api::Nvml)
}

/// Returns a function that answers in place of a missing function. If no driver is loaded, its status is that of a machine
/// without a driver. If the driver is loaded but too old, its status is that of an unknown function.
fn absent(symbol: Symbol) -> *const c_void {
    if symbol == Symbol::nvmlErrorString {
        return no_text as *const c_void;
    }
    match absent_status(symbol) {
        status::NO_DEVICE => no_device as *const c_void,
        status::NOT_SUPPORTED => not_supported as *const c_void,
        status::NVML_LIBRARY_NOT_FOUND => library_not_found as *const c_void,
        status::NVML_FUNCTION_NOT_FOUND => function_not_found as *const c_void,
        _ => not_initialized as *const c_void,
    }
}

fn absent_status(symbol: Symbol) -> Status {
    match (symbol.api(), slot::is_driver_loaded(symbol.api())) {
        (Api::Cuda, true) => status::NOT_SUPPORTED,
        (Api::Cuda, false) if symbol == Symbol::cuInit => status::NO_DEVICE,
        (Api::Cuda, false) => status::NOT_INITIALIZED,
        (Api::Nvml, true) => status::NVML_FUNCTION_NOT_FOUND,
        (Api::Nvml, false) => status::NVML_LIBRARY_NOT_FOUND,
    }
}

extern "C" fn uninitialized() -> Status {
    status::NVML_UNINITIALIZED
}

extern "C" fn no_device() -> Status {
    status::NO_DEVICE
}

extern "C" fn not_initialized() -> Status {
    status::NOT_INITIALIZED
}

extern "C" fn not_supported() -> Status {
    status::NOT_SUPPORTED
}

extern "C" fn library_not_found() -> Status {
    status::NVML_LIBRARY_NOT_FOUND
}

extern "C" fn function_not_found() -> Status {
    status::NVML_FUNCTION_NOT_FOUND
}

extern "C" fn no_text() -> *const c_char {
    c"NVML is not loaded".as_ptr()
}
