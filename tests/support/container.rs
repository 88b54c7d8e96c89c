//! Containers without an engine: programs with namespaces and a `/dev/shm` of their own.

use super::bench::Bench;
use super::living::Living;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Script that makes a container, as an engine would: it mounts the files that a specification names, hides the host's regions,
/// and runs a command. It makes each missing mount point in memory.
const CONTAINER: &str = "set -e
for folder in /run /usr/local/lib; do mount -t tmpfs tmpfs $folder; done
mkdir /run/bench; mount --bind \"$BENCH\" /run/bench
while read -r from to; do
    case $to in
        */*.so) mkdir -p \"${to%/*}\"; : >\"$to\";;
        /etc/ld.so.preload | '') continue;;
        *) mkdir -p \"$to\";;
    esac
    mount --bind \"$from\" \"$to\"
done <<END
$MOUNTS
END
mount -t tmpfs tmpfs /dev/shm
exec \"$@\"";

/// Line of shell that lets files be written to `/etc`, in a mount namespace of its own.
pub(crate) const OWN_ETC: &str = "mount -t tmpfs none /mnt && mkdir /mnt/u /mnt/w && \
                                  mount -t overlay -o lowerdir=/etc,upperdir=/mnt/u,workdir=/mnt/w none /etc";

/// Tells whether this process may make containers.
pub(crate) fn may_have_containers() -> bool {
    let tried = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--mount-proc", "true"])
        .stderr(Stdio::null())
        .status();
    let can = tried.is_ok_and(|status| status.success());
    if !can {
        super::skip_without_rights("slices in containers");
    }
    can
}

/// Namespaces of a container, as arguments of `unshare`.
const ALL: [&str; 5] = ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc"];
/// Arguments of `unshare` for a container that shares the host's process numbers. There the simulated NVML names processes as a
/// driver on a host names them.
const HOST_NUMBERS: [&str; 1] = ["--mount"];

/// Starts a program in a container with the mounts `FROM TO`. The container has the bench's simulated GPU.
pub(crate) fn start(
    bench: &Bench,
    mounts: &[String],
    environment: &[String],
    program: &Path,
    arguments: &[&str],
) -> Living {
    start_in(&ALL, bench, mounts, environment, program, arguments)
}

/// Starts a program like [`start`], in a container that shares the host's process numbers.
pub(crate) fn start_with_host_numbers(
    bench: &Bench,
    environment: &[String],
    program: &Path,
    arguments: &[&str],
) -> Living {
    start_in(&HOST_NUMBERS, bench, &[], environment, program, arguments)
}

fn start_in(
    namespaces: &[&str],
    bench: &Bench,
    mounts: &[String],
    environment: &[String],
    program: &Path,
    arguments: &[&str],
) -> Living {
    let mut words: Vec<&str> = namespaces.to_vec();
    words.extend(["sh", "-c", CONTAINER, "container", "env"]);
    words.extend(environment.iter().map(String::as_str));
    let program = program.display().to_string();
    words.extend([program.as_str()].into_iter().chain(arguments.iter().copied()));
    let folder = bench.folder().display().to_string();
    let host = bench.program(Path::new("/usr/bin/unshare"), &words);
    // The container hides the folder of the state, so the state has a mount of its own.
    host.set("BENCH", &folder)
        .set("MOUNTS", &mounts.join("\n"))
        .set("GPUSLICE_REGION", "")
        .set("SIMGPU_STATE", "/run/bench/state")
        .start()
}

/// Returns the first process of a container, by its number outside.
pub(crate) fn first_process(container: &Living) -> u64 {
    let pid = container.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it has a child");
    children.trim().parse().expect("it has one")
}
