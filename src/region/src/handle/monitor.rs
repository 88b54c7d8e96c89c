//! Access to a slice without a slot, for commands that report and that set limits.

use core::ops::Deref;
use std::path::Path;

use crate::{
    file::{
        error::RegionError,
        map::{self, Trust},
    },
    handle::region::Region,
};

/// A mapped region without a slot. It may reap dead processes and set limits.
#[derive(Debug)]
pub struct Monitor {
    region: Region,
}

impl Deref for Monitor {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.region
    }
}

impl Monitor {
    /// Opens the region at `path`. `None`: there is none, or no process has finished initialising it.
    ///
    /// A process that joins may initialise the region again while it is watched. [`Region::epoch`] changes then, and
    /// each [`Device`](crate::Device) must be looked up again.
    ///
    /// # Errors
    /// Every [`RegionError`] of a file that is not a usable region.
    pub fn open(path: &Path, trust: Trust) -> Result<Option<Self>, RegionError> {
        let path = &map::absolute(path)?;
        let region = map::open(path, trust)?.map(Region::new);
        Ok(region.filter(Region::is_ready).map(|region| Self { region }))
    }

    /// Returns the region.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }
}
