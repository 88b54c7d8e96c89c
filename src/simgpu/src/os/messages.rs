//! Messages to the user.

/// Writes one line to standard error. A failure is ignored.
pub(crate) fn say(line: &str) {
    let line = format!("simgpu: {line}\n");
    // SAFETY: `write` needs `line.len()` readable bytes, which `line` has.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}
