//! Talks to a host that runs: orders on its standard input, answers on its standard output.

use super::bench::Host;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// Time after which a host that does not answer counts as hanging. Nearly a million single steps take most of a minute on a
/// machine that has other things to do.
const TIMEOUT: Duration = Duration::from_secs(180);

/// A host that runs. Dropping this kills the host.
#[derive(Debug)]
pub(crate) struct Living {
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Living {
    /// Returns the process number of the host.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next line that the host prints. Returns `None` once the host has closed its output.
    #[track_caller]
    pub(crate) fn hear(&self) -> Option<String> {
        match self.lines.recv_timeout(TIMEOUT) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("a host hangs"),
        }
    }

    /// Returns a line that the host has printed already.
    pub(crate) fn heard(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Gives the host an order.
    pub(crate) fn order(&mut self, order: &str) {
        let pipe = self.orders.as_mut().expect("its input is open");
        writeln!(pipe, "{order}").expect("the host reads its orders");
    }

    /// Gives the host an order and returns its answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.order(order);
        self.answer(order)
    }

    /// Returns the answer to an order that was given.
    #[track_caller]
    fn answer(&mut self, order: &str) -> String {
        match self.hear() {
            Some(answer) => answer,
            None => panic!("{order}: the host has ended: {}", self.stderr()),
        }
    }

    /// Gives the host an order and returns its answer, which consists of numbers.
    #[track_caller]
    pub(crate) fn numbers(&mut self, order: &str) -> Vec<u64> {
        self.order(order);
        self.numbers_of_answer(order)
    }

    /// Returns the answer to an order that was given. It consists of numbers.
    #[track_caller]
    pub(crate) fn numbers_of_answer(&mut self, order: &str) -> Vec<u64> {
        let answer = self.answer(order);
        let number = |word: &str| word.parse().unwrap_or_else(|_| panic!("{order}: {answer}"));
        answer.split_whitespace().map(number).collect()
    }

    /// Sends the host a signal.
    pub(crate) fn signal(&self, signal: libc::c_int) {
        send(self.pid(), signal);
    }

    /// Suspends the host. When this returns, the host stands still.
    pub(crate) fn suspend(&self) {
        self.signal(libc::SIGSTOP);
        let state = format!("/proc/{}/stat", self.pid());
        // The state letter stands behind the name in brackets. A stopped process has the letter T.
        let stopped = || std::fs::read_to_string(&state).is_ok_and(|text| text.contains(") T "));
        let until = Instant::now() + TIMEOUT;
        while !stopped() {
            assert!(Instant::now() < until, "it does not stand still");
            std::thread::yield_now();
        }
    }

    /// Waits for the end of the host and leaves its pipes open.
    pub(crate) fn wait_for_its_end(&mut self) -> ExitStatus {
        // `Child::wait` would close the host's input.
        let until = Instant::now() + TIMEOUT;
        loop {
            assert!(Instant::now() < until, "it does not end");
            if let Some(status) = self.has_ended() {
                return status;
            }
            std::thread::yield_now();
        }
    }

    /// Returns the exit status of the host if it has ended. Its pipes stay open.
    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Kills the host and waits for its end.
    pub(crate) fn kill(&mut self) -> ExitStatus {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for")
    }

    /// Closes the host's input and waits for its end. Returns its exit status and its standard error.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        drop(self.orders.take());
        while self.hear().is_some() {}
        let status = self.child.wait().expect("a child can be waited for");
        (status, self.stderr())
    }

    /// Returns the host's standard error, up to its end.
    fn stderr(&mut self) -> String {
        let mut text = String::new();
        let Some(mut pipe) = self.child.stderr.take() else { return text };
        pipe.read_to_string(&mut text).expect("standard error can be read");
        text
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        // If the host has ended before, both calls fail and nothing is left to do.
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Sends a signal to one process.
pub(crate) fn send(pid: u32, signal: libc::c_int) {
    let pid = libc::pid_t::try_from(pid).expect("a process number");
    assert!(pid > 1, "{pid} is more than one process");
    // SAFETY: the call takes two numbers and touches no memory; `pid` names one process.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "{pid} gets no signal {signal}");
}

impl Host<'_> {
    /// Starts the host and lets it run.
    pub(crate) fn start(self) -> Living {
        let mut command = self.command();
        command.stdin(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let (say, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if say.send(line).is_err() {
                    break;
                }
            }
        });
        let orders = child.stdin.take();
        Living { child, orders, lines }
    }
}
