//! Makes the files of a host that make a container a slice.
//!
//! There are three trees. The operator owns all of them:
//!
//! ```text
//! STATE/lib/<sha256>/libgpuslice.so    the preload library; a newer one lies beside it
//! STATE/ld.so.preload                  names it, as the container sees it
//! STATE/slots/NAME/conf/config         the operator's file of the slice
//! REGIONS/NAME/region                  the region, in a folder that the container may write
//! CDI/gpuslice-NAME.json               tells container engines these mounts and settings
//! ```
//!
//! A file is written beside its place and renamed, so that no process sees half of it. A container gets
//! a folder, and not the file itself, if the file may change: a mount of a file keeps showing the old file.

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
