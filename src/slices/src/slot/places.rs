//! The files of a slice on its host.

use super::files::{Problem, make_folder, take_back, write_whole};
use super::name::Name;
use super::removal::remove_folder;
use crate::cdi::{self, Mount, Spec};
use gpuslice_policy::config::{FIXED_FILE, keys};
use gpuslice_region::names::{self, MOUNTED};
use gpuslice_region::{
    DeviceView, Limits, Monitor, Reader, RegionError, Removal, Trust, make, remove_for_good,
};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The library's path in a container.
pub const LIBRARY: &str = "/usr/local/lib/gpuslice/libgpuslice.so";
/// The file that makes the loader load the library into every dynamically linked program. The environment has no influence on
/// this file.
const PRELOAD: &str = "/etc/ld.so.preload";
/// The folder of [`FIXED_FILE`].
const CONF: &str = "/run/gpuslice/conf";
/// The region's path in a container.
pub const REGION: &str = "/run/gpuslice/region/region";
/// Mode of the region. Only the container sees the region, and all users of the container may write it.
const REGION_MODE: u32 = 0o666;
/// Mode of the region's folder.
const FOLDER_MODE: u32 = 0o755;

/// The root folders of the trees of files: see [`super`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The files that outlive a restart of the machine: `/var/lib/gpuslice`.
    pub state: PathBuf,
    /// The folder of the regions: `/run/gpuslice/slots`. It lies in memory. On a disk, launches would wait for the kernel's
    /// write-back.
    pub regions: PathBuf,
    /// The folder in which container engines look for specifications: `/var/run/cdi` or `/etc/cdi`.
    pub cdi: PathBuf,
}

impl Places {
    /// Returns the usual places of a host below `root`. `root` is `/` except in tests.
    #[must_use]
    pub fn usual(root: &Path) -> Self {
        let at = |path: &str| root.join(path);
        Self { state: at("var/lib/gpuslice"), regions: at("run/gpuslice/slots"), cdi: at("var/run/cdi") }
    }

    /// Writes limits into a slice's region, and waits for no lock of a tenant. `change` returns the new limits of a device, or none
    /// if the device keeps its limits. Returns true if a limit changed. Without a region, none does.
    ///
    /// # Errors
    /// The region cannot be opened, changed or locked.
    pub fn impose_limits(
        &self,
        name: &Name,
        change: impl FnMut(&DeviceView) -> Option<Limits>,
    ) -> Result<bool, RegionError> {
        let Some(monitor) = Monitor::open(&self.region(name), Trust::AnyOwner)? else { return Ok(false) };
        Ok(!monitor.impose_limits(change)?.is_empty())
    }

    /// Returns the folder of a slice's files that outlive a restart of the machine.
    #[must_use]
    pub fn slot(&self, name: &Name) -> PathBuf {
        self.slots().join(name.as_str())
    }

    /// Returns the folder that holds the folders of all slices.
    #[must_use]
    pub fn slots(&self) -> PathBuf {
        self.state.join("slots")
    }

    /// Returns the path of the file that an agent writes for a slice that it owns.
    #[must_use]
    pub fn owner_file(&self, name: &Name) -> PathBuf {
        self.slot(name).join("slice.json")
    }

    /// Returns the path of a slice's operator's file.
    #[must_use]
    pub fn config(&self, name: &Name) -> PathBuf {
        self.conf(name).join("config")
    }

    /// Returns the folder that a container of the slice gets as that of the operator's file.
    #[must_use]
    pub fn conf(&self, name: &Name) -> PathBuf {
        self.slot(name).join("conf")
    }

    /// Returns the path of a slice's region.
    #[must_use]
    pub fn region(&self, name: &Name) -> PathBuf {
        self.regions.join(name.as_str()).join(names::REGION_FILE)
    }

    /// Returns the path of a slice's specification.
    #[must_use]
    pub fn spec(&self, name: &Name) -> PathBuf {
        self.cdi.join(format!("gpuslice-{name}.json"))
    }

    /// Returns the path to which [`install`](Self::install) copies a library of this content.
    fn installed(&self, content: &[u8]) -> PathBuf {
        let mut hash = String::new();
        for byte in Sha256::digest(content) {
            let _to_a_string = write!(hash, "{byte:02x}");
        }
        self.state.join("lib").join(hash).join("libgpuslice.so")
    }

    /// Returns the path to which [`install`](Self::install) would copy a library.
    ///
    /// # Errors
    /// The library cannot be read.
    pub fn library(&self, library: &Path) -> Result<PathBuf, Problem> {
        Ok(self.installed(&fs::read(library).map_err(Problem::of(library, "read the library"))?))
    }

    /// Copies the preload library to a path that contains the hash of its content, and returns that path. So a newer library
    /// never replaces a copy that programs use.
    ///
    /// # Errors
    /// The library cannot be read, or the copy cannot be written.
    pub fn install(&self, library: &Path) -> Result<PathBuf, Problem> {
        let content = fs::read(library).map_err(Problem::of(library, "read the library"))?;
        let path = self.installed(&content);
        make_folder(path.parent().unwrap_or(&self.state))?;
        if fs::read(&path).ok().as_ref() != Some(&content) {
            write_whole(&path, &content, 0o755)?;
        }
        write_whole(&self.state.join("ld.so.preload"), format!("{LIBRARY}\n").as_bytes(), 0o644)?;
        Ok(path)
    }

    /// Makes the folders of a slice, its region if there is none, and its operator's file with these settings. A region that
    /// exists stays, because processes may use it.
    ///
    /// A container may write the folder of its region. So it may remove the region, or put another file in its place. While a
    /// container has the folder (`is_used`), both are errors. A new region would give the slice its limits twice, because
    /// members that still use the removed file would count apart from new members. If no container has the folder, this
    /// function renames a file that is no region, and makes a new region. It also restores the owners and modes of the folder and
    /// the region, which a container may have taken from the users of the next one.
    ///
    /// # Errors
    /// A file cannot be made, or another file has the region's path.
    pub fn make(&self, name: &Name, settings: &[(&str, String)], is_used: bool) -> Result<(), Problem> {
        self.configure(name, settings)?;
        let region = self.region(name);
        let folder = region.parent().unwrap_or(&self.regions);
        let is_new = folder.symlink_metadata().is_err();
        make_folder(folder)?;
        if !is_used {
            take_back(folder, &self.regions, FOLDER_MODE)?;
        }
        if !is_new && is_used && region.symlink_metadata().is_err() {
            let what = "was removed while a container may have it; end the container, and remove this folder"
                .to_owned();
            return Err(Problem { path: region, what });
        }
        make(&region, REGION_MODE)?;
        match Reader::open(&region, Trust::AnyOwner) {
            Err(RegionError::NotAFile { .. } | RegionError::Magic { .. } | RegionError::Size { .. })
                if !is_used =>
            {
                // A tenant may have put any file under that name.
                let aside = region.with_extension("broken");
                remove_folder(&aside, &self.regions)?;
                fs::rename(&region, aside).map_err(Problem::of(&region, "set this file aside"))?;
                make(&region, REGION_MODE)?;
                Ok(())
            }
            // An older or newer gpuslice has left this region.
            Err(error @ RegionError::Version { .. }) if !is_used => {
                if remove_for_good(&region, Trust::AnyOwner)? != Removal::Gone {
                    return Err(error.into());
                }
                make(&region, REGION_MODE)?;
                Ok(())
            }
            looked => {
                looked?;
                if is_used { Ok(()) } else { take_back(&region, &self.regions, REGION_MODE) }
            }
        }
    }

    /// Writes the operator's file of a slice.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn configure(&self, name: &Name, settings: &[(&str, String)]) -> Result<(), Problem> {
        make_folder(&self.conf(name))?;
        let mut text = format!(
            "# Limits of the slice {name}. Written anew when they change: edit them where they are set.\n"
        );
        for (key, value) in settings.iter().chain(&[(keys::REGION, REGION.to_owned())]) {
            let _to_a_string = writeln!(text, "{key}={value}");
        }
        write_whole(&self.config(name), text.as_bytes(), 0o644)
    }

    /// Returns the CDI device of a slice. `library` is the path that [`install`](Self::install) returned.
    #[must_use]
    pub fn device(&self, name: &Name, settings: &[(&str, String)], library: &Path) -> cdi::CdiDevice {
        let named = [("GPUSLICE_CONFIG", FIXED_FILE.to_owned()), (keys::REGION, REGION.to_owned())];
        let env = named.iter().chain(settings).map(|(key, value)| format!("{key}={value}")).collect();
        let region = self.region(name);
        let mounts = vec![
            Mount::read_only(library.to_owned(), LIBRARY),
            Mount::read_only(self.state.join("ld.so.preload"), PRELOAD),
            Mount::read_only(self.conf(name), CONF),
            Mount::writable(region.parent().unwrap_or(&self.regions).to_owned(), MOUNTED),
        ];
        cdi::CdiDevice { name: name.to_string(), container_edits: cdi::Edits { env, mounts } }
    }

    /// Writes the specification of one slice.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn announce(&self, name: &Name, device: cdi::CdiDevice) -> Result<(), Problem> {
        make_folder(&self.cdi)?;
        let path = self.spec(name);
        let text = serde_json::to_string_pretty(&Spec::of(vec![device]));
        let text = text.map_err(|error| Problem { path: path.clone(), what: error.to_string() })?;
        write_whole(&path, format!("{text}\n").as_bytes(), 0o644)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_region::Member;
    use gpuslice_region::layout::VERSION;
    use serde_json::{Value, json};
    use std::os::unix::fs::PermissionsExt as _;

    fn places(root: &Path) -> Places {
        Places { state: root.join("state"), regions: root.join("regions"), cdi: root.join("cdi") }
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_slice_is_made_with_all_that_a_container_needs() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = places(root.path());
        let name: Name = "a".parse().unwrap();
        let settings = [("GPU_MEM_LIMIT", "4GiB".to_owned())];
        let library = root.path().join("built.so");
        fs::write(&library, "first").unwrap();
        let first = places.install(&library).unwrap();
        places.make(&name, &settings, false).unwrap();
        places.announce(&name, places.device(&name, &settings, &first)).unwrap();
        let config = fs::read_to_string(places.config(&name)).unwrap();
        assert!(
            config.ends_with("\nGPU_MEM_LIMIT=4GiB\nGPUSLICE_REGION=/run/gpuslice/region/region\n"),
            "{config}"
        );
        assert_eq!([mode(&places.config(&name)), mode(&places.region(&name))], [0o644, 0o666]);
        assert_eq!(mode(places.region(&name).parent().unwrap()), 0o755);
        assert!(
            Reader::open(&places.region(&name), Trust::OwnerOnly).unwrap().is_none(),
            "no process has lived in it"
        );
        let spec: Value = serde_json::from_slice(&fs::read(places.spec(&name)).unwrap()).unwrap();
        assert_eq!(spec["kind"], "gpuslice.dev/slice");
        assert_eq!(spec["devices"][0]["name"], "a");
        let edits = &spec["devices"][0]["containerEdits"];
        assert_eq!(
            edits["env"],
            json!([
                "GPUSLICE_CONFIG=/run/gpuslice/conf/config",
                "GPUSLICE_REGION=/run/gpuslice/region/region",
                "GPU_MEM_LIMIT=4GiB"
            ])
        );
        let mounts: Vec<_> = edits["mounts"].as_array().unwrap().iter().collect();
        let places_in: Vec<_> = mounts.iter().map(|mount| mount["containerPath"].as_str().unwrap()).collect();
        assert_eq!(places_in, [LIBRARY, PRELOAD, CONF, MOUNTED]);
        for mount in mounts {
            assert!(Path::new(mount["hostPath"].as_str().unwrap()).exists(), "{mount}");
            let writable = mount["containerPath"] == MOUNTED;
            assert_eq!(mount["options"][0], if writable { "rw" } else { "ro" });
            // The loader cannot load a library from a mount that forbids execution.
            assert_eq!(mount["options"].as_array().unwrap().contains(&json!("noexec")), writable);
        }
    }

    #[test]
    fn a_newer_library_lies_beside_the_one_that_programs_use() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        let library = root.path().join("built.so");
        let [first, again, second] = ["first", "first", "second"].map(|content| {
            fs::write(&library, content).unwrap();
            places.install(&library).unwrap()
        });
        assert_eq!(first, again);
        assert_ne!(first, second);
        assert_eq!(fs::read_to_string(&first).unwrap(), "first");
        assert_eq!(fs::read_to_string(&second).unwrap(), "second");
    }

    #[test]
    fn a_region_stays_and_another_file_is_an_error_or_set_aside() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = places(root.path());
        let name: Name = "a".parse().unwrap();
        places.make(&name, &[], false).unwrap();
        let region = places.region(&name);
        let before = fs::metadata(&region).unwrap();
        places.make(&name, &[], false).unwrap();
        use std::os::unix::fs::MetadataExt as _;
        assert_eq!(fs::metadata(&region).unwrap().ino(), before.ino());
        fs::remove_file(&region).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &region).unwrap();
        let problem = places.make(&name, &[], true).unwrap_err();
        assert_eq!(problem.path, region);
        assert!(problem.what.contains("symbolic link"), "{problem}");
        places.make(&name, &[], false).unwrap();
        assert!(fs::symlink_metadata(&region).unwrap().is_file());
        // A tenant leaves a folder in the region's place, and another folder at the path to which the agent renames it.
        fs::remove_file(&region).unwrap();
        fs::create_dir(&region).unwrap();
        let aside = region.with_extension("broken");
        fs::remove_file(&aside).unwrap();
        fs::create_dir(&aside).unwrap();
        std::os::unix::fs::symlink("/etc", aside.join("link")).unwrap();
        places.make(&name, &[], false).unwrap();
        assert!(fs::symlink_metadata(&region).unwrap().is_file() && Path::new("/etc/passwd").exists());
        fs::remove_file(&region).unwrap();
        let problem = places.make(&name, &[], true).unwrap_err();
        assert!(problem.what.contains("was removed"), "{problem}");
    }

    #[test]
    fn the_next_container_gets_a_region_that_its_users_may_write() {
        use std::os::unix::fs::{MetadataExt as _, chown};
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = places(root.path());
        let name: Name = "a".parse().unwrap();
        places.make(&name, &[], false).unwrap();
        let region = places.region(&name);
        let folder = region.parent().unwrap();
        let owner = fs::metadata(folder).unwrap().uid();
        for (path, mode) in [(&*region, 0o600), (folder, 0o700)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            // Only root can do this. The modes are proof enough for another user.
            let _not_root = chown(path, Some(1000), None);
        }
        places.make(&name, &[], true).unwrap();
        assert_eq!([mode(&region), mode(folder)], [0o600, 0o700], "a container has it");
        places.make(&name, &[], false).unwrap();
        assert_eq!([mode(&region), mode(folder)], [0o666, 0o755]);
        assert_eq!([&*region, folder].map(|path| fs::metadata(path).unwrap().uid()), [owner; 2]);
    }

    #[test]
    fn a_region_of_another_version_is_made_anew_when_no_process_can_use_it() {
        use std::os::unix::fs::FileExt as _;
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = places(root.path());
        let name: Name = "a".parse().unwrap();
        places.make(&name, &[], false).unwrap();
        let region = places.region(&name);
        let (member, _) = Member::join(&region, Trust::OwnerOnly, &[]).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&region).unwrap();
        file.write_at(&(VERSION + 1).to_ne_bytes(), 8).unwrap();
        let told = |is_used| places.make(&name, &[], is_used).unwrap_err().what;
        assert!(told(false).contains("region of version"), "{}", told(false));
        member.leave();
        assert!(told(true).contains("region of version"), "{}", told(true));
        places.make(&name, &[], false).unwrap();
        assert!(Reader::open(&region, Trust::OwnerOnly).is_ok());
    }
}
