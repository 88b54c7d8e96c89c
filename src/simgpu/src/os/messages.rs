//! Messages to the user.

/// Writes one line to standard error. If that fails, the line is lost.
pub(crate) fn say(line: &str) {
    let line = format!("simgpu: {line}\n");
    // SAFETY: `write` needs `line.len()` readable bytes: `line` has them.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}
