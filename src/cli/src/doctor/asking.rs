//! How is a question put to a child that may never answer?

use super::probe::{ANSWER, STEP};
use crate::arguments::Probe;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a child that was killed is waited for: one that hangs in the kernel may never end.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often it is looked whether a child has ended.
const PAUSE: Duration = Duration::from_millis(2);

/// What came of a question.
#[derive(Debug)]
pub(super) enum Asked<T> {
    /// An answer, and what was said on standard error meanwhile.
    Answer(T, String),
    /// None within the time; the step that was not finished.
    Hangs(String),
    /// The child ended without one: how, in which step, and what it said on standard error.
    Failed {
        /// How it ended, or why it could not be started.
        how: String,
        /// What it had begun.
        step: String,
        /// What it said.
        said: String,
    },
}

/// Asks a question in a child: this program, with another `LD_PRELOAD`, or none.
pub(super) fn ask<T: DeserializeOwned>(
    probe: Probe,
    preload: Option<OsString>,
    patience: Duration,
) -> Asked<T> {
    let failed = |how: String| Asked::Failed { how, step: "starting".to_owned(), said: String::new() };
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
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return failed(error.to_string()),
    };
    let (out, err) = (listen(child.stdout.take()), listen(child.stderr.take()));
    let Some(status) = end_within(&mut child, patience) else {
        let _gone = child.kill();
        let _never = end_within(&mut child, FAREWELL);
        return Asked::Hangs(last_step(&heard(&out)));
    };
    let (out, err) = (heard(&out), heard(&err));
    let answer = out.lines().find_map(|line| line.strip_prefix(ANSWER));
    match answer.and_then(|answer| serde_json::from_str(answer).ok()) {
        Some(answer) => Asked::Answer(answer, err),
        None => Asked::Failed { how: status.to_string(), step: last_step(&out), said: err },
    }
}

fn last_step(out: &str) -> String {
    let step = out.lines().filter_map(|line| line.strip_prefix(STEP)).next_back();
    step.unwrap_or("starting").to_owned()
}

fn end_within(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if begun.elapsed() >= patience {
            return None;
        }
        thread::sleep(PAUSE);
    }
}

/// Reads all that comes, piece by piece: of a child that hangs, what it said before.
fn listen(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (tell, told) = channel();
    thread::spawn(move || {
        let Some(mut pipe) = pipe else { return };
        let mut room = [0; 4096];
        while let Ok(length @ 1..) = pipe.read(&mut room) {
            let piece = room.get(..length).unwrap_or_default().to_vec();
            if tell.send(piece).is_err() {
                return;
            }
        }
    });
    told
}

/// What came, up to the pipe's end; whoever else holds the other end is not waited for.
fn heard(told: &Receiver<Vec<u8>>) -> String {
    let mut all = Vec::new();
    while let Ok(piece) = told.recv_timeout(FAREWELL) {
        all.extend(piece);
    }
    String::from_utf8_lossy(&all).into_owned()
}
