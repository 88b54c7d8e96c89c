//! The functions of the driver API.
//!
//! A macro makes one trait for each file of rows in the table of functions. The trait has a method for each row, which answers
//! "not supported" unless a module here implements it. The compiler checks the implementations against the table's signatures.
#![allow(
    non_snake_case,
    clippy::wildcard_imports,
    clippy::too_many_arguments,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "names, parameters and the mixed widths of numbers are the driver's; the rows use nearly every type; \
              the simulation is for machines of 64 bits"
)]

mod arrays;
mod blocks;
mod captures;
mod contexts;
mod copies;
mod events;
mod external;
mod graphs;
mod green_contexts;
mod images;
mod init;
mod instances;
mod kernels;
mod launches;
mod memory;
mod methods;
mod nodes;
mod pointers;
mod pools;
mod shapes;
mod streams;
mod submit;
mod symbol_lookup;
mod virtual_memory;

use gpuslice_driver::types::*;

macro_rules! functions {
    ($trait:ident; $( $family:ident: $reason:literal { $( $treatment:ident $name:ident $(@ $since:literal)?
        ( $($arg:ident: $ty:ty),* ) $(by $module:ident :: $hook:ident)?; )* } )*) => {
        #[allow(missing_docs, unused_variables, clippy::missing_errors_doc, reason = "the rows are the documentation")]
        pub trait $trait {
            $( $( fn $name(&self, $($arg: $ty),*) -> Result<(), Status> {
                Err(status::NOT_SUPPORTED)
            } )* )*
        }
    };
}

macro_rules! init_functions { ($($rows:tt)*) => { functions! { Init; $($rows)* } }; }
gpuslice_driver::rows_init! { {rows_end} [init_functions] }

macro_rules! context_functions { ($($rows:tt)*) => { functions! { Contexts; $($rows)* } }; }
gpuslice_driver::rows_context! { {rows_end} [context_functions] }

macro_rules! memory_functions { ($($rows:tt)*) => { functions! { Memory; $($rows)* } }; }
gpuslice_driver::rows_memory! { {rows_end} [memory_functions] }

macro_rules! vmm_functions { ($($rows:tt)*) => { functions! { Vmm; $($rows)* } }; }
gpuslice_driver::rows_vmm! { {rows_end} [vmm_functions] }

macro_rules! pool_functions { ($($rows:tt)*) => { functions! { Pools; $($rows)* } }; }
gpuslice_driver::rows_pool! { {rows_end} [pool_functions] }

macro_rules! array_functions { ($($rows:tt)*) => { functions! { Arrays; $($rows)* } }; }
gpuslice_driver::rows_array! { {rows_end} [array_functions] }

macro_rules! copy_functions { ($($rows:tt)*) => { functions! { Copies; $($rows)* } }; }
gpuslice_driver::rows_copy! { {rows_end} [copy_functions] }

macro_rules! launch_functions { ($($rows:tt)*) => { functions! { Launches; $($rows)* } }; }
gpuslice_driver::rows_launch! { {rows_end} [launch_functions] }

macro_rules! graph_functions { ($($rows:tt)*) => { functions! { Graphs; $($rows)* } }; }
gpuslice_driver::rows_graph! { {rows_end} [graph_functions] }

macro_rules! stream_functions { ($($rows:tt)*) => { functions! { Streams; $($rows)* } }; }
gpuslice_driver::rows_stream! { {rows_end} [stream_functions] }

macro_rules! external_functions { ($($rows:tt)*) => { functions! { External; $($rows)* } }; }
gpuslice_driver::rows_external! { {rows_end} [external_functions] }
