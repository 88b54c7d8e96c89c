//! Removes a folder that a container may have written.
//!
//! A container can nest folders so deeply that a recursive removal overflows the stack, or runs out of descriptors. So
//! [`remove_folder`] does not recurse. It moves each nested folder into one queue folder beside the removed folder.

use super::files::Problem;
use rustix::fs::{self as kernel, AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// The name of the queue folder, which holds the folders that are being removed. No slice can have this name.
const REMOVED: &str = ".removed";
/// Attempts to remove one folder. A living process of a container may write new files into it between two attempts.
const ATTEMPTS: usize = 16;
/// Longest time of a removal. A million files take two seconds.
const LONGEST: Duration = Duration::from_secs(10);

/// Removes a folder with everything in it, or a file of another kind. A missing path is no failure.
///
/// `beside` is a folder of the same file system that no container can write. The removal first moves the folder into a queue in
/// `beside`. So its path is free even if the removal fails later. The next call removes the rest.
///
/// The queue also has folders of other containers. If only those cannot be removed, that is no failure either.
///
/// # Errors
/// The folder cannot be moved or removed.
pub fn remove_folder(path: &Path, beside: &Path) -> Result<(), Problem> {
    let problem = |error| Problem { path: path.to_owned(), what: format!("cannot be removed: {error}") };
    try_remove(path, &beside.join(REMOVED), LONGEST).map_err(problem)
}

fn try_remove(path: &Path, queue: &Path, longest: Duration) -> Result<(), Errno> {
    let was_there = match kernel::unlinkat(CWD, path, AtFlags::empty()) {
        Err(Errno::ISDIR) => match kernel::mkdirat(CWD, queue, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => true,
            // A container has filled the file system. The folder itself becomes the queue, because no new one can be made.
            Err(Errno::NOSPC | Errno::DQUOT) => {
                kernel::renameat(CWD, path, CWD, queue)?;
                true
            }
            Err(error) => return Err(error),
        },
        Ok(()) | Err(Errno::NOENT) => false,
        Err(error) => return Err(error),
    };
    let folder = match kernel::openat(CWD, queue, FOLDER, Mode::empty()) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut opened = Queue { folder, next: 0, begun: Instant::now(), longest };
    opened.take(CWD, path)?;
    match opened.empty() {
        Ok(()) => {}
        Err(error) if was_there => return Err(error),
        // A folder of another container stays. The next call tries again.
        Err(_) => return Ok(()),
    }
    match kernel::unlinkat(CWD, queue, AtFlags::REMOVEDIR) {
        // Another thread uses the same queue.
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Flags that open a folder, and refuse a link to a folder.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The folder with the folders that are being removed. Their names are numbers.
#[derive(Debug)]
struct Queue {
    folder: OwnedFd,
    next: u64,
    begun: Instant,
    longest: Duration,
}

impl Queue {
    /// Fails if the removal takes too long. Example: a process of a container makes new files all the time.
    fn goes_on(&self) -> Result<(), Errno> {
        if self.begun.elapsed() < self.longest { Ok(()) } else { Err(Errno::BUSY) }
    }

    /// Moves a folder into the queue. A missing folder is no failure.
    fn take(&mut self, from: impl AsFd, name: impl Arg + Copy) -> Result<(), Errno> {
        loop {
            let to = self.next.to_string();
            self.next = self.next.saturating_add(1);
            match kernel::renameat(&from, name, &self.folder, &to) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                // The number is taken. A killed agent, another thread, or a container has made a file of this name.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes everything in the queue. If one folder cannot be removed, the function still removes the others, and then fails.
    fn empty(&mut self) -> Result<(), Errno> {
        loop {
            let (mut is_empty, mut removed) = (true, Ok(()));
            for entry in entries(&self.folder)? {
                self.goes_on()?;
                is_empty = false;
                removed = self.remove(entry?.file_name()).and(removed);
            }
            if is_empty || removed.is_err() {
                return removed;
            }
        }
    }

    /// Removes a file or folder of the queue. Moves the folders inside it into the queue.
    fn remove(&mut self, name: &CStr) -> Result<(), Errno> {
        match kernel::unlinkat(&self.folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR) => {}
            Err(error) => return Err(error),
        }
        for _ in 0..ATTEMPTS {
            match kernel::unlinkat(&self.folder, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::NOTEMPTY) => {}
                Err(error) => return Err(error),
            }
            let folder = kernel::openat(&self.folder, name, FOLDER, Mode::empty())?;
            for entry in entries(&folder)? {
                self.goes_on()?;
                let entry = entry?;
                match kernel::unlinkat(&folder, entry.file_name(), AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(Errno::ISDIR) => self.take(&folder, entry.file_name())?,
                    Err(error) => return Err(error),
                }
            }
        }
        Err(Errno::NOTEMPTY)
    }
}

/// Returns the entries of a folder, without `.` and `..`.
fn entries(folder: &OwnedFd) -> Result<impl Iterator<Item = Result<kernel::DirEntry, Errno>> + use<>, Errno> {
    let is_other = |name: &CStr| ![c".", c".."].contains(&name);
    Ok(Dir::read_from(folder)?
        .filter(move |entry| entry.as_ref().map_or(true, |entry| is_other(entry.file_name()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Levels of nested folders. A removal that keeps a descriptor for each level runs out of descriptors.
    const LEVELS: usize = 20_000;

    fn nest(path: &Path) {
        kernel::mkdirat(CWD, path, Mode::RWXU).unwrap();
        let mut folder = kernel::openat(CWD, path, FOLDER, Mode::empty()).unwrap();
        for _ in 0..LEVELS {
            kernel::mkdirat(&folder, "d", Mode::RWXU).unwrap();
            folder = kernel::openat(&folder, "d", FOLDER, Mode::empty()).unwrap();
        }
    }

    #[test]
    fn a_thread_with_a_small_stack_removes_a_folder_that_is_nested_deeply() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = root.path().join("slot-1");
        nest(&path);
        fs::write(path.join("file"), "").unwrap();
        let (target, beside) = (path.clone(), root.path().to_owned());
        let thread = std::thread::Builder::new().stack_size(512 << 10);
        thread.spawn(move || remove_folder(&target, &beside).unwrap()).unwrap().join().unwrap();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn files_and_links_are_removed_and_their_targets_stay() {
        let root = tempfile::tempdir().unwrap();
        let (kept, beside) = (root.path().join("kept"), root.path().join("beside"));
        fs::create_dir_all(&beside).unwrap();
        fs::create_dir_all(kept.join("inner")).unwrap();
        for name in ["a/b/c", "a/d"] {
            fs::create_dir_all(beside.join(name)).unwrap();
            fs::write(beside.join(name).join("file"), "x").unwrap();
        }
        symlink(&kept, beside.join("a/link")).unwrap();
        symlink(&kept, beside.join("link")).unwrap();
        for name in ["a", "link", "missing"] {
            remove_folder(&beside.join(name), &beside).unwrap();
        }
        assert!(kept.join("inner").exists());
        assert_eq!(fs::read_dir(&beside).unwrap().count(), 0);
    }

    #[test]
    fn a_removal_that_takes_too_long_frees_the_path_and_the_next_one_ends_it() {
        let root = tempfile::tempdir().unwrap();
        let (path, queue) = (root.path().join("slot-1"), root.path().join(REMOVED));
        fs::create_dir_all(path.join("a/b")).unwrap();
        assert_eq!(try_remove(&path, &queue, Duration::ZERO), Err(Errno::BUSY));
        assert!(!path.exists() && queue.join("0/a/b").exists());
        remove_folder(&path, root.path()).unwrap();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    /// The test runs itself again, in a mount namespace with a file system of only eight files.
    #[test]
    fn a_folder_that_uses_up_its_file_system_is_removed() {
        const HERE: &str = "GPUSLICE_TEST_SMALL_FILE_SYSTEM";
        if let Some(root) = std::env::var_os(HERE) {
            let root = Path::new(&root);
            let path = root.join("slot-1");
            let made =
                (0..64).take_while(|number| fs::create_dir_all(path.join(format!("{number}/a"))).is_ok());
            assert!(made.count() < 8);
            remove_folder(&path, root).unwrap();
            assert_eq!(fs::read_dir(root).unwrap().count(), 0);
            return;
        }
        let unshare = |script: &str, root: &Path| {
            let mut command = std::process::Command::new("unshare");
            command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(root);
            command.arg(std::env::current_exe().unwrap()).env(HERE, root).output()
        };
        let root = tempfile::tempdir().unwrap();
        let mount = "mount -t tmpfs -o nr_inodes=8 tmpfs \"$1\"";
        if !unshare(mount, root.path()).is_ok_and(|ran| ran.status.success()) {
            println!(
                "SKIP a folder that uses up its file system; elsewhere: where user namespaces may mount"
            );
            return;
        }
        let name = "slot::removal::tests::a_folder_that_uses_up_its_file_system_is_removed";
        let ran = unshare(&format!("{mount} && \"$2\" --exact {name}"), root.path()).unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    }

    /// No call can remove a folder below a process that makes files in it, so a removal without time stands for one that fails.
    #[test]
    fn a_folder_that_cannot_be_removed_blocks_no_other_one() {
        let root = tempfile::tempdir().unwrap();
        let (path, queue) = (root.path().join("slot-1"), root.path().join(REMOVED));
        fs::create_dir_all(path.join("a")).unwrap();
        assert_eq!(try_remove(&path, &queue, Duration::ZERO), Err(Errno::BUSY));
        assert_eq!(try_remove(&path, &queue, Duration::ZERO), Ok(()), "its path is free");
        assert_eq!(try_remove(&root.path().join("missing"), &queue, Duration::ZERO), Ok(()));
        assert!(queue.join("0/a").exists());
    }

    /// The test runs itself again, with the capabilities of the shipped unit only.
    #[test]
    fn an_agent_with_the_rights_of_its_unit_removes_the_sticky_folder_of_a_tenant() {
        const HERE: &str = "GPUSLICE_TEST_STICKY_FOLDER";
        const UNIT: &str = include_str!("../../../../examples/agent/gpuslice-agent.service");
        if let Some(root) = std::env::var_os(HERE) {
            remove_folder(&Path::new(&root).join("slot-1"), Path::new(&root)).unwrap();
            assert_eq!(fs::read_dir(root).unwrap().count(), 0);
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("slot-1/d");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        let own = |path: &Path, user| std::os::unix::fs::chown(path, Some(user), None);
        let kept = UNIT.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
        let kept = kept.to_lowercase().replace("cap_", "+").replace(' ', ",");
        let mut limited = std::process::Command::new("setpriv");
        limited.arg(format!("--bounding-set=-all,{kept}")).env(HERE, root.path());
        let name = "slot::removal::tests::an_agent_with_the_rights_of_its_unit_removes_the_sticky_folder_of_a_tenant";
        limited.arg(std::env::current_exe().unwrap()).args(["--exact", name]);
        if own(&folder.join("file"), 1001).is_err() {
            println!(
                "SKIP a removal with the rights of the unit: this is not root; to mend it: run the tests as root"
            );
            return;
        }
        own(&folder, 1000).unwrap();
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
        let Ok(ran) = limited.output() else {
            println!(
                "SKIP a removal with the rights of the unit: there is no setpriv; to mend it: apt-get install util-linux"
            );
            return;
        };
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn the_next_removal_ends_one_that_was_killed() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join(REMOVED).join("0/a/b")).unwrap();
        fs::write(root.path().join(REMOVED).join("1"), "").unwrap();
        fs::create_dir_all(root.path().join("slot-1/c")).unwrap();
        remove_folder(&root.path().join("slot-1"), root.path()).unwrap();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
