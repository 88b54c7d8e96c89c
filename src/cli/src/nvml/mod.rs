//! What does NVML itself say of devices and of what processes hold?
//!
//! A driver that has fallen over does not answer, and whoever asks it may never end. So a child asks, which is given
//! little time; what the regions say is told in any case.

mod worker;

pub(crate) use worker::{find, work};

use crate::failure;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long one answer may take; NVML starts within a tenth of it where no persistence mode keeps the driver awake.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a command asks again and again for figures that do not stand still.
const LONG: Duration = Duration::from_secs(1);
/// What the child says first.
const READY: &str = "ready\n";

/// A question to the child.
#[derive(Debug, Serialize, Deserialize)]
enum Question {
    /// Which device has this UUID, a whole one or an instance?
    Device(String),
    /// What do the compute processes of the device of this name hold?
    Processes(String),
}

/// What it answers, where NVML tells.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// The device's name.
    Device(String),
    /// The processes.
    Processes(Vec<Use>),
}

/// A device.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    /// Its name, `GPU-…` or `MIG-…`.
    pub(crate) name: String,
}

/// A process, as NVML names it to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Use {
    /// Its number.
    pub(crate) pid: u32,
    /// Bytes that it holds; none where NVML does not tell.
    pub(crate) bytes: Option<u64>,
}

/// NVML, ready to be asked.
#[derive(Debug)]
pub(crate) struct Nvml {
    /// None once it has not answered.
    worker: RefCell<Option<Worker>>,
    since: Instant,
}

/// The child.
#[derive(Debug)]
struct Worker {
    child: Child,
    questions: ChildStdin,
    answers: Receiver<String>,
}

impl Nvml {
    /// None where there is no NVML, or it cannot be used.
    pub(crate) fn open() -> Option<Self> {
        let worker = RefCell::new(Some(Worker::start()?));
        let nvml = Self { worker, since: Instant::now() };
        (nvml.heard()? == READY.trim_end()).then_some(nvml)
    }

    /// The device with this UUID, a whole one or an instance.
    pub(crate) fn device(&self, uuid: &str) -> Option<Device> {
        match self.ask(&Question::Device(uuid.to_owned()))? {
            Answer::Device(name) => Some(Device { name }),
            Answer::Processes(_) => None,
        }
    }

    /// The compute processes of a device; none where NVML does not tell.
    pub(crate) fn processes(&self, device: &Device) -> Option<Vec<Use>> {
        match self.ask(&Question::Processes(device.name.clone()))? {
            Answer::Processes(uses) => Some(uses),
            Answer::Device(_) => None,
        }
    }

    /// Whether it has been asked for long enough: no question is put twice any more.
    pub(crate) fn is_late(&self) -> bool {
        self.since.elapsed() > LONG
    }

    fn ask(&self, question: &Question) -> Option<Answer> {
        let line = format!("{}\n", serde_json::to_string(question).ok()?);
        let asked = self.worker.borrow_mut().as_mut()?.questions.write_all(line.as_bytes());
        asked.ok()?;
        serde_json::from_str::<Option<Answer>>(&self.heard()?).ok()?
    }

    /// The next line that the child says. One that hangs is left to itself, and asked no more.
    fn heard(&self) -> Option<String> {
        let heard = self.worker.borrow().as_ref()?.answers.recv_timeout(PATIENCE);
        if heard == Err(RecvTimeoutError::Timeout) {
            failure::note("NVML does not answer: what it says of the slices is left out");
            drop(self.worker.take());
        }
        heard.ok()
    }
}

impl Worker {
    fn start() -> Option<Self> {
        let mut command = Command::new(std::env::current_exe().ok()?);
        command.arg("nvml-worker").env_remove("LD_PRELOAD");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let (questions, out) = (child.stdin.take()?, child.stdout.take()?);
        let (tell, answers) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            lines.map_while(|line| tell.send(line).ok()).for_each(drop);
        });
        Some(Self { child, questions, answers })
    }
}

impl Drop for Worker {
    /// It may hang in the kernel, which no signal ends: so it is not waited for.
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _not_yet = self.child.try_wait();
    }
}
