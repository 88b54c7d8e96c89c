//! How does a test sit at a terminal?

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Nothing here takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program with a terminal of its own, as its session's first.
pub(crate) struct Terminal {
    pub(crate) child: Child,
    ours: File,
    /// All that was seen.
    pub(crate) seen: String,
}

/// Both ends of a new terminal. No program that any test starts keeps them: it would keep the terminal from hanging up.
fn open() -> [OwnedFd; 2] {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: a plain call.
    let ours = unsafe { libc::posix_openpt(flags) };
    assert!(ours >= 0, "there is no terminal to be had");
    // SAFETY: the call above made it.
    assert_eq!(unsafe { libc::unlockpt(ours) }, 0, "the terminal is locked");
    // SAFETY: the request takes flags.
    let theirs = unsafe { libc::ioctl(ours, libc::TIOCGPTPEER, flags) };
    assert!(theirs >= 0, "the terminal has no other end");
    // SAFETY: nobody else has these descriptors.
    [ours, theirs].map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes this process, whose standard input is a terminal, the first of a session that has it, and one that hears when it
/// hangs up: tests may be run by `nohup`, and a shell cannot catch what was ignored before it.
fn begin_session() -> std::io::Result<()> {
    // SAFETY: a plain call.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
    // SAFETY: a plain call.
    unsafe { libc::setsid() };
    // SAFETY: the request takes a number.
    match unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

impl Terminal {
    pub(crate) fn start(command: &mut Command) -> Self {
        let [ours, theirs] = open();
        let copy = || Stdio::from(theirs.try_clone().expect("it can be copied"));
        command.stdin(copy()).stdout(copy()).stderr(copy());
        // SAFETY: what it calls may be called between fork and exec.
        unsafe { command.pre_exec(begin_session) };
        let child = command.spawn().expect("it can be started");
        // The command keeps copies: it must not keep the terminal open.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { child, ours: File::from(ours), seen: String::new() }
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).expect("somebody reads it");
    }

    /// Reads until this is seen.
    #[track_caller]
    pub(crate) fn until(&mut self, words: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.seen.contains(words) {
            assert!(Instant::now() < end && self.read(), "{words:?} was not seen in {:?}", self.seen);
        }
    }

    /// Reads what there is within a tenth of a second. False at the end.
    fn read(&mut self) -> bool {
        let mut poll = libc::pollfd { fd: self.ours.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor.
        if unsafe { libc::poll(&raw mut poll, 1, 100) } == 0 {
            return true;
        }
        let mut bytes = [0; 4096];
        match self.ours.read(&mut bytes) {
            Ok(read @ 1..) => {
                self.seen.push_str(&String::from_utf8_lossy(bytes.get(..read).unwrap_or_default()));
                true
            }
            _ => false,
        }
    }

    /// Hangs up, as a terminal does whose window is closed; how the program ends then.
    pub(crate) fn hang_up(mut self) -> ExitStatus {
        self.ours = File::open("/dev/null").expect("it can be opened");
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status;
            }
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Reads to the end.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let end = Instant::now() + PATIENCE;
        while self.read() {
            assert!(Instant::now() < end, "it does not end: {:?}", self.seen);
        }
        (self.child.wait().expect("it is our child"), std::mem::take(&mut self.seen))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}
