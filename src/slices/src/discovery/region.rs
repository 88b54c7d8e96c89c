//! Regions of this machine: those of the host, and those of containers.

use super::container::{Candidate, Container, ContainerIdentity, FileId, MOST_REGIONS};
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
///
/// A container of an engine may have several mount namespaces. They count as one container for the number of its regions.
pub fn find(
    here: impl IntoIterator<Item = PathBuf>,
    containers: &[Container],
) -> BTreeMap<FileId, FoundRegion> {
    let (mut found, mut counts) = (BTreeMap::new(), BTreeMap::<String, usize>::new());
    for path in here {
        let Ok(file) = FileId::of(&path) else { continue };
        found.entry(file).or_insert_with(|| FoundRegion::here(path));
    }
    for container in containers {
        let ContainerIdentity { mounts, id, .. } = &container.identity;
        let count = counts.entry(id.clone().unwrap_or_else(|| mounts.to_string())).or_default();
        add(&mut found, count, &Arc::new(container.clone()), container.regions());
    }
    found
}

/// Adds the regions of a container. `count` is the number of its regions so far.
fn add(
    found: &mut BTreeMap<FileId, FoundRegion>,
    count: &mut usize,
    container: &Arc<Container>,
    candidates: Vec<Candidate>,
) {
    for candidate in candidates {
        let container = Some(Arc::clone(container));
        match found.get_mut(&candidate.file) {
            Some(known) if candidate.inside.starts_with(MOUNTED) => known.container = container,
            Some(_) => {}
            None if *count >= MOST_REGIONS => {}
            None => {
                *count = count.saturating_add(1);
                let region =
                    FoundRegion { path: candidate.path(), container, candidate: Some(candidate.clone()) };
                found.insert(candidate.file, region);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::container::usual_regions_in;
    use super::super::opening::open_root;
    use super::*;
    use std::fs;

    #[test]
    fn the_mount_namespaces_of_a_container_have_only_so_many_regions_together() {
        let root = tempfile::tempdir().unwrap();
        let of_namespace = |number: usize| {
            let root = root.path().join(number.to_string());
            fs::create_dir_all(root.join("dev/shm")).unwrap();
            for region in 0..MOST_REGIONS - 1 {
                fs::write(root.join(format!("dev/shm/gpuslice-0-{region}")), "").unwrap();
            }
            usual_regions_in(&open_root(&root).unwrap(), "/dev/shm")
        };
        let identity = ContainerIdentity { mounts: 7, id: None, name: None };
        let container = Arc::new(Container { identity, witnesses: Vec::new() });
        let (mut found, mut count) = (BTreeMap::new(), 0);
        let found_with = |number| {
            add(&mut found, &mut count, &container, of_namespace(number));
            found.len()
        };
        assert_eq!([0, 1, 2].map(found_with), [MOST_REGIONS - 1, MOST_REGIONS, MOST_REGIONS]);
    }
}
