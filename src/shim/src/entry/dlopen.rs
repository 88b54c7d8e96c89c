//! Hook of `dlopen`: removes `RTLD_DEEPBIND`, which changes the order of symbol look-ups.
//!
//! With `RTLD_DEEPBIND` the loader searches the opened library's own scope before the global scope. So that library would find
//! the C library's `dlsym` and the driver's functions before the entries of gpuslice. If a limit is set, the hook removes the
//! flag. Every call is a tail jump to the next `dlopen`, so that `dlopen` sees the program as its caller. The loader uses the
//! caller's `RUNPATH`, `$ORIGIN` and namespace.

use super::dlsym::known_driver;
use crate::os::messages;
use crate::os::reentrancy::enter_or;
use crate::slice::settings;
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::num::NonZeroUsize;
use core::ptr;
use gpuslice_driver::resolve;
use gpuslice_policy::config::LogLevel;
use once_cell::race::OnceNonZeroUsize;

/// `void *dlopen(const char *file, int flags)`.
///
/// It passes its return address to [`decide`] as the third argument. Then it restores the file, replaces the flags, and jumps. So
/// the next `dlopen` returns to the program directly.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlopen() {
    naked_asm!(
        "push rdi",
        "sub rsp, 16",
        "mov rdx, [rsp + 24]",
        "call {decide}",
        "add rsp, 16",
        "pop rdi",
        "mov rsi, rdx",
        "jmp rax",
        decide = sym decide,
    )
}

/// Address to which `dlopen` jumps, and the flags that it passes with the caller's file.
#[repr(C)]
struct JumpTarget {
    jump: *const c_void,
    flags: usize,
}

/// Returns the next `dlopen`, and the flags without `RTLD_DEEPBIND` if the hook removes it. `caller`: the return address.
extern "C" fn decide(file: *const c_char, flags: c_int, caller: *const c_void) -> JumpTarget {
    let taken =
        if flags & libc::RTLD_DEEPBIND != 0 && takes_off(file, caller) { libc::RTLD_DEEPBIND } else { 0 };
    JumpTarget { jump: next(), flags: (flags & !taken).cast_unsigned() as usize }
}

/// Returns true if the hook removes the flag. It leaves the flag to the driver's own libraries, because their calls are not the
/// program's.
#[cold]
fn takes_off(file: *const c_char, caller: *const c_void) -> bool {
    if known_driver(caller) || enter_or(settings::leaves_deepbind, true) {
        return false;
    }
    if !file.is_null() {
        // SAFETY: `CStr::from_ptr` requires a zero-terminated text: the caller passes one to `dlopen`, and it is not null here.
        let file = unsafe { CStr::from_ptr(file) };
        let say = || {
            let line = format_args!(
                "gpuslice: {} is opened without RTLD_DEEPBIND, with which it would pass the limits; GPUSLICE_DEEPBIND=1 \
                 leaves the flag.",
                file.to_string_lossy()
            );
            messages::say(LogLevel::Info, &line);
        };
        enter_or(say, ());
    }
    true
}

/// Finds the next `dlopen` behind the library's own. The look-up clears a pending `dlerror`, as `dlopen` itself does.
fn next() -> *const c_void {
    static NEXT: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let find = || {
        let found = NonZeroUsize::new(resolve::next(c"dlopen")?.expose_provenance())?;
        Some(NEXT.get_or_init(|| found))
    };
    let found = NEXT.get().or_else(find);
    found.map_or(nothing as *const c_void, |found| ptr::with_exposed_provenance(found.get()))
}

/// Target of the jump if the system has no `dlopen`. Returns null.
extern "C" fn nothing() -> *const c_void {
    ptr::null()
}
