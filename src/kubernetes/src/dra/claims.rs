//! Claims that have files on the node.
//!
//! A claim is one slice, which all containers of the claim share. Its record is written first, so that a later agent finds
//! half-made files. Its specification is written last, so that no container starts before all files exist.

use crate::files;
use crate::objects::Part;
use gpuslice_slices::cdi::KIND;
use gpuslice_slices::slot::{CLAIM, Name, Places, Problem, make_folder, write_whole};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;

/// Record of a claim that the driver has prepared, or was preparing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// Parts of GPUs of the claim.
    pub(super) parts: Vec<Part>,
}

/// Returns the name of a claim's slice.
fn slice(uid: &str) -> Result<Name, String> {
    format!("{CLAIM}{uid}").parse()
}

/// The claims that have files on the disk.
#[derive(Debug, Clone)]
pub(super) struct Claims {
    places: Places,
    library: PathBuf,
}

impl Claims {
    /// Opens the claims that an earlier agent has left, and removes claims without a record. `library` is the path that
    /// [`Places::install`] returned.
    pub(super) fn open(places: Places, library: PathBuf) -> Self {
        let opened = Self { places, library };
        for name in files::names(&opened.places).iter().filter(|name| name.is_claim()) {
            if opened.record(name).is_none()
                && let Err(problem) = files::remove(&opened.places, name)
            {
                tracing::warn!("{problem}");
            }
        }
        opened
    }

    fn record_file(&self, name: &Name) -> PathBuf {
        // The name is not `slice.json`: the agent removes folders with that file if its configuration does not have the slice.
        self.places.slot(name).join("claim.json")
    }

    fn record(&self, name: &Name) -> Option<Record> {
        serde_json::from_slice(&fs::read(self.record_file(name)).ok()?).ok()
    }

    /// Returns the records of all claims.
    pub(super) fn records(&self) -> Vec<Record> {
        let names = files::names(&self.places);
        names.iter().filter(|name| name.is_claim()).filter_map(|name| self.record(name)).collect()
    }

    /// Lowers limits that tenants have raised in their regions. Returns the failures.
    pub(super) fn hold(&self) -> Vec<String> {
        let held =
            |record: &Record| files::hold(&self.places, &slice(&record.uid).ok()?, &record.parts).err();
        self.records().iter().filter_map(held).collect()
    }

    /// Makes the files of a claim, or repairs them, and returns the name of its CDI device. An existing region stays, because
    /// containers may use it.
    pub(super) fn prepare(&self, record: &Record) -> Result<String, String> {
        let name = slice(&record.uid)?;
        self.write(&name, record).map_err(|problem| problem.to_string())?;
        Ok(format!("{KIND}={name}"))
    }

    fn write(&self, name: &Name, record: &Record) -> Result<(), Problem> {
        // Without the specification, no container can use the region.
        let is_used = self.places.spec(name).exists();
        let file = self.record_file(name);
        make_folder(&self.places.slot(name))?;
        let text = serde_json::to_vec_pretty(record);
        let text = text.map_err(|error| Problem { path: file.clone(), what: error.to_string() })?;
        write_whole(&file, &text, 0o644)?;
        let device = files::make(&self.places, &self.library, name, &record.parts, is_used)?;
        self.places.announce(name, device)
    }

    /// Removes the files of a claim. Does nothing for an unknown claim.
    pub(super) fn unprepare(&self, uid: &str) -> Result<(), String> {
        // Such a UID cannot be a name, so the agent has never prepared the claim.
        let Ok(name) = slice(uid) else { return Ok(()) };
        files::remove(&self.places, &name).map_err(|problem| problem.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_region::{DeviceRequest, Limits, Member, Trust, Uuid};

    fn record() -> Record {
        let part = Part { uuid: "GPU-a".to_owned(), mem_mib: 1024, core: 10 };
        Record { namespace: "ns".to_owned(), name: "a".to_owned(), uid: "u".to_owned(), parts: vec![part] }
    }

    #[test]
    fn limits_that_a_tenant_has_raised_are_set_back() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = Places::usual(root.path());
        let claims = Claims::open(places.clone(), root.path().join("library"));
        let gpu = Uuid([1; 16]);
        let part = Part { uuid: format!("GPU-{gpu}"), mem_mib: 1024, core: 30 };
        claims.prepare(&Record { parts: vec![part], ..record() }).unwrap();
        let wanted = [DeviceRequest { uuid: gpu, total: 16 << 30, limits: Limits::NONE }];
        let region = places.region(&slice("u").unwrap());
        let (member, _) = Member::join(&region, Trust::AnyOwner, &wanted).unwrap();
        assert_eq!(claims.hold(), Vec::<String>::new());
        let limits = member.limits(member.devices()[0].device);
        assert_eq!((limits.memory, limits.cores_permille), (Some(1024 << 20), 300));
    }

    /// Stops the making of a claim at each of its steps, and then checks the claim. An obstacle stops it, as a kill does.
    #[test]
    fn a_claim_that_is_half_made_is_known_and_no_container_can_start_with_it() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = Places::usual(root.path());
        let claims = Claims::open(places.clone(), root.path().join("library"));
        let name = slice("u").unwrap();
        let [conf, regions] = [places.slot(&name).join("conf"), places.regions.clone()];
        for obstacle in [conf, regions] {
            fs::create_dir_all(obstacle.parent().unwrap()).unwrap();
            let _of_the_round_before = fs::remove_dir(&obstacle);
            fs::write(&obstacle, "").unwrap();
            let why = claims.prepare(&record()).unwrap_err();
            assert!(why.contains("cannot make this folder"), "{why}");
            assert!(!places.spec(&name).exists(), "{}", obstacle.display());
            // A later agent finds the record. It asks the apiserver, and then repairs or removes the claim.
            let later = Claims::open(places.clone(), root.path().join("library"));
            assert_eq!(later.records(), [record()]);
            fs::remove_file(obstacle).unwrap();
            assert_eq!(later.prepare(&record()).unwrap(), "gpuslice.dev/slice=claim-u");
            later.unprepare("u").unwrap();
            assert!(files::names(&places).is_empty());
        }
    }

    #[test]
    fn a_claim_that_cannot_be_removed_loses_its_specification_and_is_removed_later() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = Places::usual(root.path());
        let claims = Claims::open(places.clone(), root.path().join("library"));
        let name = slice("u").unwrap();
        claims.prepare(&record()).unwrap();
        // A file blocks the name of the queue for removals, so no folder can be removed.
        let obstacle = places.regions.join(".removed");
        fs::write(&obstacle, "").unwrap();
        let why = claims.unprepare("u").unwrap_err();
        assert!(why.contains("cannot be removed"), "{why}");
        assert!(!places.spec(&name).exists());
        fs::remove_file(&obstacle).unwrap();
        claims.unprepare("u").unwrap();
        assert!(files::names(&places).is_empty());
    }
}
