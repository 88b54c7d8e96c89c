//! Puts a question to a child process that may never answer.

use super::lines::{ANSWER_PREFIX, STEP_PREFIX};
use crate::arguments::Probe;
use crate::output::progress::{ProgressLine, SHORT};
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for a child that the doctor killed: one that hangs in the kernel may never end. It also bounds the wait
/// for the output of a child that has ended.
const FAREWELL: Duration = Duration::from_secs(1);
/// Most bytes that the doctor keeps of a child's output on one pipe.
const MOST_OUTPUT_BYTES: usize = 1 << 20;
/// Time between two looks whether a child has ended.
const CHILD_LOOK_PERIOD: Duration = Duration::from_millis(2);

/// Outcome of a question.
#[derive(Debug)]
pub(super) enum ProbeOutcome<T> {
    /// An answer, and the child's text on standard error.
    Answer(T, String),
    /// No answer within the time. Holds the step that the child did not finish.
    Hangs(String),
    /// The child ended without an answer.
    Failed {
        /// The end of the child, or the reason why it did not start.
        how: String,
        /// The step that the child had begun.
        step: String,
        /// The child's text on standard error.
        said: String,
    },
}

/// Asks a question in a child: this program with `preload` as its `LD_PRELOAD`, or with none.
pub(super) fn ask<T: DeserializeOwned>(
    probe: Probe,
    preload: Option<OsString>,
    patience: Duration,
) -> ProbeOutcome<T> {
    ask_under(probe, preload, &[], patience)
}

/// Asks a question in a child with `preload` as its `LD_PRELOAD`, and with `settings` for gpuslice. An empty value
/// unsets a setting.
pub(super) fn ask_under<T: DeserializeOwned>(
    probe: Probe,
    preload: Option<OsString>,
    settings: &[(String, OsString)],
    patience: Duration,
) -> ProbeOutcome<T> {
    let failed = |how: String| ProbeOutcome::Failed { how, step: "starting".to_owned(), said: String::new() };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return failed(error.to_string()),
    };
    let mut command = Command::new(program);
    command.args(["doctor-probe", probe.name()]).env_remove("LD_PRELOAD");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(preload) = preload {
        command.env("LD_PRELOAD", preload);
    }
    command.envs(settings.iter().map(|(name, value)| (name, value)));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return failed(error.to_string()),
    };
    let (out, err) = (listen(child.stdout.take()), listen(child.stderr.take()));
    let what = match probe {
        Probe::Cuda => "asking the driver",
        Probe::Nvml => "asking NVML",
        Probe::Runtime => "starting the CUDA runtime",
        Probe::Preloaded => "starting a program with the preloaded libraries",
    };
    let mut line = ProgressLine::default();
    let tell =
        |left: Duration| line.show(format!("{what}: up to {} s more", left.as_secs().saturating_add(1)));
    let Some(status) = end_within(&mut child, patience, tell) else {
        let _gone = child.kill();
        let _never = end_within(&mut child, FAREWELL, |_| {});
        return ProbeOutcome::Hangs(last_step(&heard(&out)));
    };
    let (out, err) = (heard(&out), heard(&err));
    let answer = out.lines().find_map(|line| line.strip_prefix(ANSWER_PREFIX));
    match answer.and_then(|answer| serde_json::from_str(answer).ok()) {
        Some(answer) => ProbeOutcome::Answer(answer, err),
        None => ProbeOutcome::Failed { how: status.to_string(), step: last_step(&out), said: err },
    }
}

fn last_step(out: &str) -> String {
    let step = out.lines().filter_map(|line| line.strip_prefix(STEP_PREFIX)).next_back();
    step.unwrap_or("starting").to_owned()
}

/// Waits for a child's end. If that takes more than `SHORT`, `tell` gets the time that the child still has.
fn end_within(child: &mut Child, patience: Duration, mut tell: impl FnMut(Duration)) -> Option<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        let waited = begun.elapsed();
        if waited >= patience {
            return None;
        }
        if waited > SHORT {
            tell(patience.saturating_sub(waited));
        }
        thread::sleep(CHILD_LOOK_PERIOD);
    }
}

/// Starts a thread that reads a pipe piece by piece, so that the output of a child that hangs is known too. Beyond
/// [`MOST_OUTPUT_BYTES`] bytes it reads on, so that the child does not wait for its pipe, and drops them.
fn listen(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (tell, told) = channel();
    thread::spawn(move || {
        let Some(mut pipe) = pipe else { return };
        let (mut room, mut left) = ([0; 4096], MOST_OUTPUT_BYTES);
        while let Ok(length @ 1..) = pipe.read(&mut room) {
            let piece = room.get(..length.min(left)).unwrap_or_default().to_vec();
            left = left.saturating_sub(piece.len());
            if !piece.is_empty() && tell.send(piece).is_err() {
                return;
            }
        }
    });
    told
}

/// Collects the output up to the pipe's end. Another process may hold the other end and go on writing: it is not waited
/// for after [`FAREWELL`].
fn heard(told: &Receiver<Vec<u8>>) -> String {
    let (mut all, begun) = (Vec::new(), Instant::now());
    while let Ok(piece) = told.recv_timeout(FAREWELL.saturating_sub(begun.elapsed())) {
        all.extend(piece);
    }
    String::from_utf8_lossy(&all).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipe that gives `piece` bytes after each `pause`, `times` times.
    struct Talker {
        times: u32,
        piece: usize,
        pause: Duration,
    }

    impl Read for Talker {
        fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
            let Some(left) = self.times.checked_sub(1) else { return Ok(0) };
            self.times = left;
            thread::sleep(self.pause);
            let said = room.get_mut(..self.piece).unwrap_or_default();
            said.fill(b'x');
            Ok(said.len())
        }
    }

    #[test]
    fn a_child_that_goes_on_writing_is_not_read_for_ever() {
        let begun = Instant::now();
        let talker = Talker { times: 600, piece: 1, pause: FAREWELL / 10 };
        assert!(heard(&listen(Some(talker))).starts_with('x'));
        assert!(begun.elapsed() < FAREWELL * 30);
    }

    #[test]
    fn of_much_only_so_much_is_kept() {
        let talker = Talker { times: 1000, piece: 4000, pause: Duration::ZERO };
        assert_eq!(heard(&listen(Some(talker))).len(), MOST_OUTPUT_BYTES);
    }
}
