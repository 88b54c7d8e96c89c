//! Which system calls have no words in the standard library?
#![allow(unsafe_code, reason = "the one place of the command line that calls the C library")]

use libc::{c_int, sigset_t};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

pub(crate) use libc::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGPWR, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP,
    SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH,
};

/// Whether this process was started with `SIGPIPE` ignored: the standard library ignores it before `main`.
static PIPE: OnceLock<bool> = OnceLock::new();

/// Looks before the standard library changes it.
#[used]
// SAFETY: the loader calls what lies in this section, as functions without a result, before `main`.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        let _first = PIPE.set(is_ignored(libc::SIGPIPE));
    }
    look
};

/// Returns true if a signal is ignored.
fn is_ignored(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is set, and there is room for what is.
    unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all zeroes is a valid value too.
    unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// The user that this process acts as.
pub(crate) fn user() -> u32 {
    // SAFETY: asks for a number; cannot fail.
    unsafe { libc::geteuid() }
}

/// Every signal that a program can be sent and that can be kept back. Not what the processor raises: kept back, it ends
/// this process without asking the handler of regions that were shortened.
pub(crate) fn signals() -> impl Iterator<Item = c_int> {
    use libc::{SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV};
    let usual = (1..32).filter(|number| {
        !matches!(*number, SIGKILL | SIGSTOP | SIGCHLD | SIGBUS | SIGSEGV | SIGILL | SIGFPE)
    });
    usual.chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
}

/// Returns true if it is a signal that terminals have sent to jobs. What the kernel sends else is a timer that whoever
/// executed this program has set.
pub(crate) fn is_of_terminals(signal: c_int) -> bool {
    matches!(signal, SIGHUP | SIGINT | SIGQUIT | SIGTSTP | libc::SIGTTIN | libc::SIGTTOU | SIGWINCH | SIGCONT)
}

/// A signal that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// Which one.
    pub(crate) number: c_int,
    /// True if the kernel sent it.
    pub(crate) by_kernel: bool,
    /// Who sent it, where that was a process that has a number here.
    pub(crate) sender: Option<u32>,
}

/// Signals that are kept back until they are asked for, in this thread and those that it starts.
#[derive(Debug)]
pub(crate) struct Signals {
    kept: sigset_t,
    before: sigset_t,
    /// True if the end of children was ignored.
    forgets_children: bool,
}

impl Signals {
    /// Keeps signals back from now on.
    pub(crate) fn keep(numbers: impl IntoIterator<Item = c_int>) -> Self {
        let (kept, mut before) = (set_of(numbers), set_of([]));
        // SAFETY: two valid sets; the call cannot fail with them.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const kept, &raw mut before) };
        // Children are waited for, even if whoever started us had them forgotten at once.
        let forgets_children = is_ignored(SIGCHLD);
        remember_children();
        Self { kept, before, forgets_children }
    }

    /// Waits for a signal.
    pub(crate) fn next(&self) -> Arrived {
        loop {
            if let Some(arrived) = self.wait(None) {
                return arrived;
            }
        }
    }

    /// Waits for a signal, but not longer than this.
    pub(crate) fn within(&self, time: Duration) -> Option<Arrived> {
        self.wait(Some(libc::timespec {
            tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(time.subsec_nanos().cast_signed()),
        }))
    }

    fn wait(&self, time: Option<libc::timespec>) -> Option<Arrived> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: a valid set, room for the answer, and a valid time or none.
        let number = unsafe { libc::sigtimedwait(&raw const self.kept, info.as_mut_ptr(), time) };
        // SAFETY: all zeroes is a valid value too.
        let info = unsafe { info.assume_init() };
        let by_kernel = info.si_code > 0;
        // SAFETY: what processes send has this field.
        let sender = if by_kernel { 0 } else { unsafe { info.si_pid() } };
        let sender = u32::try_from(sender).ok().filter(|sender| *sender > 0);
        (number > 0).then_some(Arrived { number, by_kernel, sender })
    }

    /// Stops this process and those that are one job with it, as Ctrl-Z does, until somebody lets it go on. Not where
    /// nobody could: in a session without a shell.
    ///
    /// What is kept back has its usual effect meanwhile. Who ends a job that is stopped lets it go on as well; where both
    /// come just before the stop, the latter is forgotten with it, and the job would stay, not having heard of its end.
    pub(crate) fn suspend(&self) {
        // The first process of a container cannot be stopped, and would lose what has its usual effect.
        if std::process::id() == 1 {
            return;
        }
        let mut before = set_of([]);
        // SAFETY: two valid sets.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const self.kept, &raw mut before) };
        // SAFETY: the own process group; this process stops before the call returns.
        unsafe { libc::kill(0, SIGTSTP) };
        // SAFETY: a valid set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    }

    /// A descriptor that can be read from while a signal is kept back; what is asked for with [`within`](Self::within)
    /// is gone from it.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        // SAFETY: a valid set; a new descriptor.
        let number =
            unsafe { libc::signalfd(-1, &raw const self.kept, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above made it, and nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    }

    /// Starts a program that finds its signals as this process found them.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let (before, forgets_children) = (self.before, self.forgets_children);
        let ignores_pipes = PIPE.get() == Some(&true);
        let restore = move || {
            for (signal, was_ignored) in [(SIGCHLD, forgets_children), (libc::SIGPIPE, ignores_pipes)] {
                if was_ignored {
                    // SAFETY: a plain call that may be made between fork and exec.
                    unsafe { libc::signal(signal, libc::SIG_IGN) };
                }
            }
            // SAFETY: a valid set; may be called between fork and exec.
            let status =
                unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
            if status == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(status)) }
        };
        // SAFETY: the closure calls what may be called between fork and exec, and nothing else.
        unsafe { command.pre_exec(restore) };
        command.spawn()
    }
}

fn set_of(numbers: impl IntoIterator<Item = c_int>) -> sigset_t {
    let mut set = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: room for a set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the call above made it a set.
    let mut set = unsafe { set.assume_init() };
    for number in numbers {
        // SAFETY: a valid set; a number that is no signal is refused.
        unsafe { libc::sigaddset(&raw mut set, number) };
    }
    set
}

/// Sends a signal to a child that was not waited for yet, so that its number is still its own.
pub(crate) fn send(child: &Child, signal: c_int) {
    if let Ok(number) = libc::pid_t::try_from(child.id()) {
        // SAFETY: a plain call; the worst is that the process is not there.
        unsafe { libc::kill(number, signal) };
    }
}

/// Lets children be waited for, even if whoever started us had them forgotten at once.
pub(crate) fn remember_children() {
    // SAFETY: the default disposition of a signal that is ignored by default.
    unsafe { libc::signal(SIGCHLD, libc::SIG_DFL) };
}

/// Waits until one of these can be read, or is at its end, but not longer than this; which ones.
pub(crate) fn readable<const N: usize>(
    descriptors: [BorrowedFd<'_>; N],
    time: Duration,
) -> io::Result<[bool; N]> {
    let ask = |descriptor: BorrowedFd<'_>| libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut asked = descriptors.map(ask);
    // Rounded up: a wait that ends too early would be followed by others.
    let millis = c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX);
    // SAFETY: as many entries as are named.
    let count = unsafe { libc::poll(asked.as_mut_ptr(), N as libc::nfds_t, millis) };
    match io::Error::last_os_error() {
        error if count < 0 && error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(asked.map(|entry| count > 0 && entry.revents != 0)),
    }
}

/// Returns true if this process's group may use the terminal that is its standard input; also where that is none, or
/// gone.
pub(crate) fn is_in_foreground() -> bool {
    // SAFETY: the calls read no memory of ours.
    let holder = unsafe { libc::tcgetpgrp(libc::STDIN_FILENO) };
    // SAFETY: as above.
    let own = unsafe { libc::getpgrp() };
    holder < 0 || holder == own
}

/// What has become of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It was stopped.
    Stopped,
    /// It goes on.
    Continued,
    /// It has ended, and its number is not its own any more.
    Ended(ExitStatus),
}

/// What has become of some child since this was asked last. Also of those that were none: process 1 of a container gets
/// the orphans of all others.
pub(crate) fn changed() -> Option<(u32, Change)> {
    let mut status = 0;
    let changes = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
    // SAFETY: the status may be written.
    let child = unsafe { libc::waitpid(-1, &raw mut status, changes) };
    let child = u32::try_from(child).ok().filter(|child| *child > 0)?;
    let status = ExitStatus::from_raw(status);
    let change = match status {
        status if status.stopped_signal().is_some() => Change::Stopped,
        status if status.continued() => Change::Continued,
        status => Change::Ended(status),
    };
    Some((child, change))
}

/// Returns true if a child that was not waited for yet is of this process's group: what a terminal sends, it is sent as
/// well.
pub(crate) fn is_of_our_group(child: &Child) -> bool {
    let group = |number| {
        // SAFETY: asks for a number; fails where there is no such process.
        unsafe { libc::getpgid(number) }
    };
    libc::pid_t::try_from(child.id()).is_ok_and(|child| group(child) == group(0))
}

/// Returns true if this process is its session's first: when a terminal hangs up, the kernel tells nobody else.
pub(crate) fn leads_session() -> bool {
    // SAFETY: asks for a number; cannot fail for the own process.
    let session = unsafe { libc::getsid(0) };
    u32::try_from(session).is_ok_and(|session| session == std::process::id())
}

/// Stops this process as a terminal stops it, until somebody lets it go on. Not where nobody would: in a group that no
/// shell controls.
pub(crate) fn stop() {
    let (set, mut before) = (set_of([SIGTSTP]), set_of([]));
    // SAFETY: the default disposition, which is to stop.
    unsafe { libc::signal(SIGTSTP, libc::SIG_DFL) };
    // SAFETY: a plain call: the signal waits while it is blocked.
    unsafe { libc::raise(SIGTSTP) };
    // SAFETY: two valid sets. This process is stopped in here.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, &raw mut before) };
    // SAFETY: what the call above wrote.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
}

/// Ends this process as the signal would have, without a memory dump of its own. Where that is not possible
/// (process 1 of a container), the exit code that shells give for it.
pub(crate) fn die_by(signal: c_int) -> u8 {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid limit.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    // SAFETY: the default disposition; refused for signals that have no other.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    let set = set_of([signal]);
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut()) };
    // SAFETY: a plain call.
    unsafe { libc::raise(signal) };
    u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX)
}
