//! What does NVML itself say of devices and of what processes hold?
//!
//! A driver that has fallen over does not answer, and whoever asks it may never end. So a child asks, which is given
//! little time; what the regions say is told in any case.

mod worker;

pub(crate) use worker::{find, work};

use crate::failure;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long one answer may take; NVML starts within a tenth of it where no persistence mode keeps the driver awake.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long all answers together may take for a command that is to be quick: three times the slowest start of NVML
/// that was measured (300 ms, without persistence mode).
const QUICK: Duration = Duration::from_secs(1);
/// How long a command asks again and again for figures that do not stand still.
const LONG: Duration = Duration::from_secs(1);
/// What the child says first.
const READY: &str = "ready\n";

/// A question to the child.
#[derive(Debug, Serialize, Deserialize)]
enum Question {
    /// Which device has this UUID, a whole one or an instance, and how is it?
    Device(String),
    /// What do the compute processes of the device of this name hold?
    Processes(String),
}

/// What it answers, where NVML tells.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// The device.
    Device(Device),
    /// The processes.
    Processes(Vec<Use>),
}

/// A device, as NVML describes it; a field that NVML does not tell is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Device {
    /// Its UUID, `GPU-…` or `MIG-…`.
    pub(crate) uuid: String,
    /// The GPU's number, as `nvidia-smi` shows it. Of an instance: that of its GPU.
    pub(crate) index: Option<u32>,
    /// The number of an instance within its GPU; none of a whole GPU.
    pub(crate) instance: Option<u32>,
    /// The product's name.
    pub(crate) product: Option<String>,
    /// Bytes that all processes use, without the driver's own reserve where NVML tells it apart.
    pub(crate) used: Option<u64>,
    /// Percent of the last sample period in which a kernel ran.
    pub(crate) utilization: Option<u32>,
    /// Degrees Celsius.
    pub(crate) temperature: Option<u32>,
}

/// A process, as NVML names it to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Use {
    /// Its number.
    pub(crate) pid: u32,
    /// Bytes that it holds; none where NVML does not tell.
    pub(crate) bytes: Option<u64>,
}

/// How long NVML is waited for, and whether its silence is told on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Five seconds for each answer.
    Full,
    /// One second for all answers.
    Quick,
    /// Five seconds for each answer; nothing is told, since the screen belongs to `top`.
    Quiet,
}

/// NVML, ready to be asked.
#[derive(Debug)]
pub(crate) struct Nvml {
    /// None once it has not answered.
    worker: RefCell<Option<Worker>>,
    /// The devices that were asked for, until `refresh`.
    devices: RefCell<BTreeMap<String, Option<Device>>>,
    patience: Patience,
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
    pub(crate) fn open(patience: Patience) -> Option<Self> {
        let worker = RefCell::new(Some(Worker::start()?));
        let nvml = Self { worker, devices: RefCell::default(), patience, since: Instant::now() };
        (nvml.heard()? == READY.trim_end()).then_some(nvml)
    }

    /// Forgets what it answered: figures that change are asked for again, for the time that a new command has.
    pub(crate) fn refresh(&mut self) {
        self.devices.borrow_mut().clear();
        self.since = Instant::now();
    }

    /// The device with this UUID, a whole one or an instance. It is asked for once.
    pub(crate) fn device(&self, uuid: &str) -> Option<Device> {
        if let Some(known) = self.devices.borrow().get(uuid) {
            return known.clone();
        }
        let device = match self.ask(&Question::Device(uuid.to_owned())) {
            Some(Answer::Device(device)) => Some(device),
            _ => None,
        };
        self.devices.borrow_mut().insert(uuid.to_owned(), device.clone());
        device
    }

    /// The compute processes of a device; none where NVML does not tell.
    pub(crate) fn processes(&self, device: &Device) -> Option<Vec<Use>> {
        match self.ask(&Question::Processes(device.uuid.clone()))? {
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
        let patience = match self.patience {
            Patience::Quick => QUICK.saturating_sub(self.since.elapsed()),
            Patience::Full | Patience::Quiet => PATIENCE,
        };
        let heard = self.worker.borrow().as_ref()?.answers.recv_timeout(patience);
        if heard == Err(RecvTimeoutError::Timeout) {
            if self.patience != Patience::Quiet {
                failure::note("NVML does not answer: what it says of GPUs and slices is left out");
            }
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
