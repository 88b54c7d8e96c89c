//! Relays busy intervals among slices of a GPU that cannot see each other.
//!
//! Example: two containers have private folders, and each runs 10 ms of kernels at once. The GPU gives each 5 ms, but the processes
//! of each measure 10 ms. A slice finds its own part by the intervals of the others, and only the agent can read those. So the agent
//! copies new intervals into the region of each slice of another folder. Slices of one folder read each other's.
//!
//! No slice gets a word of another slice: the agent writes times, and numbers of contexts that it chooses itself. A slice that
//! publishes false times makes its neighbours count less time, as it can do in a common folder. Without the agent the slices go on,
//! and count the turns of the others as their own.

mod contexts;
mod round;

use gpuslice_policy::compute::attribution::slicing::RELAY_EVERY;
use gpuslice_slices::discovery::{Candidate, FileId};
use round::Round;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Time between two rounds while no slice has published anything for [`IDLE_AFTER`], and between two attempts to open regions that
/// were not there.
const IDLE: Duration = Duration::from_millis(100);
/// Time without an interval after which rounds are made less often.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// A region that takes part.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Its folder. Slices of one folder see each other without the agent.
    pub(crate) folder: FileId,
    /// The path of the region, which need not be there yet.
    pub(crate) path: PathBuf,
    /// Keeps the path, if the region was found in a container alone.
    pub(crate) _kept: Option<Candidate>,
}

impl Place {
    /// The region's name in its folder.
    fn name(&self) -> OsString {
        self.path.file_name().unwrap_or_default().to_owned()
    }
}

/// Makes rounds until nobody sends lists of regions any more. It sleeps while all regions are in one folder.
pub(crate) fn relay(places: &Receiver<Vec<Place>>) {
    let mut round = Round::default();
    let (mut idle, mut opened) = (Duration::ZERO, Instant::now());
    loop {
        let pause = if idle < IDLE_AFTER { Duration::from_nanos(RELAY_EVERY) } else { IDLE };
        let told = if round.is_needed() {
            places.recv_timeout(pause)
        } else {
            places.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match told {
            Ok(places) => round.follow(places),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if opened.elapsed() >= IDLE {
            round.open();
            opened = Instant::now();
        }
        idle = if round.make() { Duration::ZERO } else { idle.saturating_add(pause) };
    }
}
