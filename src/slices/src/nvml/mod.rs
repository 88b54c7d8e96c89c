//! Asks NVML itself about devices and the memory of processes.
//!
//! A driver that has fallen over does not answer, and whoever asks it may never end. So a child asks, which is given
//! little time; what the regions say is told in any case.

mod words;
mod worker;

#[doc(hidden)]
pub use gpuslice_driver as driver;
pub use words::{Device, Machine, Use, WORKER, number, text};
pub use worker::work;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use words::{Answer, Question, READY};

/// A function of the library itself, if it has it. A look-up by the loader would find that of a library which is
/// preloaded, ours for one, and its answers would be the slice's own again.
///
/// The image is a [`driver::elf::Image`], the name that of a row of the table of functions.
#[macro_export]
macro_rules! find_function {
    ($image:expr, $name:ident) => {
        $image.symbol(&std::ffi::CString::new(stringify!($name)).unwrap_or_default()).map(|address| {
            // SAFETY: the row of the table is the signature of the symbol.
            unsafe {
                core::mem::transmute::<*const core::ffi::c_void, $crate::nvml::driver::functions::$name>(
                    address,
                )
            }
        })
    };
}

/// The longest time of one answer; NVML starts within a tenth of it where no persistence mode keeps the driver awake.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest time of all answers together for a command that is to be quick: three times the slowest start of NVML
/// that was measured (300 ms, without persistence mode).
const QUICK: Duration = Duration::from_secs(1);
/// The time in which a command asks again for figures that do not stand still.
const LONG: Duration = Duration::from_secs(1);
/// The patience with NVML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Five seconds for each answer.
    Full,
    /// One second for all answers.
    Quick,
}

/// NVML, ready to be asked.
#[derive(Debug)]
pub struct Nvml {
    /// None once it has not answered.
    worker: RefCell<Option<Worker>>,
    /// The devices that were asked for, until `refresh`.
    devices: RefCell<BTreeMap<String, Option<Device>>>,
    patience: Patience,
    /// Is told when it does not answer.
    note: fn(&str),
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
    /// None where there is no NVML, or it cannot be used. If it ceases to answer, `note` is told so in one line.
    ///
    /// The child that asks is this same program with [`WORKER`] as its argument, on which it is to call [`work`].
    #[must_use]
    pub fn open(patience: Patience, note: fn(&str)) -> Option<Self> {
        let worker = RefCell::new(Some(Worker::start()?));
        let nvml = Self { worker, devices: RefCell::default(), patience, note, since: Instant::now() };
        (nvml.heard()? == READY.trim_end()).then_some(nvml)
    }

    /// Forgets what it answered: figures that change are asked for again, for the time that a new command has.
    pub fn refresh(&mut self) {
        self.devices.borrow_mut().clear();
        self.since = Instant::now();
    }

    /// The driver and the GPUs of the machine.
    #[must_use]
    pub fn machine(&self) -> Option<Machine> {
        match self.ask(&Question::Machine)? {
            Answer::Machine(machine) => Some(machine),
            Answer::Device(_) | Answer::Processes(_) => None,
        }
    }

    /// Returns true if it still answers: one that was silent once is asked no more.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.worker.borrow().is_some()
    }

    /// The device with this UUID, a whole one or an instance. It is asked for once.
    #[must_use]
    pub fn device(&self, uuid: &str) -> Option<Device> {
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
    #[must_use]
    pub fn processes(&self, device: &Device) -> Option<Vec<Use>> {
        match self.ask(&Question::Processes(device.uuid.clone()))? {
            Answer::Processes(uses) => Some(uses),
            Answer::Device(_) | Answer::Machine(_) => None,
        }
    }

    /// Returns true if it has been asked for long enough: no question is put twice any more.
    #[must_use]
    pub fn is_late(&self) -> bool {
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
            Patience::Full => PATIENCE,
        };
        let heard = self.worker.borrow().as_ref()?.answers.recv_timeout(patience);
        if heard == Err(RecvTimeoutError::Timeout) {
            (self.note)("NVML does not answer: what it says of GPUs and slices is left out");
            drop(self.worker.take());
        }
        heard.ok()
    }
}

impl Worker {
    fn start() -> Option<Self> {
        let mut command = Command::new(std::env::current_exe().ok()?);
        command.arg(WORKER).env_remove("LD_PRELOAD");
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
