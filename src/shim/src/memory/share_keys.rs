//! Keys by which a process recognises memory that another process of the slice hands to it.
//!
//! Both processes find the key in the handle that one process hands to the other. If the handle is a string of bytes, the key is
//! a hash of the bytes. If the handle is a file descriptor, the library sets a read lock on a single byte of the open file. The
//! key is the place of that byte. The kernel shows the lock to every process that has the open file, whatever the descriptor's
//! number, and drops it with the open file. The lock does not change the file, and the driver takes no locks on its files. If the
//! lock cannot be set (a kernel without such locks, no `/proc`), the memory has no key, and no process inherits its charge.

use core::ffi::c_int;
use std::fs;

/// Bytes of a handle that one process hands to another.
pub(crate) const HANDLE_BYTES: usize = 64;

/// Keys of descriptors have this bit and not the highest bit, because they are places in a file, which are signed numbers.
const OF_DESCRIPTOR: u64 = 1 << 62;
/// Keys of bytes have this bit.
const OF_BYTES: u64 = 1 << 63;

/// Returns the key of a handle of bytes.
pub(crate) fn key_of_bytes(bytes: &[u8; HANDLE_BYTES]) -> u64 {
    // FNV-1a over the words. Each step mixes the high bits into the low bits, so that all bits of all words change the key.
    let (words, _) = bytes.as_chunks::<8>();
    let folded = words.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, word| {
        let mixed = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 32
    });
    folded | OF_BYTES
}

/// Returns a new key for a descriptor; `None` if the kernel gives no random number.
pub(crate) fn new_key() -> Option<u64> {
    let mut number = 0_u64;
    // SAFETY: `getrandom` requires a buffer of the length given: the eight bytes of `number`.
    let got = unsafe { libc::getrandom((&raw mut number).cast(), size_of::<u64>(), libc::GRND_NONBLOCK) };
    (got == 8).then_some(number & (OF_DESCRIPTOR - 1) | OF_DESCRIPTOR)
}

/// Returns true if this key can be given to a descriptor.
pub(crate) fn is_of_descriptor(key: u64) -> bool {
    key & (OF_BYTES | OF_DESCRIPTOR) == OF_DESCRIPTOR
}

/// Sets the key of a descriptor. All processes that get its open file can read the key. Returns false if the kernel refuses.
pub(crate) fn set_key(descriptor: c_int, key: u64) -> bool {
    let (Ok(start), Ok(kind)) = (i64::try_from(key), i16::try_from(libc::F_RDLCK)) else { return false };
    let Ok(whence) = i16::try_from(libc::SEEK_SET) else { return false };
    let lock = libc::flock { l_type: kind, l_whence: whence, l_start: start, l_len: 1, l_pid: 0 };
    // SAFETY: `fcntl` requires a readable structure: the local `lock`. The kernel refuses a number that is no descriptor.
    unsafe { libc::fcntl(descriptor, libc::F_OFD_SETLK, &raw const lock) == 0 }
}

/// Returns the key of a descriptor, if it has one.
pub(crate) fn key_of_descriptor(descriptor: c_int) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).ok()?;
    text.lines().filter(|line| line.starts_with("lock:")).find_map(key_of_line)
}

/// Returns the key in a line like `lock: 1: OFDLCK ADVISORY READ -1 00:01:42 START END`.
fn key_of_line(line: &str) -> Option<u64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [.., "OFDLCK", _, "READ", _, _, start, end] = words.as_slice() else { return None };
    let key = start.parse().ok().filter(|key| is_of_descriptor(*key))?;
    (start == end).then_some(key)
}
