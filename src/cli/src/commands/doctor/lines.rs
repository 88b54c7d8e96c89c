//! Lines of text by which a probe tells the doctor its steps and its answer. A probe is a child process.

use crate::output::failure;

/// Prefix of the line with the answer.
pub(super) const ANSWER_PREFIX: &str = "gpuslice-probe answer ";
/// Prefix of the line that announces a step which may hang.
pub(super) const STEP_PREFIX: &str = "gpuslice-probe step ";

/// Announces the next step, so that the doctor knows which step hangs.
pub(super) fn step(name: &str) {
    let _nobody_listens = failure::print(&format!("{STEP_PREFIX}{name}\n"));
}
