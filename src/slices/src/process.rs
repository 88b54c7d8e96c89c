//! Tells which process of this machine a process of a slice is, and its command.

use crate::figures;
use gpuslice_region::ProcessView;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;

/// Whether a process's number means it here as well.
#[must_use]
pub fn is_near(process: &ProcessView) -> bool {
    let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino());
    process.pid_namespace == namespace && start_of(process.pid) == Some(process.start)
}

/// When a process started: the 22nd field of its `stat`, counted behind the name, which may hold anything.
pub(crate) fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The command of a process that can be seen from here: numbers mean nothing in another namespace, and
/// are used again.
#[must_use]
pub fn command_of(process: &ProcessView) -> Option<String> {
    if !is_near(process) {
        return None;
    }
    command_here(process.pid)
}

/// The command of the process that has this number here.
#[must_use]
pub fn command_here(pid: u32) -> Option<String> {
    /// Bytes of a command that are read at the most.
    const MOST: u64 = 64 << 10;
    let mut words = Vec::new();
    fs::File::open(format!("/proc/{pid}/cmdline")).ok()?.take(MOST).read_to_end(&mut words).ok()?;
    let text = String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ");
    Some(figures::printable(&text))
}

/// A command with its program's name instead of its path: what tells processes apart stands behind the path.
#[must_use]
pub fn short_command(command: &str) -> String {
    let (program, rest) = command.split_at(command.find(' ').unwrap_or(command.len()));
    let name = program.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(program);
    format!("{name}{rest}")
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
}
