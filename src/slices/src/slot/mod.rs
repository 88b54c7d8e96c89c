//! Makes the files of a host by which a container is a slice.
//!
//! There are three trees. All are the operator's:
//!
//! ```text
//! STATE/lib/<sha256>/libgpuslice.so    the preload library; a newer one lies beside it
//! STATE/ld.so.preload                  names it, as the container sees it
//! STATE/slots/NAME/conf/config         the operator's file of the slice
//! REGIONS/NAME/region                  the region, in a folder that the container may write
//! CDI/gpuslice-NAME.json               says all of this to container engines
//! ```
//!
//! A file is written beside its place and renamed, so that no process sees half of it. A container gets folders
//! rather than files that change. A file that is mounted by itself stays the old one.

mod files;
mod name;
mod places;
mod settings;

pub use files::{Problem, make_folder, write_whole};
pub use name::{CLAIM, Name, SLOT};
pub use places::{LIBRARY, Places, REGION};
pub use settings::changed;
