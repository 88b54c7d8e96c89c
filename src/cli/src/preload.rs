//! Makes the list of libraries that the loader preloads into a program.

use crate::output::failure::Failure;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Returns the list for `LD_PRELOAD`: the library first, then the list of the environment.
pub(crate) fn preload_list(library: &Path) -> Result<OsString, Failure> {
    if library.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(Failure::new(format!(
            "{}: the loader takes no path with a space or colon in LD_PRELOAD; put the library elsewhere",
            library.display()
        )));
    }
    let mut list = library.as_os_str().to_owned();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        list.push(OsStr::new(":"));
        list.push(before);
    }
    Ok(list)
}
