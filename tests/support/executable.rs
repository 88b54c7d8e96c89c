//! Makes files that a test then executes.
//!
//! A child writes the file. If the test process wrote it, a child that another thread forks meanwhile would inherit the
//! descriptor for writing. The kernel refuses to execute a file that a process has open for writing (`ETXTBSY`).

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Copies a program to a new file with these permissions, e.g. 0o755.
pub(crate) fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>, mode: u32) {
    let status = install(mode).arg(from.as_ref()).arg(to.as_ref()).status().expect("install can be started");
    assert!(status.success(), "{} cannot be copied", from.as_ref().display());
}

/// Makes a file with these contents and permissions.
pub(crate) fn write(to: impl AsRef<Path>, contents: impl AsRef<[u8]>, mode: u32) {
    let mut command = install(mode);
    let mut child = command
        .arg("/dev/stdin")
        .arg(to.as_ref())
        .stdin(Stdio::piped())
        .spawn()
        .expect("install can be started");
    // The pipe is closed before the wait, so that the child sees its end.
    let written = child.stdin.take().expect("it is a pipe").write_all(contents.as_ref());
    let status = child.wait().expect("it is our child");
    assert!(written.is_ok() && status.success(), "{} cannot be written", to.as_ref().display());
}

fn install(mode: u32) -> Command {
    let mut command = Command::new("install");
    command.arg(format!("--mode={mode:o}")).arg("-T");
    command
}
