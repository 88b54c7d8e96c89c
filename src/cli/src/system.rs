//! System calls that the standard library does not offer.
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

/// True if this process was started with `SIGPIPE` ignored. The standard library ignores that signal before `main`.
static PIPE: OnceLock<bool> = OnceLock::new();

/// An entry of `.init_array`. It reads the disposition of `SIGPIPE` before the standard library changes it.
#[used]
// SAFETY: `.init_array` must contain functions without a result, which the loader calls before `main`.
// `LOOK` points to such a function.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        let _first = PIPE.set(is_ignored(libc::SIGPIPE));
    }
    look
};

/// Tells whether this process ignores `signal`.
fn is_ignored(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: `sigaction` accepts null as the new action, and needs an output that is valid for writes: `action` is on this
    // stack.
    unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: `assume_init` needs an initialised value: it was zeroed, which is a valid `sigaction`, even if the call fails.
    unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Returns the effective user of this process.
pub(crate) fn user() -> u32 {
    // SAFETY: the call takes no argument, and cannot fail.
    unsafe { libc::geteuid() }
}

/// Returns every signal that another process can send and that this process can block.
///
/// The signals that the processor raises are missing. If one of them were blocked, the kernel would end this process, instead of
/// calling the handler for shortened regions.
pub(crate) fn signals() -> impl Iterator<Item = c_int> {
    use libc::{SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV};
    let usual = (1..32).filter(|number| {
        !matches!(*number, SIGKILL | SIGSTOP | SIGCHLD | SIGBUS | SIGSEGV | SIGILL | SIGFPE)
    });
    usual.chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
}

/// Tells whether terminals send `signal` to jobs. If the kernel sends another signal, it comes from a timer that was set
/// before this program was executed.
pub(crate) fn is_of_terminals(signal: c_int) -> bool {
    matches!(signal, SIGHUP | SIGINT | SIGQUIT | SIGTSTP | libc::SIGTTIN | libc::SIGTTOU | SIGWINCH | SIGCONT)
}

/// A signal that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// Number of the signal.
    pub(crate) number: c_int,
    /// True if the kernel sent the signal.
    pub(crate) by_kernel: bool,
    /// The process that sent the signal, if it has a number in this namespace.
    pub(crate) sender: Option<u32>,
}

/// Signals that are blocked until the command asks for them, in this thread and in the threads that it starts.
#[derive(Debug)]
pub(crate) struct Signals {
    kept: sigset_t,
    before: sigset_t,
    /// True if this process was started with `SIGCHLD` ignored.
    forgets_children: bool,
}

impl Signals {
    /// Blocks the signals in `numbers`.
    pub(crate) fn keep(numbers: impl IntoIterator<Item = c_int>) -> Self {
        let (kept, mut before) = (set_of(numbers), set_of([]));
        // SAFETY: `pthread_sigmask` needs an initialised set, and an output that is valid for writes: `set_of` has made both.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const kept, &raw mut before) };
        // The command must wait for its children, even if its parent process has left SIGCHLD ignored.
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

    /// Waits for a signal, at most for `time`.
    pub(crate) fn within(&self, time: Duration) -> Option<Arrived> {
        self.wait(Some(libc::timespec {
            tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(time.subsec_nanos().cast_signed()),
        }))
    }

    fn wait(&self, time: Option<libc::timespec>) -> Option<Arrived> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: `sigtimedwait` needs an initialised set, an output that is valid for writes, and null or a time. `set_of` has
        // made `kept`, and `info` and `time` are on this stack.
        let number = unsafe { libc::sigtimedwait(&raw const self.kept, info.as_mut_ptr(), time) };
        // SAFETY: `assume_init` needs an initialised value: it was zeroed, which is a valid `siginfo_t`, even if the call fails.
        let info = unsafe { info.assume_init() };
        let by_kernel = info.si_code > 0;
        // SAFETY: `si_pid` needs a signal with this field. Signals that processes send have it, and
        // the kernel did not send this one.
        let sender = if by_kernel { 0 } else { unsafe { info.si_pid() } };
        let sender = u32::try_from(sender).ok().filter(|sender| *sender > 0);
        (number > 0).then_some(Arrived { number, by_kernel, sender })
    }

    /// Stops this process and its job, as Ctrl-Z does, until another process continues it. In a session without a shell, the
    /// process does not stop, because no process could continue it.
    ///
    /// Until the process continues, blocked signals have their usual effect. A process that ends a stopped job also continues it.
    /// If both signals come just before the stop, the kernel discards SIGCONT at the stop. The job would then stay stopped, and
    /// would never get the signal that ends it. So this function unblocks the signals.
    pub(crate) fn suspend(&self) {
        // The first process of a container cannot be stopped. If the signals were unblocked, it would lose
        // those with their usual effect.
        if std::process::id() == 1 {
            return;
        }
        let mut before = set_of([]);
        // SAFETY: `pthread_sigmask` needs an initialised set, and an output that is valid for writes: `set_of` has made both.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const self.kept, &raw mut before) };
        // SAFETY: the call takes no pointer. 0 is the own process group, and this process stops before the
        // call returns.
        unsafe { libc::kill(0, SIGTSTP) };
        // SAFETY: `pthread_sigmask` needs an initialised set, and accepts no output: the call above has written `before`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    }

    /// Returns a descriptor that is readable while a blocked signal is pending. [`within`](Self::within)
    /// takes the pending signal away.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        // SAFETY: `signalfd` needs an initialised set: `set_of` has made `kept`. For -1 the call makes a new descriptor.
        let number =
            unsafe { libc::signalfd(-1, &raw const self.kept, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `from_raw_fd` needs a descriptor without another owner: the call above has just made it.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    }

    /// Starts a program with the signal mask and the dispositions that this process had at its start.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let (before, forgets_children) = (self.before, self.forgets_children);
        let ignores_pipes = PIPE.get() == Some(&true);
        let restore = move || {
            for (signal, was_ignored) in [(SIGCHLD, forgets_children), (libc::SIGPIPE, ignores_pipes)] {
                if was_ignored {
                    // SAFETY: the call takes no pointer, and may be made between fork and exec.
                    unsafe { libc::signal(signal, libc::SIG_IGN) };
                }
            }
            // SAFETY: `pthread_sigmask` needs an initialised set, and accepts no output: `before` is the mask from the command's
            // start. The call is async-signal-safe.
            let status =
                unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
            if status == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(status)) }
        };
        // SAFETY: `pre_exec` needs a closure that makes only async-signal-safe calls: `restore` makes no other calls.
        unsafe { command.pre_exec(restore) };
        command.spawn()
    }
}

fn set_of(numbers: impl IntoIterator<Item = c_int>) -> sigset_t {
    let mut set = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: `sigemptyset` needs an output that is valid for writes: `set` is on this stack.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: `assume_init` needs an initialised set: the call above has initialised it.
    let mut set = unsafe { set.assume_init() };
    for number in numbers {
        // SAFETY: `sigaddset` needs an initialised set: `assume_init` has returned `set`. It refuses a number that is no signal.
        unsafe { libc::sigaddset(&raw mut set, number) };
    }
    set
}

/// Sends a signal to a child. The caller has not waited for the child yet, so the number still belongs to it.
pub(crate) fn send(child: &Child, signal: c_int) {
    if let Ok(number) = libc::pid_t::try_from(child.id()) {
        // SAFETY: the call takes no pointer. It fails if the process does not exist.
        unsafe { libc::kill(number, signal) };
    }
}

/// Lets this process wait for its children, even if its parent process has left `SIGCHLD` ignored.
pub(crate) fn remember_children() {
    // SAFETY: `signal` needs a valid handler: the default disposition is valid.
    unsafe { libc::signal(SIGCHLD, libc::SIG_DFL) };
}

/// Waits until a descriptor is readable or at its end, at most for `time`. Returns true for each such descriptor.
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
    // The time is rounded up. If the wait ended too early, the caller would wait again and again.
    let millis = c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX);
    // SAFETY: `poll` needs as many entries, valid for reads and writes, as its second argument says: `asked` is an array of `N`.
    let count = unsafe { libc::poll(asked.as_mut_ptr(), N as libc::nfds_t, millis) };
    match io::Error::last_os_error() {
        error if count < 0 && error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(asked.map(|entry| count > 0 && entry.revents != 0)),
    }
}

/// Tells whether this process's group may use the terminal on standard input. Also returns true if standard input is no
/// terminal, or if the terminal is gone.
pub(crate) fn is_in_foreground() -> bool {
    // SAFETY: the call takes a number alone, and reads no memory of this process.
    let holder = unsafe { libc::tcgetpgrp(libc::STDIN_FILENO) };
    // SAFETY: the call takes no argument, and reads no memory of this process.
    let own = unsafe { libc::getpgrp() };
    holder < 0 || holder == own
}

/// A change of a child's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildEvent {
    /// The child was stopped.
    Stopped,
    /// The child continues.
    Continued,
    /// The child has ended, and another process may get its number.
    Ended(ExitStatus),
}

/// Returns a change of a child's state since the last call. The child may be another command's, because process 1 of a container
/// inherits the orphans of all other processes.
pub(crate) fn changed() -> Option<(u32, ChildEvent)> {
    let mut status = 0;
    let changes = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
    // SAFETY: `waitpid` needs an output that is valid for writes: `status` is on this stack.
    let child = unsafe { libc::waitpid(-1, &raw mut status, changes) };
    let child = u32::try_from(child).ok().filter(|child| *child > 0)?;
    let status = ExitStatus::from_raw(status);
    let change = match status {
        status if status.stopped_signal().is_some() => ChildEvent::Stopped,
        status if status.continued() => ChildEvent::Continued,
        status => ChildEvent::Ended(status),
    };
    Some((child, change))
}

/// Tells whether a child is in this process's group, so that it gets the signals of the terminal too. The caller
/// has not waited for the child yet.
pub(crate) fn is_of_our_group(child: &Child) -> bool {
    let group = |number| {
        // SAFETY: the call takes a number alone. It fails if there is no such process.
        unsafe { libc::getpgid(number) }
    };
    libc::pid_t::try_from(child.id()).is_ok_and(|child| group(child) == group(0))
}

/// Tells whether this process is the leader of its session. If a terminal hangs up, the kernel sends SIGHUP only to the leader.
pub(crate) fn leads_session() -> bool {
    // SAFETY: the call takes a number alone, and cannot fail for the own process.
    let session = unsafe { libc::getsid(0) };
    u32::try_from(session).is_ok_and(|session| session == std::process::id())
}

/// Stops this process as a terminal would, until another process continues it. In a group that no shell controls, the process
/// does not stop, because no process would continue it.
pub(crate) fn stop() {
    let (set, mut before) = (set_of([SIGTSTP]), set_of([]));
    // SAFETY: `signal` needs a valid handler: the default disposition, which stops the process, is valid.
    unsafe { libc::signal(SIGTSTP, libc::SIG_DFL) };
    // SAFETY: the call takes no pointer. The signal stays pending while it is blocked.
    unsafe { libc::raise(SIGTSTP) };
    // SAFETY: `pthread_sigmask` needs an initialised set, and an output that is valid for writes: `set_of` has made both, on
    // this stack. This process stops inside the call.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, &raw mut before) };
    // SAFETY: `pthread_sigmask` needs an initialised set, and accepts no output: the call above has written `before`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
}

/// Ends this process by `signal`, without a core dump of its own. If that is not possible, as for process 1 of a container,
/// returns the exit code that shells give for the signal.
pub(crate) fn die_by(signal: c_int) -> u8 {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `setrlimit` needs a limit that can be read: `none` is on this stack.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    // SAFETY: `signal` needs a valid handler: the default disposition is valid. The call fails for signals that have no other.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    let set = set_of([signal]);
    // SAFETY: `pthread_sigmask` needs an initialised set, and accepts no output: `set_of` has made `set`.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut()) };
    // SAFETY: the call takes no pointer.
    unsafe { libc::raise(signal) };
    u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX)
}
