//! Regions of this machine: those of the host, and those of containers.

use super::container::{Candidate, Container, FileId};
use gpuslice_region::names::{self, MOUNTED};
use gpuslice_region::operator::Contents;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that may be a region, and the place where it was found.
#[derive(Debug, Clone)]
pub struct FoundRegion {
    /// A path by which this process can open the file, as long as `self` is kept.
    pub path: PathBuf,
    /// The container that has the file. None: no other mount namespace has it.
    pub container: Option<Arc<Container>>,
    /// Keeps `path` valid, if only a container has the file.
    candidate: Option<Candidate>,
}

impl FoundRegion {
    /// Returns the region at a path of this process. The file need not exist.
    #[must_use]
    pub fn here(path: PathBuf) -> Self {
        Self { path, container: None, candidate: None }
    }

    /// Returns the region's path as its container sees it, or else as this process sees it.
    #[must_use]
    pub fn inside(&self) -> &Path {
        self.candidate.as_ref().map_or(self.path.as_path(), |candidate| &candidate.inside)
    }

    /// Returns the container, if no path of this process leads to the region.
    #[must_use]
    pub fn private_to(&self) -> Option<&Container> {
        self.container.as_deref().filter(|_| self.candidate.is_some())
    }

    /// Returns the contents of the operator's file in the container that [`private_to`](Self::private_to) returns. Returns
    /// none if a path of this process leads to the region.
    #[must_use]
    pub fn operators_file(&self, path: &'static str) -> Option<Contents> {
        self.private_to().map(|container| container.file(path))
    }

    /// Returns the last part of the name of the slice, without the container.
    #[must_use]
    pub fn name(&self) -> String {
        names::name_of(self.inside())
    }

    /// Returns the identity of the region's folder.
    ///
    /// # Errors
    /// This process may not look at the folder.
    pub fn folder(&self) -> io::Result<FileId> {
        match &self.candidate {
            Some(candidate) => candidate.folder(),
            None => FileId::of(self.path.parent().unwrap_or_else(|| Path::new("/"))),
        }
    }

    /// Takes over the path of `known`, which is the same file in the same place.
    pub fn keep_path(&mut self, known: &Self) {
        self.path.clone_from(&known.path);
        self.candidate.clone_from(&known.candidate);
    }

    /// Returns true if both values name the same file, found in the same place.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let place = |of: &Self| of.container.as_ref().map(|container| container.identity.clone());
        let file = |of: &Self| of.candidate.as_ref().map(|candidate| candidate.file);
        self.inside() == other.inside() && place(self) == place(other) && file(self) == file(other)
    }
}

/// Returns each region once: those at the paths of this process (`here`), and those that only containers have.
///
/// Example: a path of this process leads to a region, and a container has that region too. The result names the container only
/// if the region lies in the folder that a node agent mounts for it. Many containers can share any other folder of the host.
pub fn find(
    here: impl IntoIterator<Item = PathBuf>,
    containers: &[Container],
) -> BTreeMap<FileId, FoundRegion> {
    let mut found = BTreeMap::new();
    for path in here {
        let Ok(file) = FileId::of(&path) else { continue };
        found.entry(file).or_insert_with(|| FoundRegion::here(path));
    }
    for container in containers {
        let container = Arc::new(container.clone());
        for candidate in container.regions() {
            let container = Some(Arc::clone(&container));
            match found.get_mut(&candidate.file) {
                Some(known) if candidate.inside.starts_with(MOUNTED) => known.container = container,
                Some(_) => {}
                None => {
                    let region =
                        FoundRegion { path: candidate.path(), container, candidate: Some(candidate.clone()) };
                    found.insert(candidate.file, region);
                }
            }
        }
    }
    found
}
