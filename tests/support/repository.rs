//! Files of the repository.

use std::path::{Path, PathBuf};

/// Returns the files below a folder, with this extension if one is given. Leaves out hidden folders, and those with built or
/// fetched files, which do not belong to the repository.
pub(crate) fn files_below(folder: &Path, extension: Option<&str>) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the repository can be read") {
            let path = entry.expect("its entries too").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() {
                let is_ours = !name.starts_with('.') && !matches!(&*name, "target" | "build" | "shared");
                folders.extend(is_ours.then(|| path.clone()));
            } else if extension.is_none_or(|wanted| path.extension().is_some_and(|found| found == wanted)) {
                found.push(path);
            }
        }
    }
    found
}
