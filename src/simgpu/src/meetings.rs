//! Which kernels wait for each other?
//!
//! Collectives do: each rank's kernel keeps its device busy until those of all the others run. Here they are those whose
//! names have `meet`; a launch waits for as many devices of its process as its grid has columns, and then runs for its time.

use parking_lot::Mutex;

use crate::engine::Ticket;
use crate::state::file::Locked;

/// The longest that a kernel waits, in nanoseconds.
pub(crate) const LONGEST: u64 = 60_000_000_000;
/// How long nobody sleeps longer than while kernels wait for each other, in nanoseconds.
pub(crate) const POLL: u64 = 20_000;

/// A kernel that waits for others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Comer {
    pub(crate) device: usize,
    pub(crate) ticket: Ticket,
    /// How many devices have to be there, its own included.
    pub(crate) wanted: u32,
    /// How long it runs once they are.
    pub(crate) ns: u64,
}

/// The kernels of this process that wait for others.
#[derive(Debug, Default)]
pub(crate) struct Meetings(Mutex<Vec<Comer>>);

impl Meetings {
    /// A kernel will wait for others.
    pub(crate) fn expect(&self, comer: Comer) {
        self.0.lock().push(comer);
    }

    /// Lets those that all run go on. Whether any is still expected.
    pub(crate) fn look(&self, state: &mut Locked<'_>, now: u64) -> bool {
        let mut comers = self.0.lock();
        if comers.is_empty() {
            return false;
        }
        comers.iter().for_each(|comer| state.engine(comer.device).advance(now));
        comers.retain(|comer| !state.engine(comer.device).is_over(comer.ticket));
        let here: Vec<Comer> = comers
            .iter()
            .copied()
            .filter(|comer| state.engine(comer.device).is_running(comer.ticket))
            .collect();
        for comer in &here {
            if u32::try_from(here.len()).unwrap_or(u32::MAX) >= comer.wanted {
                state.engine(comer.device).end_after(comer.ticket, comer.ns);
                comers.retain(|other| (other.device, other.ticket) != (comer.device, comer.ticket));
            }
        }
        !comers.is_empty()
    }
}
