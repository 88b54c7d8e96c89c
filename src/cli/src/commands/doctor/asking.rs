//! Asks a question in a child process, which may never answer.

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

/// Longest wait for the end of a child that the doctor has killed, because a child that hangs in the kernel may never end. Also
/// the longest wait for the rest of the output of an ended child.
const FAREWELL: Duration = Duration::from_secs(1);
/// Most bytes that the doctor keeps of a child's output on one pipe.
const MOST_OUTPUT_BYTES: usize = 1 << 20;
/// Time between two checks whether a child has ended.
const CHILD_LOOK_PERIOD: Duration = Duration::from_millis(2);

/// Outcome of a question.
#[derive(Debug)]
pub(super) enum ProbeOutcome<T> {
    /// An answer, and the text that the child wrote to standard error.
    Answer(T, String),
    /// No answer within the time. The text names the step that the child did not finish.
    Hangs(String),
    /// The child ended without an answer.
    Failed {
        /// The way in which the child ended, or the reason why it did not start.
        how: String,
        /// The last step that the child has announced.
        step: String,
        /// The child's text on standard error.
        said: String,
    },
}

/// Asks a question in a child. The child is this program with `preload` as its `LD_PRELOAD`, or without one.
pub(super) fn ask<T: DeserializeOwned>(
    probe: Probe,
    preload: Option<OsString>,
    patience: Duration,
) -> ProbeOutcome<T> {
    ask_under(probe, preload, &[], patience)
}

/// Asks a question in a child with `preload` as its `LD_PRELOAD`, and with `settings` for gpuslice.
/// An empty value unsets a setting.
///
/// The child announces each step before it begins, and writes its answer at the end. If it does not end in time, the doctor kills
/// it and reports the last announced step. Until then, threads read the output, so that the child never waits for a full pipe.
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

/// Waits for the end of a child. After `SHORT`, `tell` gets the remaining time at each look.
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

/// Starts a thread that reads a pipe piece by piece, so that the doctor also gets the output of a child that hangs. Beyond
/// [`MOST_OUTPUT_BYTES`] bytes, the thread reads on and drops the bytes, so that the child does not wait for a full pipe.
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

/// Collects the output until the pipe closes, but at most for [`FAREWELL`]. Another process may keep the
/// other end open and go on writing.
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
