//! Reads and changes the settings of a slice's operator's file.

use super::files::{Problem, make_folder};
use super::name::Name;
use super::places::{LIBRARY, Places};
use gpuslice_policy::config::{keys, settings_of_file};
use gpuslice_region::names;
use gpuslice_region::operator::Contents;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for the lock of a slice's settings. A process that is not stopped holds the lock for milliseconds.
const LONGEST_LOCK_WAIT: Duration = Duration::from_secs(2);
/// Time between two attempts to lock.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

impl Places {
    /// Returns the name of the slice that has this region. Returns none if no slice of these places has it.
    ///
    /// A container may put a link in the region's place. So only the folder above the region is resolved: the container cannot
    /// replace that folder.
    #[must_use]
    pub fn name_of(&self, region: &Path) -> Option<Name> {
        let folder =
            region.parent().filter(|_| region.file_name() == Some(OsStr::new(names::REGION_FILE)))?;
        let folder = folder.canonicalize().ok()?;
        let name: Name = folder.file_name()?.to_str()?.parse().ok()?;
        (folder.parent() == Some(&self.regions.canonicalize().ok()?)).then_some(name)
    }

    /// Locks the settings of a slice. A caller holds the lock while it reads the settings and writes them. The lock ends when
    /// the returned file is dropped.
    ///
    /// # Errors
    /// The slice's folder cannot be made or locked, or another process holds the lock for two seconds.
    pub fn lock(&self, name: &Name) -> Result<File, Problem> {
        let folder = self.slot(name);
        make_folder(&folder)?;
        let file = File::open(&folder).map_err(Problem::of(&folder, "lock it"))?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if begun.elapsed() < LONGEST_LOCK_WAIT => {
                    thread::sleep(LOCK_PAUSE);
                }
                Err(TryLockError::WouldBlock) => {
                    let what = "another process changes this slice, and does not end; end it".to_owned();
                    return Err(Problem { path: folder, what });
                }
                Err(TryLockError::Error(error)) => return Err(Problem::of(&folder, "lock it")(error)),
            }
        }
    }

    /// Returns the settings of a slice's operator's file, without the region. There are none if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is no setting.
    pub fn settings(&self, name: &Name) -> Result<Vec<(String, String)>, Problem> {
        let config = self.config(name);
        let contents = match Contents::of(&config) {
            Contents::Absent => return Ok(Vec::new()),
            Contents::Unreadable(why) => {
                return Err(Problem { path: config, what: format!("cannot read it: {why}") });
            }
            Contents::Read(contents) => contents,
        };
        let mut settings = settings_of_file(&config.display().to_string(), &contents)?;
        settings.retain(|(key, _)| key != keys::REGION);
        Ok(settings)
    }

    /// Writes the operator's file of an existing slice. Also writes its specification, if the usual folder has one.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn change(&self, name: &Name, settings: &[(&str, String)]) -> Result<(), Problem> {
        self.configure(name, settings)?;
        let library = self.announced_library(name);
        library.map_or(Ok(()), |library| self.announce(name, self.device(name, settings, &library)))
    }

    /// Returns the library that the specification of a slice mounts.
    fn announced_library(&self, name: &Name) -> Option<PathBuf> {
        let spec: Value = serde_json::from_slice(&fs::read(self.spec(name)).ok()?).ok()?;
        let mounts = spec.pointer("/devices/0/containerEdits/mounts")?.as_array()?;
        let is_library = |mount: &&Value| mount.get("containerPath").is_some_and(|path| path == LIBRARY);
        mounts.iter().find(is_library)?.get("hostPath")?.as_str().map(PathBuf::from)
    }
}

/// Returns `changes`, and the settings of `before` whose keys are not in `changes`.
#[must_use]
pub fn changed<'a>(
    before: &'a [(String, String)],
    changes: Vec<(&'a str, String)>,
) -> Vec<(&'a str, String)> {
    let stays = |(key, _): &&(String, String)| changes.iter().all(|(changed, _)| changed != key);
    let kept: Vec<_> =
        before.iter().filter(stays).map(|(key, value)| (key.as_str(), value.clone())).collect();
    changes.into_iter().chain(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_known_by_its_folder_and_a_link_to_it_is_not() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = Places::usual(root.path());
        let [a, b] = ["a", "b"].map(|name| places.region(&name.parse().unwrap()));
        for region in [&a, &b] {
            fs::create_dir_all(region.parent().unwrap()).unwrap();
        }
        fs::write(&a, "").unwrap();
        std::os::unix::fs::symlink(&a, &b).unwrap();
        let name_of = |path: &Path| places.name_of(path).map(|name| name.to_string());
        assert_eq!(name_of(&a).as_deref(), Some("a"));
        assert_eq!(name_of(&b).as_deref(), Some("b"));
        assert_eq!(name_of(&a.with_file_name("../a/region")).as_deref(), Some("a"));
        assert_eq!(name_of(&a.with_file_name("other")), None);
        assert_eq!(name_of(&root.path().join("a/region")), None);
    }

    #[test]
    fn a_process_that_keeps_the_lock_delays_another_one_for_two_seconds() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let (places, name) = (Places::usual(root.path()), "a".parse().unwrap());
        let held = places.lock(&name).unwrap();
        let (begun, why) = (Instant::now(), places.lock(&name).unwrap_err().to_string());
        assert!(why.contains("another process changes this slice"), "{why}");
        assert!(begun.elapsed() >= LONGEST_LOCK_WAIT);
        drop(held);
        assert!(places.lock(&name).is_ok());
    }

    #[test]
    fn a_change_is_in_the_file_and_in_the_specification() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = Places::usual(root.path());
        let name: Name = "a".parse().unwrap();
        let library = root.path().join("built.so");
        let before = [("GPU_MEM_LIMIT", "4GiB".to_owned())];
        places.make(&name, &before, false).unwrap();
        let text = |path: PathBuf| fs::read_to_string(path).unwrap();
        places.change(&name, &[("GPU_MEM_LIMIT", "5GiB".to_owned())]).unwrap();
        assert!(text(places.config(&name)).contains("GPU_MEM_LIMIT=5GiB\n") && !places.spec(&name).exists());
        places.announce(&name, places.device(&name, &before, &library)).unwrap();
        let kept = places.settings(&name).unwrap();
        assert_eq!(kept, [("GPU_MEM_LIMIT".to_owned(), "5GiB".to_owned())]);
        let settings = changed(&kept, vec![("GPU_CORE_PERCENT", "50".to_owned())]);
        places.change(&name, &settings).unwrap();
        let file = text(places.config(&name));
        assert!(file.contains("GPU_CORE_PERCENT=50\nGPU_MEM_LIMIT=5GiB\n"), "{file}");
        let spec = text(places.spec(&name));
        assert!(spec.contains("\"GPU_CORE_PERCENT=50\"") && spec.contains("built.so"), "{spec}");
    }
}
