//! What a reservation of a real process waits with, and asks for room.

use crate::{
    handle::region::Region,
    memory::ledger::ReserveEnv,
    slots::roster::Reaped,
    sync::backoff::{Backoff, RESERVING},
};

/// What a reservation of a real process uses. Nothing is made before the first refusal.
pub(crate) struct LiveReserveEnv<'region> {
    pub(crate) region: &'region Region,
    pub(crate) patience: Option<Backoff>,
}

impl ReserveEnv for LiveReserveEnv<'_> {
    fn reap(&mut self) -> Reaped {
        // A region that was replaced cannot be asked who lives: then the dead keep what they hold.
        self.region.reap().unwrap_or(Reaped::Nobody)
    }

    fn wait(&mut self) -> bool {
        self.patience.get_or_insert_with(|| Backoff::new(RESERVING)).wait()
    }
}
