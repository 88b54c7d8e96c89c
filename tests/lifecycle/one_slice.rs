//! An operator's file makes all programs of a container one slice: of all users, and whatever the environment says.

use crate::support::bench::Bench;
use crate::support::compiler;
use crate::support::executable;
use crate::support::living::Living;
use crate::support::other_user::{NOBODY, OtherUser};
use crate::support::skip_without_rights;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// Mounts the operator's folder, and the folder of the container's memory, in a mount namespace of its own. The rest is the
/// program.
const CONTAINER: &str = "mount -t tmpfs tmpfs /run && mkdir -p /run/gpuslice/conf && mount --bind \"$1\" /run/gpuslice/conf && \
                         mount --bind \"$2\" /dev/shm && shift 2 && exec \"$@\"";

/// A container with an operator's file that names no region.
struct Container {
    bench: Bench,
    user: OtherUser,
    conf: TempDir,
    memory: TempDir,
}

impl Container {
    fn make() -> Option<Self> {
        let user = OtherUser::new("an operator's file for all users")?;
        executable::copy(compiler::plain("witness"), user.path("witness"), 0o755);
        let folder = || {
            let folder = tempfile::tempdir_in("/dev/shm").unwrap();
            fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
            folder
        };
        let (conf, memory) = (folder(), folder());
        fs::write(conf.path().join("config"), "GPU_MEM_LIMIT=1GiB\n").unwrap();
        Some(Self { bench: Bench::simulated_without_contexts(), user, conf, memory })
    }

    /// Starts `witness` behind `wrapper`, a command that changes user, namespaces or environment.
    fn start(&self, wrapper: &[&str]) -> Living {
        let folder = |folder: &TempDir| folder.path().display().to_string();
        let (conf, memory, witness) = (folder(&self.conf), folder(&self.memory), self.user.path("witness"));
        let library = format!("LD_PRELOAD={}", self.user.path("libgpuslice.so"));
        let driver = format!("LD_LIBRARY_PATH={}", self.user.path(""));
        let mut words = vec!["--mount", "sh", "-c", CONTAINER, "container", &conf, &memory];
        words.extend_from_slice(wrapper);
        words.extend(["env", "SIMGPU_STATE=/dev/shm/state", &driver, &library, &witness, "1048576"]);
        self.bench.program(Path::new("/usr/bin/unshare"), &words).start()
    }

    /// Lets all users use the simulated GPU, which belongs to the first program's user.
    fn share_gpu(&self) {
        let everybody = Permissions::from_mode(0o666);
        fs::set_permissions(self.memory.path().join("state"), everybody).unwrap();
    }
}

/// Returns the status of an allocation of `mib` MiB that the program frees again.
fn take(program: &mut Living, mib: u64) -> String {
    program.ask(&format!("take {}", mib * MIB)).split(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn all_users_of_a_container_share_the_quota_of_an_operators_file() {
    let Some(container) = Container::make() else { return };
    let first = container.start(&[]);
    let Some(ready) = first.hear() else {
        return skip_without_rights("an operator's file for all users");
    };
    assert_eq!(ready, "ready");
    container.share_gpu();
    let mut first = first;
    assert!(first.ask(&format!("keep {}", 600 * MIB)).starts_with("0 "));
    let user = format!("--reuid={NOBODY}");
    let group = format!("--regid={NOBODY}");
    let as_nobody = ["setpriv", &user, &group, "--clear-groups"];
    let elsewhere = ["env", "GPUSLICE_REGION=/dev/shm/mine"];
    let unshared = ["unshare", "--user", "--map-root-user", "--mount"];
    let both = [&as_nobody[..], &unshared, &elsewhere].concat();
    for wrapper in [&as_nobody[..], &elsewhere, &unshared, &both] {
        let mut other = container.start(wrapper);
        assert_eq!(other.hear().as_deref(), Some("ready"), "{wrapper:?}");
        assert_eq!(take(&mut other, 600), "2", "{wrapper:?} has a quota of its own");
        assert_eq!(take(&mut other, 300), "0", "{wrapper:?}");
        let (_, said) = other.end();
        let is_told =
            said.contains("GPUSLICE_REGION=\"/dev/shm/mine\" has no effect beside /run/gpuslice/conf/config");
        assert_eq!(is_told, wrapper.contains(&elsewhere[1]), "{wrapper:?}: {said}");
    }
    assert!(!container.memory.path().join("mine").exists());
    first.end();
}
