//! The functions of NVML.
//!
//! A macro makes one trait from each file of rows. The trait has a method for each function, and the method answers "not
//! supported" unless a module here implements it. The answers come from the state that all processes share (`library`). So
//! memory figures are exact at every instant, and utilisation comes from the samples of the engine. A call needs no context,
//! makes none, and takes no slot.
#![allow(
    non_snake_case,
    clippy::wildcard_imports,
    reason = "the names are NVML's, and the rows use nearly every type"
)]

mod attribution;
mod clocks;
mod entry;
mod events;
mod exports;
mod hardware;
mod identity;
mod layouts;
mod library;
mod memory;
mod private;
mod processes;
mod statuses;
mod usage;

#[cfg(test)]
mod tests;

pub use entry::{NvmlCall, enter};
pub use private::private_table;
pub use statuses::text as error_text;

use gpuslice_driver::types::*;

macro_rules! functions {
    ($trait:ident; $( $family:ident: $reason:literal { $( $treatment:ident $name:ident
        ( $($arg:ident: $ty:ty),* ) $(-> ($ret:ty))? $(by $module:ident :: $hook:ident)?; )* } )*) => {
        #[allow(missing_docs, unused_variables, clippy::missing_errors_doc, reason = "the rows are the documentation")]
        pub trait $trait {
            $( $( function! { $name ( $($arg: $ty),* ) $(-> ($ret))? } )* )*
        }
    };
}

/// Leaves out a function that returns no status. Such a function is exported by hand.
macro_rules! function {
    ($name:ident ( $($arg:ident: $ty:ty),* )) => {
        fn $name(&self, $($arg: $ty),*) -> Result<(), Status> {
            Err(status::NVML_NOT_SUPPORTED)
        }
    };
    ($name:ident ( $($arg:ident: $ty:ty),* ) -> ($ret:ty)) => {};
}

macro_rules! slice_functions { ($($rows:tt)*) => { functions! { Usage; $($rows)* } }; }
gpuslice_driver::rows_nvml_slice! { {rows_end} [slice_functions] }

macro_rules! device_functions { ($($rows:tt)*) => { functions! { Hardware; $($rows)* } }; }
gpuslice_driver::rows_nvml_device! { {rows_end} [device_functions] }

macro_rules! tuning_functions { ($($rows:tt)*) => { functions! { Tuning; $($rows)* } }; }
gpuslice_driver::rows_nvml_tuning! { {rows_end} [tuning_functions] }

macro_rules! vgpu_functions { ($($rows:tt)*) => { functions! { VirtualGpus; $($rows)* } }; }
gpuslice_driver::rows_nvml_vgpu! { {rows_end} [vgpu_functions] }

impl VirtualGpus for NvmlCall {}
