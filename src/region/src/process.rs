//! Who is this process, for those who look at the slice? Nothing is decided by it.

use std::{fs, os::unix::fs::MetadataExt as _, process};

use crate::roster::Identity;

/// Position of the start time among the fields of `/proc/self/stat` that follow the command's name.
const START_FIELD: usize = 19;

/// This process's number.
pub(crate) fn number() -> u32 {
    process::id()
}

/// This process. What `/proc` does not tell is zero.
pub(crate) fn identity() -> Identity {
    Identity {
        pid: number(),
        start: fs::read("/proc/self/stat").ok().and_then(|stat| start_time(&stat)).unwrap_or(0),
        pid_namespace: fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino()),
    }
}

/// The start time in clock ticks since boot. The command's name may hold anything, so the fields are counted
/// from the last parenthesis.
fn start_time(stat: &[u8]) -> Option<u64> {
    let after = stat.iter().rposition(|byte| *byte == b')')?.checked_add(1)?;
    let fields = core::str::from_utf8(stat.get(after..)?).ok()?;
    fields.split_ascii_whitespace().nth(START_FIELD)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_spaces_and_parentheses_does_not_move_the_start_time() {
        let stat = b"7 (a) 1 (b c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(start_time(stat), Some(4242));
    }

    #[test]
    fn this_process_has_a_start_time() {
        assert_ne!(identity().start, 0);
    }
}
