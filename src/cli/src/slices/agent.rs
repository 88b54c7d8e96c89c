//! Sends requests to the gpuslice-agent of this host by its control socket.

use gpuslice_policy::units::{Permille, Setting as _};
use gpuslice_slices::slot::Name;
use serde::Deserialize;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The usual path of the control socket.
pub(crate) const SOCKET: &str = "/run/gpuslice/agent.sock";
/// Longest wait for an answer. The agent writes two files and the region before it answers.
const LONGEST_ANSWER: Duration = Duration::from_secs(10);
/// Most bytes of an answer.
const MOST_BYTES: u64 = 16 << 10;
const MIB: u64 = 1 << 20;

/// New limits for a slice of the agent. None keeps the present limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AgentChange {
    mebibytes: Option<u64>,
    share: Option<Permille>,
}

/// Outcome of a request.
#[derive(Debug)]
pub(crate) enum AgentAnswer {
    /// The slice has the new limits.
    Done,
    /// The agent refuses the limits, or could not write all of them. The text is the agent's reason.
    Refused(String),
    /// This user cannot connect to an agent.
    Unreachable,
}

impl AgentChange {
    /// Makes a change. Returns none if the protocol cannot express it, because it counts memory in whole mebibytes.
    pub(crate) fn new(memory: Option<u64>, share: Option<Permille>) -> Option<Self> {
        let is_whole = memory.is_none_or(|bytes| bytes.is_multiple_of(MIB));
        let mebibytes = memory.map(|bytes| bytes / MIB);
        (is_whole && (mebibytes.is_some() || share.is_some())).then_some(Self { mebibytes, share })
    }

    /// Returns the line of text that asks the agent to change a slice.
    fn line(self, slice: &Name) -> String {
        let memory = self.mebibytes.map_or_else(String::new, |mebibytes| format!(",\"memMiB\":{mebibytes}"));
        let share = self.share.map_or_else(String::new, |share| format!(",\"core\":{}", share.setting()));
        format!("{{\"op\":\"set\",\"slice\":\"{slice}\"{memory}{share}}}\n")
    }

    /// Asks the agent to change a slice.
    pub(crate) fn ask(self, slice: &Name) -> AgentAnswer {
        let Ok(stream) = UnixStream::connect(SOCKET) else { return AgentAnswer::Unreachable };
        match exchange(stream, &self.line(slice)) {
            Ok(Answer { ok: true, .. }) => AgentAnswer::Done,
            Ok(Answer { error, .. }) => AgentAnswer::Refused(error),
            Err(error) => {
                AgentAnswer::Refused(format!("gpuslice-agent does not answer on {SOCKET}: {error}"))
            }
        }
    }
}

/// The agent's answer.
#[derive(Debug, Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default)]
    error: String,
}

fn exchange(mut stream: UnixStream, line: &str) -> io::Result<Answer> {
    stream.set_read_timeout(Some(LONGEST_ANSWER))?;
    stream.set_write_timeout(Some(LONGEST_ANSWER))?;
    stream.write_all(line.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream.take(MOST_BYTES)).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_a_line_with_the_limits_that_it_names() {
        let slice: Name = "a".parse().unwrap();
        let line = |memory, share: Option<u16>| {
            let change = AgentChange::new(memory, share.and_then(Permille::new));
            change.map(|change| change.line(&slice))
        };
        let both = "{\"op\":\"set\",\"slice\":\"a\",\"memMiB\":2,\"core\":12.5}\n";
        assert_eq!(line(Some(2 * MIB), Some(125)).as_deref(), Some(both));
        let share = "{\"op\":\"set\",\"slice\":\"a\",\"core\":40}\n";
        assert_eq!(line(None, Some(400)).as_deref(), Some(share));
        assert_eq!(line(Some(MIB + 1), Some(400)), None, "no whole mebibytes");
        assert_eq!(line(None, None), None);
    }
}
