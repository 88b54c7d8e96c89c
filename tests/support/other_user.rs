//! A user without privileges. Tests that run as root become this user.

use super::command::{Ended, PROGRAM, end};
use super::{artefacts, executable, skip};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Number of the user and of the group that own nothing.
pub(crate) const NOBODY: u32 = 65534;

/// Returns true if this process may become any user.
pub(crate) fn is_root() -> bool {
    // SAFETY: `geteuid` takes no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// [`NOBODY`], with copies of `gpuslice`, the library and the simulated driver.
///
/// The user may be unable to enter the clone. The clone may lie in a home that only its owner may enter, as root's is on Debian.
pub(crate) struct OtherUser {
    /// Folder that every user can read and only root can write.
    folder: TempDir,
    /// Folder of the user, in memory, where files keep their locks.
    own: TempDir,
}

impl OtherUser {
    /// Makes the user. If this process cannot become another user, skips `what` with a reason and returns `None`.
    pub(crate) fn new(what: &str) -> Option<Self> {
        if !is_root() {
            skip(&format!("{what}: needs another user; to mend it: run the tests as root"));
            return None;
        }
        let Some(folder) = folder_for_programs() else {
            skip(&format!(
                "{what}: user {NOBODY} may execute nothing in /tmp, /var/tmp and /dev/shm; to mend it: mount \
                 one of them without noexec"
            ));
            return None;
        };
        let program = (PathBuf::from(PROGRAM), "gpuslice");
        let driver = |name: &'static str| (artefacts::simulated_driver().join(name), name);
        let files = [
            program,
            (artefacts::library(), "libgpuslice.so"),
            driver("libcuda.so.1"),
            driver("libnvidia-ml.so.1"),
        ];
        for (from, name) in files {
            executable::copy(from, folder.path().join(name), 0o755);
        }
        let own = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
        chown(own.path(), Some(NOBODY), Some(NOBODY)).expect("this is root");
        Some(Self { folder, own })
    }

    /// Returns the path of a file beside the programs.
    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Prepares `gpuslice` to run as the other user, with an empty environment but for `PATH`.
    pub(crate) fn gpuslice(&self, arguments: &[&str]) -> Command {
        let mut command = as_nobody(&self.folder.path().join("gpuslice"));
        command.args(arguments);
        command
    }

    /// Prepares `gpuslice` to run as the other user with the simulated driver and a GPU of its own.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.gpuslice(arguments);
        command.env("LD_LIBRARY_PATH", self.folder.path());
        command.env("SIMGPU_STATE", self.own.path().join("state")).env("SIMGPU_CONTEXT_BYTES", "0");
        command
    }

    /// Runs [`Self::command`] to its end.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Ended {
        end(&mut self.command(arguments))
    }
}

/// Prepares a program to run as [`NOBODY`]. A child that gives up user 0 has no further groups.
fn as_nobody(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    command.env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    command
}

/// Makes a folder in which [`NOBODY`] may execute programs: the /dev/shm of a container is often mounted `noexec`, and `TMPDIR`
/// may lie in a home.
fn folder_for_programs() -> Option<TempDir> {
    ["/tmp", "/var/tmp", "/dev/shm"].into_iter().find_map(|place| {
        let folder = tempfile::tempdir_in(place).ok()?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).ok()?;
        let program = folder.path().join("true");
        executable::copy("/bin/true", &program, 0o755);
        as_nobody(&program).status().is_ok_and(|status| status.success()).then_some(folder)
    })
}
