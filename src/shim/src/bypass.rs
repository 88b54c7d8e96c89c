//! Calls that could reach the driver past the library's entries.
//!
//! The library recognises a function that `cuGetProcAddress` returns by its address, and returns its own entry instead. But the
//! driver could return an address that it does not export. The library would not recognise that address, and calls of it would
//! not be limited. So before the process joins its slice, the library tries five names. If one of them has such an address, it
//! refuses GPU work. It also warns if a program looks up an unknown name that takes memory or submits work.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::driver_calls::directory::symbol_at;
use crate::driver_calls::{code, devices};
use crate::memory::loaded_symbols::LookUpKey;
use crate::os::messages;
use crate::slice::settings;
use core::ffi::{CStr, c_void};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use gpuslice_driver::elf::Image;
use gpuslice_driver::families::{STREAMS, TRIED, is_of_family};
use gpuslice_driver::{Api, Symbol, slot};
use gpuslice_policy::config::LogLevel;

/// Identifier of the private table whose entries load modules and launch kernels.
const LAUNCHING_TABLE: [u8; 16] = 0x6bd5_fb6c_5bf4_e74a_8987_d939_12fd_9df9_u128.to_be_bytes();
/// Start of the file names of CUDA runtimes.
const RUNTIME: &[u8] = b"libcudart.so.";
/// Versions of the CUDA runtime that submit work by exported functions only.
const TRIED_RUNTIMES: [&[u8]; 2] = [b"12", b"13"];

/// Largest number of names about which the library warns.
const MOST_NAMES: usize = 16;

/// A name for which `cuGetProcAddress` returns an address in the driver that the driver does not export.
#[derive(Debug)]
pub(crate) struct Hidden {
    name: &'static CStr,
    stream: &'static str,
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "gpuslice: cuGetProcAddress gives {} (with the {} default stream) an address that the driver does not export, \
             so that no limit would hold; use a newer gpuslice, or a driver that `gpuslice doctor` finds nothing wrong \
             with. GPU work is refused.",
            self.name.to_string_lossy(),
            self.stream,
        )
    }
}

/// Returns the first of the tried names whose calls would not reach the library's entries.
pub(crate) fn hidden() -> Option<Hidden> {
    let version = devices::version()?;
    let leads_past = |name: &CStr, forms: &[Symbol], flags: u64| {
        let address = code::proc_address(name, version, flags)?;
        let is_exported =
            |form: &Symbol| slot::address(*form).is_some_and(|real| real.as_ptr().cast_const() == address);
        // The address may be in the table although it is none of `forms`. It may be that of a newer form, or it may be in a
        // library that stands between the driver and this library.
        let is_known = || symbol_at(address).is_some_and(|symbol| symbol.is_some());
        (!forms.iter().any(is_exported) && !is_known() && is_drivers(address)).then_some(())
    };
    TRIED.iter().find_map(|(name, forms)| {
        let stream = STREAMS.iter().find(|(flags, _)| leads_past(name, forms, *flags).is_some())?.1;
        Some(Hidden { name, stream })
    })
}

fn is_drivers(address: *const c_void) -> bool {
    slot::driver_at(address).is_some_and(|(api, _)| api == Api::Cuda)
}

/// Warns about `name` if a look-up returned the driver's `address` for it, and the library has no entry for that address. Warns
/// only about names that take memory or submit work.
pub(crate) fn handed_out(name: &CStr, address: *const c_void) {
    let is_tried = || TRIED.iter().any(|(tried, _)| *tried == name);
    if is_of_family(name.to_bytes()) && !is_tried() && is_drivers(address) {
        warn(name);
    }
}

/// Warns about `name` if the driver exports it. A program has looked the name up by `dlsym`, and the table has no row for it.
pub(crate) fn looked_up(name: &CStr) {
    let of_driver = || {
        let init = slot::address(Symbol::cuInit)?;
        let (_, image) = slot::driver_at(init.as_ptr())?;
        image.symbol(name)
    };
    if of_driver().is_some() {
        warn(name);
    }
}

/// Warns once about `name`, because the library does not limit calls of it.
fn warn(name: &CStr) {
    static SAID: [AtomicU64; MOST_NAMES] = [const { AtomicU64::new(0) }; MOST_NAMES];
    if settings::settings().is_none() {
        return;
    }
    let key = LookUpKey::of_text(name).number();
    let is_new = |place: &AtomicU64| place.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
    let first = SAID.iter().map(is_new).find(|taken| taken.is_ok() || *taken == Err(key));
    if matches!(first, Some(Ok(_))) {
        let name = name.to_string_lossy();
        messages::say(
            LogLevel::Warn,
            &format_args!(
                "gpuslice: the program looks up {name}, which this version of gpuslice does not know: what it does by that \
                 call is not limited; use a newer gpuslice."
            ),
        );
    }
}

/// Warns once if the driver has returned the private table that can launch kernels. It warns only if the process has loaded a
/// CUDA runtime that may use the table so. `id`: the table that the driver has returned.
pub(crate) fn table_handed_out(id: [u8; 16]) {
    static LOOKED: AtomicBool = AtomicBool::new(false);
    if id != LAUNCHING_TABLE || settings::settings().is_none() || LOOKED.swap(true, Ordering::Relaxed) {
        return;
    }
    let is_untried = |soname: &CStr| {
        let version = soname.to_bytes().strip_prefix(RUNTIME);
        version.is_some_and(|version| !TRIED_RUNTIMES.contains(&version))
    };
    if let Some(soname) = Image::soname_where(is_untried) {
        let soname = soname.to_string_lossy();
        messages::say(
            LogLevel::Warn,
            &format_args!(
                "gpuslice: {soname} may launch kernels and load code by a private table of the driver, where no \
                 limit of GPU time holds; use CUDA 12 or 13, which do not."
            ),
        );
    }
}
