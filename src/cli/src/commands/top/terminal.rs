//! Takes over a terminal, and gives it back in every case.
//!
//! The screen uses plain ANSI sequences, with the alternate screen and without a mouse. Raw mode is set first and reset last. So
//! the kernel stops a process in the background before it writes anything.

use super::keys::{Key, Keys};
use crate::output::failure::Failure;
use crate::system::{self, Arrived, SIGHUP, Signals};
use crossterm::cursor::{Hide, Show};
use crossterm::style::ResetColor;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, is_raw_mode_enabled,
};
use ratatui::backend::{Backend as _, ClearType, CrosstermBackend};
use ratatui::layout::Rect;
use ratatui::text::{Line, Text};
use ratatui::{Terminal, TerminalOptions, Viewport};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Read as _, Stdout, Write as _};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd as _, OwnedFd};
use std::panic;
use std::time::{Duration, Instant};

/// Longest wait for the rest of a sequence that begins with Escape.
const REST: Duration = Duration::from_millis(50);
/// Longest time between two signals of one sender, if one of them continues a stopped process.
const ORDER: Duration = Duration::from_millis(100);
/// Columns and lines of a terminal that does not report its size.
const USUAL: (u16, u16) = (80, 24);

/// An event to which `top` reacts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Keys(Vec<Key>),
    Signal(Arrived),
    /// The time until which `top` waited has come.
    Due,
    /// The terminal is gone.
    Gone,
}

/// Fails if `top` cannot draw a screen here. The error has the reason.
pub(crate) fn check() -> Result<(), Failure> {
    let other = "; `gpuslice status` shows the same figures once, without one";
    let no = |why: &str| Err(Failure::with_code(format!("{why}{other}"), 2));
    if !io::stdout().is_terminal() {
        return no("top needs a terminal, and standard output is none");
    }
    if !io::stdin().is_terminal() {
        return no("top needs a terminal to read keys from, and standard input is none");
    }
    if std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        return no("top needs a terminal whose cursor can be moved, and TERM is dumb");
    }
    Ok(())
}

/// A taken-over terminal. It is given back when this value is dropped, when the program panics, and while it is suspended.
#[derive(Debug)]
pub(crate) struct FullScreen {
    /// It is never dropped. The drop would write to a terminal that was given back, or would panic if the terminal is gone.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>,
    size: (u16, u16),
    input: File,
    keys: Keys,
    signals: Signals,
    arrived: OwnedFd,
}

impl FullScreen {
    /// Returns a screen for a terminal that the caller has not [taken over](Self::take_over) yet. `signals` blocks the
    /// signals that would end this process.
    pub(crate) fn open(signals: Signals) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::new(format!("the terminal cannot be used: {error}"));
        let backend = CrosstermBackend::new(BufWriter::new(io::stdout()));
        let size = size();
        let options = TerminalOptions { viewport: Viewport::Fixed(Rect::new(0, 0, size.0, size.1)) };
        give_back_before_panics();
        Ok(Self {
            terminal: ManuallyDrop::new(Terminal::with_options(backend, options).map_err(failed)?),
            size,
            input: io::stdin().as_fd().try_clone_to_owned().map_err(failed)?.into(),
            keys: Keys::default(),
            arrived: signals.descriptor().map_err(failed)?,
            signals,
        })
    }

    /// Takes over the terminal, once this process is in the foreground. A signal that ends this process comes first. In the
    /// background, the kernel would stop the process at its first access to the terminal, before the process handles the signal.
    pub(crate) fn take_over(&mut self) -> io::Result<Option<Arrived>> {
        loop {
            let is_ours = system::is_in_foreground();
            // A sender that ends a stopped job also continues it. The two signals may come in either order.
            let patience = if is_ours { Duration::ZERO } else { ORDER };
            while let Some(signal) = self.signals.within(patience) {
                if is_end(signal) {
                    return Ok(Some(signal));
                }
            }
            if is_ours {
                break;
            }
            self.signals.suspend();
        }
        enter()?;
        self.size = size();
        self.repaint()?;
        Ok(None)
    }

    /// Returns the numbers of columns and lines.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.size.0.into(), self.size.1.into())
    }

    /// Repaints the screen if its size has changed.
    pub(crate) fn resize(&mut self) -> io::Result<()> {
        let size = size();
        if size != self.size {
            self.size = size;
            self.repaint()?;
        }
        Ok(())
    }

    /// Erases the screen, so that everything is drawn again.
    pub(crate) fn repaint(&mut self) -> io::Result<()> {
        self.terminal.backend_mut().clear_region(ClearType::All)?;
        self.terminal.resize(Rect::new(0, 0, self.size.0, self.size.1))
    }

    /// Shows these lines. If the terminal cannot take the output at present, the next call writes it.
    pub(crate) fn show(&mut self, lines: Vec<Line<'static>>) -> io::Result<()> {
        let draw = |frame: &mut ratatui::Frame<'_>| frame.render_widget(Text::from(lines), frame.area());
        match self.terminal.draw(draw) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.repaint().or(Ok(())),
            drawn => drawn.map(|_| ()),
        }
    }

    /// Waits for the next event, at most until `due`.
    pub(crate) fn next(&mut self, due: Instant) -> io::Result<Event> {
        loop {
            if let Some(signal) = self.signals.within(Duration::ZERO) {
                return Ok(Event::Signal(signal));
            }
            let left = due.saturating_duration_since(Instant::now());
            let wait = if self.keys.is_waiting() { left.min(REST) } else { left };
            let [typed, arrived] = system::readable([self.input.as_fd(), self.arrived.as_fd()], wait)?;
            if arrived {
                continue;
            }
            if typed {
                return self.read();
            }
            if let Some(key) = self.keys.end() {
                return Ok(Event::Keys(vec![key]));
            }
            if Instant::now() >= due {
                return Ok(Event::Due);
            }
        }
    }

    fn read(&mut self) -> io::Result<Event> {
        let mut bytes = [0; 1024];
        match self.input.read(&mut bytes) {
            Ok(0) => Ok(Event::Gone),
            Ok(count) => Ok(Event::Keys(self.keys.take(bytes.get(..count).unwrap_or(&[])))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Event::Keys(Vec::new())),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Event::Keys(Vec::new())),
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(Event::Gone),
            Err(error) => Err(error),
        }
    }

    /// Gives the terminal back, and stops until another process continues this one. After that, a signal that ends this process
    /// comes first, because the terminal may belong to another process.
    pub(crate) fn suspend(&mut self) -> io::Result<Option<Arrived>> {
        give_back();
        self.signals.suspend();
        self.take_over()
    }

    /// Takes over the terminal again. The process that stopped this one may have left it in any state.
    pub(crate) fn resume(&mut self) -> io::Result<Option<Arrived>> {
        if system::is_in_foreground() {
            give_back();
        }
        self.take_over()
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Blocks the signals to which a screen must react.
pub(crate) fn signals() -> Signals {
    Signals::keep([
        SIGHUP,
        system::SIGINT,
        system::SIGQUIT,
        system::SIGTERM,
        system::SIGALRM,
        system::SIGUSR1,
        system::SIGUSR2,
        system::SIGVTALRM,
        system::SIGPROF,
        system::SIGIO,
        system::SIGPWR,
        system::SIGTSTP,
        system::SIGCONT,
        system::SIGWINCH,
    ])
}

/// Returns true if a blocked signal would end this process.
pub(crate) fn is_end(signal: Arrived) -> bool {
    !matches!(signal.number, system::SIGTSTP | system::SIGCONT | system::SIGWINCH)
}

/// Returns the numbers of columns and lines of the terminal.
fn size() -> (u16, u16) {
    let told = crossterm::terminal::window_size().map_or((0, 0), |size| (size.columns, size.rows));
    if told.0 == 0 || told.1 == 0 { USUAL } else { told }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    let entered = crossterm::execute!(io::stdout(), EnterAlternateScreen, Hide);
    if entered.is_err() {
        give_back();
    }
    entered
}

/// Gives the terminal back, if it was taken over. Ignores errors, because they mean that the terminal is gone.
fn give_back() {
    if is_raw_mode_enabled().unwrap_or(true) {
        let _gone = crossterm::execute!(io::stdout(), ResetColor, LeaveAlternateScreen, Show);
        let _gone = io::stdout().flush();
        let _gone = disable_raw_mode();
    }
}

/// Makes a panic give the terminal back first, so that the panic's message is on the usual screen.
fn give_back_before_panics() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        give_back();
        usual(panic);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use portable_pty::{CommandBuilder, PtySize, native_pty_system};

    /// Variable that is set in the process that panics.
    const CHILD: &str = "GPUSLICE_TEST_PANIC";

    #[test]
    #[allow(unsafe_code, reason = "sends signals to a thread")]
    fn a_process_that_gets_sigterm_as_it_stops_ends() {
        if std::env::var_os(CHILD).is_some() {
            let signals = signals();
            for signal in [system::SIGTERM, system::SIGCONT] {
                // SAFETY: `raise` needs a valid signal: `signal` is one. This thread has blocked it.
                unsafe { libc::raise(signal) };
            }
            return signals.suspend();
        }
        let test = "commands::top::terminal::tests::a_process_that_gets_sigterm_as_it_stops_ends";
        // The test is a job of its own. The shell also learns when the job stops.
        let line = r#"set -m; "$0" --exact "$1" & wait $!; code=$?; kill -KILL %1 2>/dev/null; exit $code"#;
        let mut shell = std::process::Command::new("bash");
        shell.args(["-c", line]).arg(std::env::current_exe().expect("this is a program")).arg(test);
        let status = shell.env(CHILD, "1").status().expect("there is a bash");
        assert_eq!(status.code(), Some(128 + system::SIGTERM));
    }

    #[test]
    fn a_panic_is_read_on_the_usual_screen_of_a_terminal_that_is_as_before() {
        if std::env::var_os(CHILD).is_some() {
            let mut screen = FullScreen::open(signals()).expect("this is a terminal");
            screen.take_over().expect("it is this process's");
            panic!("as it was asked to");
        }
        let test = "commands::top::terminal::tests::a_panic_is_read_on_the_usual_screen_of_a_terminal_that_is_as_before";
        let pair = native_pty_system().openpty(PtySize::default()).expect("there are terminals");
        let before = pair.master.get_termios().expect("it is a terminal");
        let mut command = CommandBuilder::new(std::env::current_exe().expect("this is a program"));
        command.args(["--exact", test, "--nocapture"]);
        command.env(CHILD, "1");
        let mut child = pair.slave.spawn_command(command).expect("it can be started");
        let mut reader = pair.master.try_clone_reader().expect("it can be read");
        let reading = std::thread::spawn(move || {
            let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                all.extend_from_slice(&bytes[..count]);
            }
            String::from_utf8_lossy(&all).into_owned()
        });
        assert!(!child.wait().expect("it is our child").success());
        assert_eq!(pair.master.get_termios().expect("it is a terminal"), before);
        drop(pair);
        let said = reading.join().expect("it does not panic");
        let place =
            |words: &str| said.find(words).unwrap_or_else(|| panic!("{words:?} is missing in {said:?}"));
        assert!(
            place("[?1049h") < place("[?1049l") && place("[?1049l") < place("as it was asked to"),
            "{said:?}"
        );
    }
}
