//! Messages about refusals by the quota.
//!
//! A program gets a status, and its own message seldom names the quota. So the library prints at most one line a minute. The line
//! has the request, the bytes that the slice holds, its quota, and the process that holds most. Some programs allocate until the
//! library refuses. For them a denial costs only one reading of the clock and one comparison.

use crate::os::clock::now;
use crate::os::messages::{self, MESSAGE_PAUSE};
use crate::os::time_word::TimeWord;
use crate::slice::device::SliceDevice;
use crate::slice::handle::Slice;
use crate::slice::settings;
use core::fmt;
use gpuslice_policy::config::{LogLevel, QuotaSource, ValueOrigin, gpu_uuid_text};
use gpuslice_policy::sizes::blocks::{BLOCK, LARGEST_SMALL, taken};
use gpuslice_policy::time::Monotonic;
use gpuslice_policy::units::Bytes;
use gpuslice_region::{Device, ProcessView, own_pid_namespace};
use std::fs;

/// Kind of memory that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusedKind {
    Allocation,
    /// An allocation that takes more memory of the device than the program asks for.
    Linear,
    Context,
    Code,
    Limit,
}

/// Instant of the next message.
#[derive(Debug, Default)]
pub(crate) struct Refusals(TimeWord<Monotonic>);

impl Refusals {
    /// Returns true if a message is due. After that, no message is due for [`MESSAGE_PAUSE`].
    fn claim_message(&self) -> bool {
        let (now, due) = (now(), self.0.get());
        // Relaxed: it does not matter which of several threads prints the message.
        now >= due && self.0.replace(due, now.saturating_add(MESSAGE_PAUSE))
    }

    /// Prints that `asked` bytes are refused: at level `warn` if a message is due, and at level `debug` otherwise.
    pub(crate) fn say(&self, slice: &Slice, device: Device, what: RefusedKind, asked: u64) {
        let level = if self.claim_message() { LogLevel::Warn } else { LogLevel::Debug };
        messages::say(level, &RefusalMessage { slice, device, what, asked });
    }
}

/// Message about a request that is refused.
struct RefusalMessage<'slice> {
    slice: &'slice Slice,
    device: Device,
    what: RefusedKind,
    asked: u64,
}

impl fmt::Display for RefusalMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slice, device, what, asked } = *self;
        let place = slice.place_of_device(device);
        let name = place.map_or_else(String::new, |place| gpu_uuid_text(&place.uuid));
        let asked_text = ExactBytes(asked);
        write!(f, "gpuslice: {name}: ")?;
        match what {
            RefusedKind::Allocation => write!(f, "an allocation of {asked_text} is refused: ")?,
            RefusedKind::Linear => {
                write!(f, "an allocation of {asked_text}")?;
                let takes = takes(asked);
                if takes != asked {
                    write!(f, " ({} of the device)", ExactBytes(takes))?;
                }
                f.write_str(" is refused: ")?;
            }
            RefusedKind::Context => {
                write!(f, "a context on this device takes about {asked_text} and is refused: ")?;
            }
            RefusedKind::Code if asked == 0 => f.write_str("a module of unknown size is refused: ")?,
            RefusedKind::Code => {
                write!(f, "a module, code and variables, takes about {asked_text} and is refused: ")?;
            }
            RefusedKind::Limit => write!(
                f,
                "a heap, stack or buffer set with cuCtxSetLimit takes about {asked_text} and is refused: "
            )?,
        }
        let held = Amount(slice.region().held(device));
        let Some(limit) = slice.region().memory_limit(device) else {
            return write!(f, "the slice holds {held} and has no quota.");
        };
        write!(f, "the slice holds {held} of its quota of {}", Amount(limit))?;
        if let Some((bytes, process)) = largest(slice, device) {
            write!(f, ", most of it ({}) in process {}", Amount(bytes), process.pid)?;
            if let Some(command) = command_of(&process) {
                write!(f, " ({command})")?;
            }
        }
        f.write_str(".")?;
        // Advice is useful in two cases. A request larger than the whole quota never fits. And few programs can continue without
        // a context or their code.
        if !matches!(what, RefusedKind::Allocation | RefusedKind::Linear) || asked > limit {
            write!(f, " {}", Advice { slice, place, limit })?;
        }
        Ok(())
    }
}

/// Returns the bytes that a linear allocation needs if no block has a slot for it. If that number does not fit in 64 bits,
/// returns `asked`.
fn takes(asked: u64) -> u64 {
    let whole = if asked > LARGEST_SMALL { taken(asked) } else { BLOCK };
    if whole == u64::MAX { asked } else { whole }
}

/// Advice on how to raise a quota.
pub(crate) struct Advice<'slice> {
    slice: &'slice Slice,
    place: Option<SliceDevice>,
    limit: u64,
}

impl<'slice> Advice<'slice> {
    /// Returns the advice for a device of the slice.
    pub(crate) fn new(slice: &'slice Slice, device: Device) -> Self {
        let place = slice.place_of_device(device);
        Self { slice, place, limit: slice.region().memory_limit(device).unwrap_or(0) }
    }
}

impl fmt::Display for Advice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = self.source();
        // `gpuslice run` gives its regions a name with `-run-`.
        let by_run = || {
            let name = self.slice.region().path().file_name();
            name.is_some_and(|name| name.to_string_lossy().contains("-run-"))
        };
        match &source {
            // The quota was changed after this process started, or another member has set it.
            None => f.write_str("Raise it with `gpuslice set`")?,
            Some(QuotaSource { said, .. }) => match &said.origin {
                ValueOrigin::Line { .. } => write!(f, "The operator's file sets it: {said}")?,
                ValueOrigin::Environment if by_run() => write!(f, "Raise --mem")?,
                ValueOrigin::Environment => write!(f, "Raise {}", said.key)?,
            },
        }
        match source.and_then(|source| source.meant) {
            Some(meant) => write!(f, "; did you mean {meant}?"),
            None => f.write_str("."),
        }
    }
}

impl Advice<'_> {
    /// Returns the setting of the quota, if the slice still has the quota that this process started with.
    fn source(&self) -> Option<QuotaSource> {
        let ordinal = self.slice.places().iter().position(|place| Some(place.device) == self.device());
        let settings = settings::settings()?;
        let source =
            settings.config.quota_source(crate::slice::devices::identity_of(&self.place?, ordinal))?;
        (source.bytes.get() == self.limit).then_some(source)
    }

    fn device(&self) -> Option<Device> {
        self.place.map(|place| place.device)
    }
}

/// Returns the process that holds most memory of a device, with the bytes that it holds.
fn largest(slice: &Slice, device: Device) -> Option<(u64, ProcessView)> {
    let processes = slice.region().processes().into_iter();
    let held = |process: ProcessView| {
        Some((process.held.get(device.index()).copied().filter(|bytes| *bytes > 0)?, process))
    };
    processes.filter_map(held).max_by_key(|(bytes, _)| *bytes)
}

/// Returns the name of a process, as far as it can be read and printed.
fn command_of(process: &ProcessView) -> Option<String> {
    // A process number of another namespace names another process here.
    if process.pid_namespace != own_pid_namespace() {
        return None;
    }
    let name = fs::read_to_string(format!("/proc/{}/comm", process.pid)).ok()?;
    let name: String = name.trim_end().chars().filter(|c| c.is_ascii_graphic() || *c == ' ').collect();
    (!name.is_empty()).then_some(name)
}

/// Number of bytes of a request. The text is exact: a request of one byte more than the quota must not look like the quota.
struct ExactBytes(u64);

impl fmt::Display for ExactBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1 << 10) { Bytes::new(self.0).fmt(f) } else { write!(f, "{} bytes", self.0) }
    }
}

/// Number of bytes as a short text. It is exact for whole MiB and for less than 1 MiB.
struct Amount(u64);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: u64 = 1 << 20;
        if self.0 < MIB {
            return write!(f, "{} bytes", self.0);
        }
        if self.0.is_multiple_of(MIB) {
            return write!(f, "{}", Bytes::new(self.0));
        }
        let tenths = self.0 / (MIB / 10);
        write!(f, "{}.{}MiB", tenths / 10, tenths % 10)
    }
}
