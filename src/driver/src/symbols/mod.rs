//! The table of driver functions, with the treatment of each.
//!
//! A row has five parts:
//!
//! - a treatment;
//! - a name;
//! - the first version at which `cuGetProcAddress` returns the symbol (none: never);
//! - its parameters;
//! - the hook that handles it (none: the call jumps to the driver).
//!
//! ```text
//! charge cuMemAlloc_v2 @3020(dptr: *mut CUdeviceptr, bytesize: usize) by linear::alloc;
//! ```
//!
//! Each function returns a status by value unless `-> (type)` says otherwise. Rows are grouped in families, and a
//! family gives the reason for its treatment. The order of rows is the order of the documentation.
//!
//! Other modules get the rows through a macro: `for_each_symbol! { [path::to::a_macro] }` calls `a_macro!` with all
//! families, `for_each_cuda!` and `for_each_nvml!` with those of one API. [`crate::table`] is the first user, and shows
//! the pattern of a family.
//!
//! [`NOT_EXPORTED`] lists names that drivers export and that are deliberately absent here.

mod array;
mod context;
mod copy;
mod external;
mod graph;
mod init;
mod launch;
mod memory;
mod nvml_device;
mod nvml_slice;
mod nvml_tuning;
mod nvml_vgpu;
mod pool;
mod stream;
mod vmm;

/// Calls the macro at the given path with every family of the driver API.
#[macro_export]
macro_rules! for_each_cuda {
    ([$($then:tt)*]) => { $crate::rows_init! { {
        rows_context rows_memory rows_vmm rows_pool rows_array rows_copy rows_launch rows_graph rows_stream
        rows_external rows_end
    } [$($then)*] } };
}

/// Calls the macro at the given path with every family of NVML.
#[macro_export]
macro_rules! for_each_nvml {
    ([$($then:tt)*]) => { $crate::rows_nvml_slice! { {
        rows_nvml_device rows_nvml_tuning rows_nvml_vgpu rows_end
    } [$($then)*] } };
}

/// Calls the macro at the given path with every family of both APIs, the driver API's first.
#[macro_export]
macro_rules! for_each_symbol {
    ([$($then:tt)*]) => { $crate::rows_init! { {
        rows_context rows_memory rows_vmm rows_pool rows_array rows_copy rows_launch rows_graph rows_stream
        rows_external rows_nvml_slice rows_nvml_device rows_nvml_tuning rows_nvml_vgpu rows_end
    } [$($then)*] } };
}

#[doc(hidden)]
#[macro_export]
macro_rules! rows_end {
    ({} [$($then:tt)*] $($rows:tt)*) => { $($then)* ! { $($rows)* } };
}

/// Names that drivers export and this library does not, by prefix, with the reason.
pub const NOT_EXPORTED: &[(&str, &str)] =
    &[("cudbg", "a debugger finds these in the real library; many are variables that it reads and writes")];
