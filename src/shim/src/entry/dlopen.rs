//! Hook of `dlopen`: removes `RTLD_DEEPBIND`, which changes the order of symbol look-ups.
//!
//! `RTLD_DEEPBIND` puts a library's own scope before the global one. The C library's `dlsym` and the driver's functions would
//! then come before the library's entries. If a limit is set, the hook removes the flag. Every call is a tail jump to the next
//! `dlopen`, so that this one sees the true caller. The loader uses the caller's `RUNPATH`, `$ORIGIN` and namespace.

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

/// Address to which `dlopen` jumps with the caller's file, and the flags.
#[repr(C)]
struct JumpTarget {
    jump: *const c_void,
    flags: usize,
}

extern "C" fn decide(file: *const c_char, flags: c_int, caller: *const c_void) -> JumpTarget {
    let taken =
        if flags & libc::RTLD_DEEPBIND != 0 && takes_off(file, caller) { libc::RTLD_DEEPBIND } else { 0 };
    JumpTarget { jump: next(), flags: (flags & !taken).cast_unsigned() as usize }
}

/// Returns true if the flag is removed. The driver's own libraries keep it, because their calls are not the program's.
#[cold]
fn takes_off(file: *const c_char, caller: *const c_void) -> bool {
    if known_driver(caller) || enter_or(settings::leaves_deepbind, true) {
        return false;
    }
    if !file.is_null() {
        // SAFETY: `CStr::from_ptr` needs a zero-terminated text: `dlopen` takes one as `file`, and it is not null here.
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

/// Finds the `dlopen` behind the library's. The look-up ends a pending `dlerror`, as `dlopen` itself does.
fn next() -> *const c_void {
    static NEXT: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let find = || {
        let found = NonZeroUsize::new(resolve::next(c"dlopen")?.expose_provenance())?;
        Some(NEXT.get_or_init(|| found))
    };
    let found = NEXT.get().or_else(find);
    found.map_or(nothing as *const c_void, |found| ptr::with_exposed_provenance(found.get()))
}

/// Replaces the function on a system without it: returns null.
extern "C" fn nothing() -> *const c_void {
    ptr::null()
}
