//! Functions that no header declares, and a private table of functions.
//!
//! Of a real driver, one knows only the exported functions, and only the names of the private tables. A limiter that relies
//! on this must notice a driver that has more. `SIMGPU_PRIVATE_ENTRIES`, `SIMGPU_NEWER_NAMES` and `SIMGPU_PRIVATE_TABLE`
//! turn simgpu into such a driver.

use core::ffi::c_void;
use std::sync::OnceLock;

use gpuslice_driver::types::{Status, status};

/// The name, without version suffix, of the exported function that no header declares.
pub const UNHEARD_OF: &str = "cuLaunchUnheardOf";

/// Stands for every private function. Its code must differ from that of [`unheard_of`], because the compiler merges
/// functions that have the same code.
extern "C" fn private() -> Status {
    std::hint::black_box(&TABLE.size);
    status::NOT_SUPPORTED
}

/// The exported function that no header declares. It does nothing.
#[must_use]
pub extern "C" fn unheard_of() -> Status {
    status::NOT_SUPPORTED
}

/// Number of words of the private table.
const PRIVATE_WORDS: usize = 12;

#[repr(C)]
struct PrivateTable {
    /// Size of the whole table, in bytes.
    size: usize,
    functions: [extern "C" fn() -> Status; PRIVATE_WORDS - 1],
}

static TABLE: PrivateTable =
    PrivateTable { size: size_of::<PrivateTable>(), functions: [private; PRIVATE_WORDS - 1] };

fn names(variable: &'static str) -> Vec<String> {
    let text = std::env::var(variable).unwrap_or_default();
    text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

fn is_set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| !value.is_empty() && value != "0")
}

/// Returns the address that `cuGetProcAddress` returns for a name that is no exported function of the table.
/// Returns `None` if there is none.
pub(crate) fn address(name: &[u8], flags: u64) -> Option<*mut c_void> {
    static PRIVATE: OnceLock<Vec<String>> = OnceLock::new();
    let is_private = |known: &String| {
        let (known, flag) =
            known.split_once('/').map_or((&**known, None), |(known, flag)| (known, Some(flag)));
        known.as_bytes() == name && flag.is_none_or(|flag| flag.parse() == Ok(flags))
    };
    if PRIVATE.get_or_init(|| names("SIMGPU_PRIVATE_ENTRIES")).iter().any(is_private) {
        return Some(private as *mut c_void);
    }
    static NEWER: OnceLock<bool> = OnceLock::new();
    let offers = || *NEWER.get_or_init(|| is_set("SIMGPU_NEWER_NAMES"));
    (name == UNHEARD_OF.as_bytes() && offers()).then_some(unheard_of as *mut c_void)
}

/// Returns the private table, if the environment asks for one.
pub(crate) fn private_table() -> Option<*const c_void> {
    is_set("SIMGPU_PRIVATE_TABLE").then_some((&raw const TABLE).cast())
}
