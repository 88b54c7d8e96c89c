//! Finds the process of this machine for a member of a slice, and the command of that process.

use crate::figures;
use gpuslice_region::{ProcessView, own_pid_namespace};
use std::fs;
use std::io::Read as _;
use std::str::FromStr;

/// Returns true if the number of a slice's process means the same process in this process's namespace.
#[must_use]
pub fn is_near(process: &ProcessView) -> bool {
    process.pid_namespace == own_pid_namespace() && start_of(process.pid) == Some(process.start)
}

/// Returns the start time of a process: the 22nd field of its `stat`.
pub(crate) fn start_of(pid: u32) -> Option<u64> {
    stat_field(pid, 19)
}

/// Returns the number of a process's parent: the fourth field of its `stat`.
pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    stat_field(pid, 1)
}

/// Returns a field of a process's `stat`. Fields count from 0 after the process's name, because the name may contain spaces.
fn stat_field<T: FromStr>(pid: u32, place: usize) -> Option<T> {
    let stat = read(&format!("/proc/{pid}/stat"))?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(place)?.parse().ok()
}

/// Returns the command of the process that has this number in this process's namespace.
#[must_use]
pub fn command_here(pid: u32) -> Option<String> {
    Some(figures::printable(&words_of(pid)?.join(" ")))
}

/// Returns the program and the arguments of the process that has this number in this process's namespace.
pub(crate) fn words_of(pid: u32) -> Option<Vec<String>> {
    /// Most bytes of a command that this function reads.
    const MOST: u64 = 64 << 10;
    let mut words = Vec::new();
    fs::File::open(format!("/proc/{pid}/cmdline")).ok()?.take(MOST).read_to_end(&mut words).ok()?;
    let text = String::from_utf8_lossy(&words);
    Some(text.trim_end_matches('\0').split('\0').map(str::to_owned).collect())
}

/// Replaces the path of the program in a command by the program's name. The arguments after it tell processes apart.
#[must_use]
pub fn short_command(command: &str) -> String {
    let (program, rest) = command.split_at(command.find(' ').unwrap_or(command.len()));
    let name = program.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(program);
    format!("{name}{rest}")
}

/// Reads a file of `/proc`. Returns none if the file has 1 MiB or more. A process's name may contain any bytes.
pub(crate) fn read(path: &str) -> Option<String> {
    read_below(path, 1 << 20)
}

/// Reads the list of the mounts that a process sees. Returns none if the list has 4 MiB or more. An overlay has 4 KiB at most, so
/// the host's list has room for a thousand containers. A longer list would take seconds to read.
pub(crate) fn read_mounts(pid: u32) -> Option<String> {
    read_below(&format!("/proc/{pid}/mountinfo"), 4 << 20)
}

/// Reads a file, if it has fewer than `most` bytes.
fn read_below(path: &str, most: u64) -> Option<String> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    let is_whole = u64::try_from(bytes.len()).is_ok_and(|length| length < most);
    is_whole.then(|| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_begins_with_its_programs_name() {
        for (command, shown) in [
            ("/usr/bin/python3.11 /srv/a/train.py --epochs 3", "python3.11 /srv/a/train.py --epochs 3"),
            ("python train.py", "python train.py"),
            ("./a.out", "a.out"),
            ("nginx: worker /etc/x", "nginx: worker /etc/x"),
            ("/odd/ x", "/odd/ x"),
            ("", ""),
        ] {
            assert_eq!(short_command(command), shown);
        }
    }

    #[test]
    fn a_process_with_any_name_is_found() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(OsStr::from_bytes(b"a) \xff S 1"));
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("300").spawn().unwrap();
        let start = start_of(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(start.is_some());
    }
}
