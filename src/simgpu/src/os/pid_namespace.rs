//! Namespaces of process numbers.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// Returns the inode of this process's namespace; 0 if the kernel does not tell it.
pub(crate) fn own() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// Returns the number that a process has in this process's namespace. `pid` is its number in the namespace with the inode
/// `namespace`. `None`: this process's namespace does not contain the process.
pub(crate) fn number_here(namespace: u64, pid: u32) -> Option<u32> {
    if namespace == own() {
        return Some(pid);
    }
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.find(|number| {
        let is_in =
            fs::metadata(format!("/proc/{number}/ns/pid")).is_ok_and(|found| found.ino() == namespace);
        is_in && innermost(*number) == Some(pid)
    })
}

/// Returns the number that a process has in its own namespace.
fn innermost(number: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{number}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_the_same_namespace_keeps_its_number_and_one_of_an_unknown_namespace_has_none() {
        assert_eq!(number_here(own(), 17), Some(17));
        assert_eq!(number_here(1, 17), None);
        assert_eq!(innermost(std::process::id()), Some(std::process::id()));
    }
}
