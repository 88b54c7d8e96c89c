//! Asks NVML itself about devices and the memory of processes.
//!
//! If the driver hangs, a process that asks it may never end. So a child process asks NVML, and this process waits for each
//! answer for a limited time. Without NVML's answers, commands still show the figures of the regions.

mod words;
mod worker;

#[doc(hidden)]
pub use gpuslice_driver as driver;
pub use words::{NvmlDevice, NvmlMachine, PROHIBITED, SHARED, Sample, Use, WORKER, number, text};
pub use worker::work;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use words::{Answer, Question, READY};

/// Returns a function of the library itself, if the library has it. A look-up by the loader would find the function of a
/// preloaded library. With gpuslice preloaded, that function would give the figures of the slice.
///
/// `$image` is a [`driver::elf::Image`]. `$name` is the name of a row in the table of functions.
#[macro_export]
macro_rules! find_function {
    ($image:expr, $name:ident) => {
        $image.symbol(&std::ffi::CString::new(stringify!($name)).unwrap_or_default()).map(|address| {
            // SAFETY: `transmute` needs the function's real type. The type is the row of this name in the table, which has the
            // symbol's signature.
            unsafe {
                core::mem::transmute::<*const core::ffi::c_void, $crate::nvml::driver::functions::$name>(
                    address,
                )
            }
        })
    };
}

/// Longest wait for one answer. Even without persistence mode, NVML starts within a tenth of this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest wait for all answers of a quick command. This is three times the slowest measured start of NVML, which took 300 ms
/// without persistence mode.
const QUICK: Duration = Duration::from_secs(1);
/// Longest time for which a command repeats its questions because the figures change between the answers.
const LONG: Duration = Duration::from_secs(1);
/// Longest wait for the end of children that were killed. A child that does not hang in the kernel ends within milliseconds.
const ENDING: Duration = Duration::from_millis(500);
/// Time between two looks at a killed child.
const LOOK: Duration = Duration::from_millis(5);

/// Children of this process that were killed and may not have ended.
static KILLED: Killed = Killed(Mutex::new(Vec::new()));

/// Limit on the waits for NVML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NvmlTimeout {
    /// Five seconds for each answer.
    Full,
    /// One second for all answers.
    Quick,
}

/// The child that asks NVML, and the answers so far.
#[derive(Debug)]
pub struct Nvml {
    /// None after the child has failed to answer once.
    worker: RefCell<Option<Worker>>,
    /// Devices that NVML was asked for since the last `refresh`.
    devices: RefCell<BTreeMap<String, Option<NvmlDevice>>>,
    patience: NvmlTimeout,
    /// The function that gets one line of text if NVML does not answer.
    note: fn(&str),
    since: Instant,
}

/// The child that asks NVML.
#[derive(Debug)]
struct Worker {
    /// None only while the worker is dropped.
    child: Option<Child>,
    questions: ChildStdin,
    answers: Receiver<String>,
}

impl Nvml {
    /// Starts NVML in a child. If NVML ceases to answer, `note` gets one line. Returns none if there is no NVML, or if it does
    /// not start. Also returns none while an earlier child hangs: another child would hang too, and each child takes a process,
    /// a thread and a descriptor.
    ///
    /// The child is this same program with [`WORKER`] as its argument. With that argument the program must call
    /// [`work`].
    #[must_use]
    pub fn open(patience: NvmlTimeout, note: fn(&str)) -> Option<Self> {
        let worker = RefCell::new(Some(Worker::start()?));
        let nvml = Self { worker, devices: RefCell::default(), patience, note, since: Instant::now() };
        (nvml.heard()? == READY.trim_end()).then_some(nvml)
    }

    /// Forgets the answers, so that later calls ask for the figures again. The time limits begin again, too.
    pub fn refresh(&mut self) {
        self.devices.borrow_mut().clear();
        self.since = Instant::now();
    }

    /// Returns the driver and the GPUs of the machine.
    #[must_use]
    pub fn machine(&self) -> Option<NvmlMachine> {
        match self.ask(&Question::Machine)? {
            Answer::Machine(machine) => Some(machine),
            _ => None,
        }
    }

    /// Returns true if NVML still answers. After NVML has been silent once, this process asks it no further question.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.worker.borrow().is_some()
    }

    /// Returns the device with this UUID, a GPU or an instance. Asks NVML for it once.
    #[must_use]
    pub fn device(&self, uuid: &str) -> Option<NvmlDevice> {
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

    /// Returns the free memory of the device with this UUID at this moment in bytes, or none if NVML does not tell.
    #[must_use]
    pub fn free(&self, uuid: &str) -> Option<u64> {
        match self.ask(&Question::Free(uuid.to_owned()))? {
            Answer::Free(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the entries of one process on the device with this UUID, or none if NVML does not tell.
    #[must_use]
    pub fn process(&self, uuid: &str, pid: u32) -> Option<Vec<Use>> {
        match self.ask(&Question::Process(uuid.to_owned(), pid))? {
            Answer::Process(entries) => Some(entries),
            _ => None,
        }
    }

    /// Returns the compute processes of a device, or none if NVML does not tell.
    #[must_use]
    pub fn processes(&self, device: &NvmlDevice) -> Option<Vec<Use>> {
        match self.ask(&Question::Processes(device.uuid.clone()))? {
            Answer::Processes(uses) => Some(uses),
            _ => None,
        }
    }

    /// Returns the utilisation of the device by each process, in samples newer than `since`. `since` is a time of NVML's clock
    /// in microseconds. None if NVML does not tell.
    #[must_use]
    pub fn samples(&self, device: &NvmlDevice, since: u64) -> Option<Vec<Sample>> {
        match self.ask(&Question::Samples(device.uuid.clone(), since))? {
            Answer::Samples(samples) => Some(samples),
            _ => None,
        }
    }

    /// Returns for each of these GPUs the UUIDs of the other GPUs to which it has NVLink. Empty if NVML does not tell.
    #[must_use]
    pub fn links(&self, gpus: &[String]) -> Vec<Vec<String>> {
        match self.ask(&Question::Links(gpus.to_vec())) {
            Some(Answer::Links(links)) => links,
            _ => Vec::new(),
        }
    }

    /// Returns true if the caller should not repeat a question, because too much time has passed.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.since.elapsed() > LONG
    }

    fn ask(&self, question: &Question) -> Option<Answer> {
        let line = format!("{}\n", serde_json::to_string(question).ok()?);
        let asked = self.worker.borrow_mut().as_mut()?.questions.write_all(line.as_bytes());
        if asked.is_err() {
            drop(self.worker.take());
        }
        serde_json::from_str::<Option<Answer>>(&self.heard()?).ok()?
    }

    /// Returns the child's next line. If the child has ended or does not answer in time, this function kills it, and the child
    /// gets no further question.
    ///
    /// The child answers questions in their order, one line each. After a late answer, the next question would get the answer
    /// of the question before it. So this process stops using the child at the first silence.
    fn heard(&self) -> Option<String> {
        let patience = match self.patience {
            NvmlTimeout::Quick => QUICK.saturating_sub(self.since.elapsed()),
            NvmlTimeout::Full => PATIENCE,
        };
        let heard = self.worker.borrow().as_ref()?.answers.recv_timeout(patience);
        if heard == Err(RecvTimeoutError::Timeout) {
            (self.note)("NVML does not answer: its figures of GPUs and slices are left out");
        }
        if heard.is_err() {
            drop(self.worker.take());
        }
        heard.ok()
    }
}

impl Worker {
    fn start() -> Option<Self> {
        if !KILLED.have_ended(ENDING) {
            return None;
        }
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
        Some(Self { child: Some(child), questions, answers })
    }
}

impl Drop for Worker {
    /// Kills the child and does not wait for its end. The child may hang in the kernel, where no signal ends it.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ended = child.kill();
            KILLED.add(child);
        }
    }
}

/// Children that were killed. A child that has ended stays in the process table until its parent asks for its status.
#[derive(Debug)]
struct Killed(Mutex<Vec<Child>>);

impl Killed {
    fn add(&self, child: Child) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(child);
        self.have_ended(Duration::ZERO);
    }

    /// Returns true once all children have ended, and false if one has not ended after `wait`.
    fn have_ended(&self, wait: Duration) -> bool {
        let begun = Instant::now();
        let mut children = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            if children.is_empty() || begun.elapsed() >= wait {
                return children.is_empty();
            }
            thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_child_is_started_while_an_earlier_one_hangs_and_none_stays_behind() {
        let killed = Killed(Mutex::new(Vec::new()));
        assert!(killed.have_ended(Duration::ZERO));
        // A child that hangs in the kernel ignores signals. Here a child that gets no signal takes its place.
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let (input, pid) = (child.stdin.take(), child.id());
        killed.add(child);
        assert!(!killed.have_ended(Duration::ZERO) && !killed.have_ended(Duration::from_millis(20)));
        drop(input);
        assert!(killed.have_ended(Duration::from_secs(60)));
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "it was not waited for");
    }

    #[test]
    fn a_worker_that_was_killed_is_waited_for_before_the_next_one_starts() {
        // The child is this test program. It ends at once, because none of its tests has the argument's name.
        let first = Worker::start().unwrap();
        let pid = first.child.as_ref().unwrap().id();
        drop(first);
        drop(Worker::start().unwrap());
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "it was not waited for");
        assert!(KILLED.have_ended(Duration::from_secs(60)));
    }
}
