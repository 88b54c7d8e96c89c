//! Gets NVML's figures of the GPUs. A thread asks NVML, so that the screen is drawn without waiting for an answer.

use gpuslice_region::Uuid;
use gpuslice_slices::nvml::NvmlDevice;
use gpuslice_slices::nvml_retry::NvmlRetry;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two checks for an expected answer.
const ANSWER_LOOK_PERIOD: Duration = Duration::from_millis(100);

/// Devices with NVML's figures.
pub(crate) type GpuFigures = Vec<(Uuid, NvmlDevice)>;

/// The connection to the thread that asks NVML.
#[derive(Debug)]
pub(crate) struct Gpus {
    ask: Sender<Vec<Uuid>>,
    answers: Receiver<GpuFigures>,
    is_asked: bool,
}

impl Gpus {
    /// Starts the thread. The first question starts NVML.
    pub(crate) fn new() -> Self {
        let (ask, asked) = channel();
        let (tell, answers) = channel();
        thread::spawn(move || answer(&asked, &tell));
        Self { ask, answers, is_asked: false }
    }

    /// Asks for the devices with these UUIDs, unless an answer is still expected.
    pub(crate) fn ask(&mut self, uuids: Vec<Uuid>) {
        if !self.is_asked && !uuids.is_empty() {
            self.is_asked = self.ask.send(uuids).is_ok();
        }
    }

    /// Returns the answer, if it has arrived.
    pub(crate) fn answer(&mut self) -> Option<GpuFigures> {
        let told = self.answers.try_recv().ok()?;
        self.is_asked = false;
        Some(told)
    }

    /// Returns the time of the next check for the answer. It is `due` at the latest.
    pub(crate) fn due(&self, due: Instant) -> Instant {
        if self.is_asked { due.min(Instant::now() + ANSWER_LOOK_PERIOD) } else { due }
    }
}

/// Answers until `top` ends. If NVML is silent, the thread prints nothing, because the screen belongs to `top`. While NVML cannot
/// be used, the answer has no devices.
fn answer(asked: &Receiver<Vec<Uuid>>, tell: &Sender<GpuFigures>) {
    let mut nvml = NvmlRetry::new(|_silence| {});
    while let Ok(uuids) = asked.recv() {
        let told = nvml.refresh().map_or_else(Vec::new, |nvml| {
            uuids.into_iter().filter_map(|uuid| Some((uuid, nvml.device(&uuid.to_string())?))).collect()
        });
        if tell.send(told).is_err() {
            return;
        }
    }
}
