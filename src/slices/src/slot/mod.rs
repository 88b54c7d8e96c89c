//! Makes the files of a host that turn a container into a slice.
//!
//! There are three trees. The operator owns all of them:
//!
//! ```text
//! STATE/lib/<sha256>/libgpuslice.so    the preload library; a newer one lies beside it
//! STATE/ld.so.preload                  names it, as the container sees it
//! STATE/slots/NAME/conf/config         the operator's file of the slice
//! STATE/slots/NAME/conf/memory.sock    the socket at which an agent tells processes of the slice NVML's figures
//! REGIONS/NAME/region                  the region, in a folder that the container may write
//! CDI/gpuslice-NAME.json               tells container engines these mounts and settings
//! ```
//!
//! The program writes a file beside its place and then renames it, so that no process sees half of it. If a file may change,
//! the container gets the folder above it. A mount of the file itself would keep showing the old file.

mod files;
mod name;
mod places;
mod removal;
mod settings;

pub use files::{Problem, make_folder, write_whole};
pub use name::{CLAIM, Name, SLOT};
pub use places::{LIBRARY, Places, REGION};
pub use removal::remove_folder;
pub use settings::changed;
