//! Identifies this process and others by `/proc`: process number, start time, namespace, boot.
//!
//! The life lock decides whether a member is alive. These numbers serve reports, and regions with a removed file.

use std::{fs, io, os::unix::fs::MetadataExt as _, process};

/// Position of the start time among the fields of `/proc/self/stat` after the command name.
const START_FIELD: usize = 19;

/// Position of the number of threads.
const THREADS_FIELD: usize = 17;

/// Numbers by which a process identifies itself in its slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    pub(crate) start: u64,
    pub(crate) pid_namespace: u64,
}

/// The boot of the machine, as two words of the header. Zeroes: not known.
pub(crate) type Boot = [u64; 2];

/// Inode of the first namespace of process numbers, the host's: `PROC_PID_INIT_INO`, part of Linux's interface.
pub const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Returns the inode of this process's namespace of process numbers; 0 if the kernel does not tell it.
#[must_use]
pub fn own_pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// Returns the number of this process.
pub(crate) fn own_pid() -> u32 {
    process::id()
}

/// Returns the identity of this process. A number is zero if `/proc` does not have it.
pub(crate) fn own_identity() -> Identity {
    Identity {
        pid: own_pid(),
        start: fs::read("/proc/self/stat").ok().and_then(|stat| start_time(&stat)).unwrap_or(0),
        pid_namespace: own_pid_namespace(),
    }
}

/// Tells whether `/proc` lists processes by the numbers of this process's own namespace.
pub(crate) fn is_proc_ours() -> bool {
    fs::read_link("/proc/self").is_ok_and(|own| own.to_str() == Some(&own_pid().to_string()))
}

/// Tells whether process `pid` is alive and `is_start` accepts its start time, in clock ticks since boot. `true` if `/proc` does
/// not answer.
pub(crate) fn is_alive(pid: u32, is_start: impl FnOnce(u64) -> bool) -> bool {
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => !has_ended(&stat) && start_time(&stat).is_none_or(is_start),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Tells whether a process has ended and waits for its parent. A process whose first thread has ended is alive while
/// another thread runs.
fn has_ended(stat: &[u8]) -> bool {
    let state = fields(stat).and_then(|mut fields| fields.next());
    let threads = fields(stat).and_then(|mut fields| fields.nth(THREADS_FIELD));
    matches!(state, Some("Z" | "X")) && matches!(threads, Some("0" | "1"))
}

/// Returns the current boot of the machine, as the kernel numbers it. Zeroes if `/proc` does not have it.
pub(crate) fn boot() -> Boot {
    fs::read("/proc/sys/kernel/random/boot_id").ok().and_then(|text| boot_of(&text)).unwrap_or_default()
}

/// Returns the 128 bits of a boot number, which the kernel writes as hexadecimal digits with dashes.
fn boot_of(text: &[u8]) -> Option<Boot> {
    let digits: String =
        text.iter().filter(|byte| byte.is_ascii_hexdigit()).map(|byte| char::from(*byte)).collect();
    let (high, low) = digits.split_at_checked(16).filter(|(_, low)| low.len() == 16)?;
    Some([u64::from_str_radix(high, 16).ok()?, u64::from_str_radix(low, 16).ok()?])
}

/// Returns the start time in clock ticks since boot. The command name may hold any character, so the fields are counted
/// from the last parenthesis.
fn start_time(stat: &[u8]) -> Option<u64> {
    fields(stat)?.nth(START_FIELD)?.parse().ok()
}

/// Returns the fields after the command name.
fn fields(stat: &[u8]) -> Option<impl Iterator<Item = &str>> {
    let after = stat.iter().rposition(|byte| *byte == b')')?.checked_add(1)?;
    Some(core::str::from_utf8(stat.get(after..)?).ok()?.split_ascii_whitespace())
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
    fn the_number_of_a_boot_is_read_as_two_words_and_anything_else_is_unknown() {
        let text = b"01234567-89ab-cdef-0011-223344556677\n";
        assert_eq!(boot_of(text), Some([0x0123_4567_89ab_cdef, 0x0011_2233_4455_6677]));
        assert_eq!([boot_of(b""), boot_of(b"0123"), boot_of(&[b'f'; 40])], [None; 3]);
    }

    #[test]
    fn a_process_has_ended_when_its_last_thread_has() {
        let stat = |state: &str, threads: u32| {
            format!("7 (a) b) {state} 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 {threads} 0 4242 20")
        };
        assert_eq!([stat("Z", 1), stat("X", 0)].map(|stat| has_ended(stat.as_bytes())), [true; 2]);
        assert_eq!(
            [stat("Z", 2), stat("S", 1), String::new()].map(|stat| has_ended(stat.as_bytes())),
            [false; 3]
        );
        assert_eq!(start_time(stat("S", 1).as_bytes()), Some(4242));
        let (me, start) = (own_identity().pid, own_identity().start);
        assert!(
            is_alive(me, |found| found == start) && !is_alive(me, |found| found != start) && is_proc_ours()
        );
    }

    #[test]
    fn this_process_has_a_start_time() {
        assert_ne!(own_identity().start, 0);
    }
}
