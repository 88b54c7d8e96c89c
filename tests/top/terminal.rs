//! What does a program draw in a terminal, and how does it leave it?

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, SlavePty, native_pty_system};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long something may take at the most: far more than it does.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came out of the program.
struct Output {
    parser: vt100::Parser,
    raw: Vec<u8>,
    /// Nobody reads any more.
    is_left: bool,
}

/// A terminal with a program in it.
pub(crate) struct Terminal {
    master: Option<Box<dyn MasterPty + Send>>,
    /// Kept open, so that the terminal stays what the program left.
    _slave: Box<dyn SlavePty + Send>,
    writer: Box<dyn Write + Send>,
    output: Arc<Mutex<Output>>,
    child: Box<dyn Child + Send + Sync>,
    before: String,
}

impl Terminal {
    /// Starts a program as the one whose terminal it is.
    pub(crate) fn start(program: &str, arguments: &[&str], size: (u16, u16)) -> Self {
        Self::with(program, arguments, size, &[])
    }

    /// The same with some more in its environment.
    pub(crate) fn with(
        program: &str,
        arguments: &[&str],
        (columns, rows): (u16, u16),
        variables: &[(&str, &str)],
    ) -> Self {
        let pair = native_pty_system().openpty(of(columns, rows)).expect("there are terminals");
        let mut command = CommandBuilder::new(program);
        command.args(arguments);
        command.env_clear();
        for (name, value) in [("PATH", "/usr/bin:/bin"), ("TERM", "xterm-256color"), ("LANG", "C.UTF-8")]
            .iter()
            .chain(variables)
        {
            command.env(name, value);
        }
        let before = format!("{:?}", pair.master.get_termios().expect("it is a terminal"));
        let child = pair.slave.spawn_command(command).expect("the program can be started");
        let [columns, rows] = [columns, rows].map(|size| NonZeroU16::new(size).expect("it has a size"));
        let parser = vt100::Parser::new(rows, columns, 0);
        let output = Arc::new(Mutex::new(Output { parser, raw: Vec::new(), is_left: false }));
        read_all(pair.master.try_clone_reader().expect("it can be read"), Arc::clone(&output));
        let writer = pair.master.take_writer().expect("it can be written");
        Self { master: Some(pair.master), _slave: pair.slave, writer, output, child, before }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.writer.write_all(keys.as_bytes()).and_then(|()| self.writer.flush()).expect("it can be written");
    }

    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        let [wide, high] = [columns, rows].map(|size| NonZeroU16::new(size).expect("it has a size"));
        // The emulator first: what is drawn for the new size must not come too early.
        self.output.lock().expect("nobody panicked").parser.set_size(high, wide);
        self.master().resize(of(columns, rows)).expect("it can be resized");
    }

    fn master(&self) -> &(dyn MasterPty + Send) {
        self.master.as_deref().expect("it was not hung up")
    }

    /// What its user sees, line by line.
    pub(crate) fn screen(&self) -> String {
        let contents = self.output.lock().expect("nobody panicked").parser.screen().contents();
        contents.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// All that was ever written.
    pub(crate) fn raw(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().expect("nobody panicked").raw).into_owned()
    }

    pub(crate) fn is_alternate(&self) -> bool {
        self.output.lock().expect("nobody panicked").parser.screen().alternate_screen()
    }

    /// Waits until its user sees what is asked for.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut is_so: impl FnMut(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(start.elapsed() < PATIENCE, "{what}: not seen in\n{screen}\n{}", self.told());
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[track_caller]
    pub(crate) fn shows(&self, words: &str) -> String {
        self.until(words, |screen| screen.contains(words))
    }

    /// As [`shows`](Self::shows), where the words may stand in several lines.
    #[track_caller]
    pub(crate) fn says(&self, words: &str) -> String {
        self.until(words, |screen| screen.split_whitespace().collect::<Vec<_>>().join(" ").contains(words))
    }

    #[track_caller]
    pub(crate) fn lacks(&self, words: &str) -> String {
        self.until(&format!("without {words}"), |screen| !screen.contains(words))
    }

    /// The columns of its longest line.
    pub(crate) fn widest(&self) -> usize {
        self.screen().lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.process_id().expect("it runs")
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    fn termios(&self) -> String {
        format!("{:?}", self.master().get_termios().expect("it is a terminal"))
    }

    fn told(&self) -> String {
        let mut told = String::new();
        for letter in self.raw().chars().rev().take(400).collect::<Vec<_>>().into_iter().rev() {
            let _string = write!(told, "{}", letter.escape_default());
        }
        told
    }

    /// Waits for the end.
    #[track_caller]
    pub(crate) fn end(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "it does not end:\n{}", self.screen());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the terminal is as it was before the program began, and the usual screen is shown, with its cursor.
    #[track_caller]
    pub(crate) fn is_as_before(&self) {
        let start = Instant::now();
        let is_back = || {
            let output = self.output.lock().expect("nobody panicked");
            let screen = output.parser.screen();
            !screen.alternate_screen() && !screen.hide_cursor()
        };
        while !is_back() || self.termios() != self.before {
            let found = format!("{}\nnot as before: {}\n{}", self.termios(), self.before, self.told());
            assert!(start.elapsed() < PATIENCE, "{found}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Nobody sits at the terminal any more. The program must write something for this to be noticed.
    pub(crate) fn hang_up(&mut self) {
        self.output.lock().expect("nobody panicked").is_left = true;
        self.master = None;
        self.writer = Box::new(std::io::sink());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

fn of(columns: u16, rows: u16) -> PtySize {
    PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }
}

fn read_all(mut reader: Box<dyn Read + Send>, output: Arc<Mutex<Output>>) {
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = reader.read(&mut bytes) {
            let mut output = output.lock().expect("nobody panicked");
            let read = bytes.get(..count).unwrap_or(&[]);
            output.parser.process(read);
            output.raw.extend_from_slice(read);
            if output.is_left {
                break;
            }
        }
    });
}
