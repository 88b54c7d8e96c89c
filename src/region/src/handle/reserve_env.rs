//! Gives a reservation the services of a real process: reaping, and waiting between tries.

use crate::{
    handle::region::Region,
    memory::ledger::ReserveEnv,
    slots::roster::Reaped,
    sync::backoff::{Backoff, RESERVING},
};

/// The services for one reservation. The back-off is created at the first wait.
pub(crate) struct LiveReserveEnv<'region> {
    pub(crate) region: &'region Region,
    pub(crate) backoff: Option<Backoff>,
}

impl ReserveEnv for LiveReserveEnv<'_> {
    fn reap(&mut self) -> Reaped {
        // A region that was replaced has no locks to ask for. The reservation then counts the bytes of its dead processes.
        self.region.reap().unwrap_or(Reaped::Nobody)
    }

    fn wait(&mut self) -> bool {
        self.backoff.get_or_insert_with(|| Backoff::new(RESERVING)).wait()
    }
}
