//! The programs of one tenant of the demo.

use super::context::DemoContext;
use super::wire::{Counts, READY};
use crate::output::failure::Failure;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// Number of red's programs.
pub(super) const RED_PROGRAMS: usize = 3;

/// Longest time that the last lines of an ended program may take to arrive.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// The work of a program on the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Takes all memory that it gets, keeps it, and computes.
    Greedy,
    /// Takes this many bytes at once, or fails. Then computes.
    Needs(u64),
    /// Computes.
    Computes,
}

/// Running programs. Dropping this value ends them.
pub(super) struct Programs {
    /// The tenant's name, by which the simulated GPU counts the programs' use.
    pub(super) tenant: &'static str,
    workers: Vec<WorkerProcess>,
    heard: Receiver<(usize, ProgramMessage)>,
    tell: Sender<(usize, ProgramMessage)>,
    /// All lines that the programs wrote to standard error, without repetitions.
    words: Vec<String>,
    /// Number of these lines that the screen has already shown.
    shown: usize,
}

/// One program. Dropping this value ends the program.
struct WorkerProcess {
    child: Child,
    /// True while the program waits for the other programs before it fills the memory.
    waits: bool,
    counts: Option<Counts>,
    /// Number of the program's reports so far. It reports once for each ended batch of kernels.
    reports: u64,
    ended: Option<ExitStatus>,
    killed: bool,
}

impl WorkerProcess {
    /// Lets a waiting program go on. If it has died, `look` finds that.
    fn go_on(&mut self) {
        self.waits = false;
        if let Some(input) = &mut self.child.stdin {
            let _dead = input.write_all(b"\n");
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _already_dead = self.child.kill();
            let _no_child = self.child.wait();
        }
    }
}

/// A message from a program.
enum ProgramMessage {
    Ready,
    Counts(Counts),
    Words(String),
}

impl Programs {
    /// Returns a tenant that has no programs yet.
    pub(super) fn of(tenant: &'static str) -> Self {
        let (tell, heard) = mpsc::channel();
        Self { tenant, workers: Vec::new(), heard, tell, words: Vec::new(), shown: 0 }
    }

    /// Starts one more program. `prepare` may change the command that the stage has made.
    pub(super) fn start(
        &mut self,
        work: Work,
        DemoContext { stage, signals }: DemoContext<'_>,
        prepare: impl FnOnce(&mut Command),
    ) -> Result<(), Failure> {
        let mut command = stage.command("demo-worker", self.tenant)?;
        match work {
            Work::Greedy => drop(command.arg("--greedy")),
            Work::Needs(bytes) => drop(command.args(["--need", &bytes.to_string()])),
            Work::Computes => {}
        }
        prepare(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = signals
            .spawn(&mut command)
            .map_err(|error| Failure::new(format!("a program of the demo does not start: {error}")))?;
        let number = self.workers.len();
        hear(child.stdout.take(), number, self.tell.clone(), |line| match line.as_str() {
            READY => Some(ProgramMessage::Ready),
            line => Counts::read(line).map(ProgramMessage::Counts),
        });
        hear(child.stderr.take(), number, self.tell.clone(), |line| Some(ProgramMessage::Words(line)));
        self.workers.push(WorkerProcess {
            child,
            waits: false,
            counts: None,
            reports: 0,
            ended: None,
            killed: false,
        });
        Ok(())
    }

    /// Receives messages of the programs, and records which programs have ended.
    pub(super) fn look(&mut self) -> Result<(), Failure> {
        while let Ok((worker, said)) = self.heard.try_recv() {
            match said {
                ProgramMessage::Ready => {
                    if let Some(worker) = self.workers.get_mut(worker) {
                        worker.waits = true;
                    }
                }
                ProgramMessage::Counts(counts) => {
                    if let Some(worker) = self.workers.get_mut(worker) {
                        worker.counts = Some(counts);
                        worker.reports = worker.reports.saturating_add(1);
                    }
                }
                ProgramMessage::Words(words) => self.hear_words(&words),
            }
        }
        if self.workers.iter().all(|worker| worker.waits) {
            self.workers.iter_mut().for_each(WorkerProcess::go_on);
        }
        for worker in &mut self.workers {
            worker.ended = match worker.ended {
                Some(status) => Some(status),
                None => worker.child.try_wait().map_err(|error| Failure::new(error.to_string()))?,
            };
        }
        Ok(())
    }

    fn hear_words(&mut self, line: &str) {
        let words = line.strip_prefix("gpuslice: ").unwrap_or(line);
        if !self.words.iter().any(|known| known == words) {
            self.words.push(words.to_owned());
        }
    }

    /// Returns the programs' new lines since the last call.
    pub(super) fn news(&mut self) -> Vec<String> {
        let news = self.words.get(self.shown..).unwrap_or_default().to_vec();
        self.shown = self.words.len();
        news
    }

    /// Returns the lines of all programs once a program has ended, and `None` before that.
    pub(super) fn last_words(&mut self) -> Result<Option<String>, Failure> {
        if self.workers.iter().all(|worker| worker.ended.is_none()) {
            return Ok(None);
        }
        thread::sleep(LAST_WORDS);
        self.look()?;
        Ok(Some(self.words.join("; ")))
    }

    /// Tells whether each program has reported.
    pub(super) fn have_reported(&self) -> bool {
        self.workers.iter().all(|worker| worker.counts.is_some())
    }

    /// Returns the number of ended batches of kernels of all programs.
    pub(super) fn batches(&self) -> u64 {
        self.workers.iter().map(|worker| worker.reports).sum()
    }

    /// Returns the sum of the programs' counts.
    pub(super) fn counts(&self) -> Counts {
        self.workers.iter().filter_map(|worker| worker.counts).fold(Counts::default(), |sum, counts| Counts {
            granted: sum.granted.saturating_add(counts.granted),
            refused: sum.refused.saturating_add(counts.refused),
        })
    }

    /// Returns the number of running programs.
    pub(super) fn running(&self) -> usize {
        self.workers.iter().filter(|worker| worker.ended.is_none()).count()
    }

    /// Returns the process numbers of the running programs.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.workers.iter().filter(|worker| worker.ended.is_none()).map(|worker| worker.child.id())
    }

    /// Kills one of the programs, whatever its state is.
    pub(super) fn kill(&mut self, pid: u32) -> Result<(), Failure> {
        let worker = self.workers.iter_mut().find(|worker| worker.child.id() == pid);
        let worker = worker.ok_or_else(|| Failure::new("no program to kill"))?;
        worker.killed = true;
        let killed = worker.child.kill();
        killed.map_err(|error| Failure::new(format!("process {pid} cannot be killed: {error}")))
    }

    /// Closes the inputs of the programs, so that they end.
    pub(super) fn finish(&mut self) {
        self.workers.iter_mut().for_each(|worker| drop(worker.child.stdin.take()));
    }

    /// Tells whether each program ended with success. The program that the demo killed does not count.
    pub(super) fn ended_well(&self) -> bool {
        self.workers.iter().all(|worker| worker.killed || worker.ended.is_some_and(|status| status.success()))
    }
}

/// Starts a thread that passes on the lines of a program's output until the output ends.
fn hear(
    from: Option<impl Read + Send + 'static>,
    number: usize,
    tell: Sender<(usize, ProgramMessage)>,
    meaning: impl Fn(String) -> Option<ProgramMessage> + Send + 'static,
) {
    let Some(from) = from else { return };
    thread::spawn(move || {
        for said in BufReader::new(from).lines().map_while(Result::ok).filter_map(meaning) {
            if tell.send((number, said)).is_err() {
                break;
            }
        }
    });
}
