//! How does somebody look at a slice without being in it?

use core::ops::Deref;
use std::path::Path;

use crate::{
    file::{
        error::RegionError,
        map::{self, Trust},
    },
    handle::region::Region,
};

/// A region that is mapped to be read. It takes no slot; it may clear the dead and set limits.
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
    /// Opens the region at `path`. `None`: there is none, or nobody ever finished making it.
    ///
    /// The region may be made anew by a newcomer while it is watched: [`Region::epoch`] changes then, and a
    /// [`Device`](crate::Device) must be looked up again.
    ///
    /// # Errors
    /// Every [`RegionError`] of a file that is not a region that can be used.
    pub fn open(path: &Path, trust: Trust) -> Result<Option<Self>, RegionError> {
        let path = &map::absolute(path)?;
        let region = map::open(path, trust)?.map(Region::new);
        Ok(region.filter(Region::is_ready).map(|region| Self { region }))
    }

    /// What can be read.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }
}
