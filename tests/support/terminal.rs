//! A terminal for a program under test: types keys, and reads the screen.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time after which a program without the expected output counts as hanging.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Time to wait for output before the next look at [`Output::is_left`], in milliseconds.
const PAUSE: i32 = 20;

/// The output of the program.
struct Output {
    parser: vt100::Parser,
    raw: Vec<u8>,
    /// True once the test reads no more.
    is_left: bool,
}

/// A program with a terminal of its own, as the leader of its session.
pub(crate) struct Terminal {
    child: Child,
    ours: Option<File>,
    output: Arc<Mutex<Output>>,
    reading: Option<JoinHandle<()>>,
    before: String,
}

/// Opens both ends of a new terminal. No program that a test starts inherits them: it would keep the terminal from hanging up.
fn open() -> [OwnedFd; 2] {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the call takes flags and touches no memory.
    let ours = unsafe { libc::posix_openpt(flags) };
    assert!(ours >= 0, "there is no terminal to be had");
    // SAFETY: the call takes the descriptor that `posix_openpt` made above.
    assert_eq!(unsafe { libc::unlockpt(ours) }, 0, "the terminal is locked");
    // SAFETY: the request takes flags and touches no memory.
    let theirs = unsafe { libc::ioctl(ours, libc::TIOCGPTPEER, flags) };
    assert!(theirs >= 0, "the terminal has no other end");
    // SAFETY: the two calls above made these descriptors, and nothing else owns them.
    [ours, theirs].map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes this process the leader of a session whose terminal is its standard input. Resets signals that end it, because a test
/// may run under `nohup`, which ignores them.
fn begin_session() -> std::io::Result<()> {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
        // A shell cannot trap a signal that was ignored before it began, and tests in the background ignore these.
        // SAFETY: the call takes a signal and the default action; no handler is installed.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: the call takes no arguments.
    unsafe { libc::setsid() };
    // SAFETY: the request takes a number and touches no memory.
    match unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn set_size(terminal: &File, (columns, rows): (u16, u16)) {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the request reads one `winsize`, and `size` is one.
    assert_eq!(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }, 0);
}

/// Returns the modes of a terminal: how it treats input and output.
fn manner(terminal: &File) -> String {
    // SAFETY: `termios` consists of integers, for which all zeroes is a valid value.
    let mut modes: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one `termios`, and `modes` is one.
    assert_eq!(unsafe { libc::tcgetattr(terminal.as_raw_fd(), &raw mut modes) }, 0, "it is no terminal");
    format!(
        "{:x} {:x} {:x} {:x} {:?}",
        modes.c_iflag, modes.c_oflag, modes.c_cflag, modes.c_lflag, modes.c_cc
    )
}

impl Terminal {
    /// Starts a program as the leader of a session on a new terminal of 80 columns and 24 lines.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::sized(command, (80, 24))
    }

    /// Starts a program on a new terminal of `size`: columns and lines.
    pub(crate) fn sized(command: &mut Command, size: (u16, u16)) -> Self {
        let [ours, theirs] = open();
        let ours = File::from(ours);
        set_size(&ours, size);
        let before = manner(&ours);
        let copy = || Stdio::from(theirs.try_clone().expect("it can be copied"));
        command.stdin(copy()).stdout(copy()).stderr(copy());
        // SAFETY: between fork and exec, a child may make system calls, and `begin_session` does nothing else.
        unsafe { command.pre_exec(begin_session) };
        let child = command.spawn().expect("it can be started");
        // The command keeps copies of the terminal's other end. They must not keep the terminal open.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let parser = vt100::Parser::new(number(size.1), number(size.0), 0);
        let output = Arc::new(Mutex::new(Output { parser, raw: Vec::new(), is_left: false }));
        let reading = read_all(ours.try_clone().expect("it can be copied"), Arc::clone(&output));
        Self { child, ours: Some(ours), output, reading: Some(reading), before }
    }

    fn ours(&self) -> &File {
        self.ours.as_ref().expect("it was not hung up")
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().expect("no thread panicked")
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.ours().write_all(keys.as_bytes()).expect("the program reads it");
    }

    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        // The emulator is resized first: the program must not draw for the new size before the emulator has it.
        self.output().parser.set_size(number(rows), number(columns));
        set_size(self.ours(), (columns, rows));
    }

    /// Returns the lines that the user of the terminal sees.
    pub(crate) fn screen(&self) -> String {
        let contents = self.output().parser.screen().contents();
        contents.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// Returns everything that the program has written.
    pub(crate) fn raw(&self) -> String {
        String::from_utf8_lossy(&self.output().raw).into_owned()
    }

    pub(crate) fn is_alternate(&self) -> bool {
        self.output().parser.screen().alternate_screen()
    }

    /// Waits until the program has written `words`, even if the screen does not show them.
    #[track_caller]
    pub(crate) fn hears(&self, words: &str) {
        self.until(words, |_| self.raw().contains(words));
    }

    /// Waits until `is_so` accepts the screen. `what` names the expected screen in the error.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut is_so: impl FnMut(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(start.elapsed() < TIMEOUT, "{what}: not seen in\n{screen}\n{}", self.last_output());
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[track_caller]
    pub(crate) fn shows(&self, words: &str) -> String {
        self.until(words, |screen| screen.contains(words))
    }

    /// Waits until the screen shows `words`, which may stand in several lines.
    #[track_caller]
    pub(crate) fn says(&self, words: &str) -> String {
        self.until(words, |screen| screen.split_whitespace().collect::<Vec<_>>().join(" ").contains(words))
    }

    #[track_caller]
    pub(crate) fn lacks(&self, words: &str) -> String {
        self.until(&format!("without {words}"), |screen| !screen.contains(words))
    }

    /// Returns the number of columns of the longest line.
    pub(crate) fn widest(&self) -> usize {
        self.screen().lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    fn last_output(&self) -> String {
        let mut text = String::new();
        for letter in self.raw().chars().rev().take(400).collect::<Vec<_>>().into_iter().rev() {
            let _string = write!(text, "{}", letter.escape_default());
        }
        text
    }

    /// Waits for the end of the program.
    #[track_caller]
    pub(crate) fn end(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status;
            }
            assert!(start.elapsed() < TIMEOUT, "it does not end:\n{}", self.screen());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the terminal has the modes of before the program, and shows the normal screen with its cursor.
    #[track_caller]
    pub(crate) fn is_as_before(&self) {
        let start = Instant::now();
        let is_back = || {
            let output = self.output();
            let screen = output.parser.screen();
            !screen.alternate_screen() && !screen.hide_cursor()
        };
        while !is_back() || manner(self.ours()) != self.before {
            let found =
                format!("{}\nnot as before: {}\n{}", manner(self.ours()), self.before, self.last_output());
            assert!(start.elapsed() < TIMEOUT, "{found}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Closes this end of the terminal, as a terminal does when its window is closed.
    pub(crate) fn hang_up(&mut self) {
        self.output().is_left = true;
        if let Some(reading) = self.reading.take() {
            reading.join().expect("it does not panic");
        }
        self.ours = None;
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
        if let Ok(mut output) = self.output.lock() {
            output.is_left = true;
        }
    }
}

fn number(size: u16) -> NonZeroU16 {
    NonZeroU16::new(size).expect("it has a size")
}

/// Reads the program's output in a thread, until the test reads no more or the other end is closed.
fn read_all(mut ours: File, output: Arc<Mutex<Output>>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while output.lock().is_ok_and(|output| !output.is_left) {
            let mut poll = libc::pollfd { fd: ours.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: the call uses as many descriptors as its second argument says, one, and `poll` is one.
            if unsafe { libc::poll(&raw mut poll, 1, PAUSE) } <= 0 {
                continue;
            }
            let Ok(count @ 1..) = ours.read(&mut bytes) else { break };
            let Ok(mut output) = output.lock() else { break };
            let read = bytes.get(..count).unwrap_or(&[]);
            output.parser.process(read);
            output.raw.extend_from_slice(read);
        }
    })
}
