//! Access to a slice without a slot, for commands that report figures and set limits.

use core::ops::Deref;
use std::path::Path;

use crate::{
    file::{
        choice::{self, Choice, Purpose},
        error::RegionError,
        map::{self, Trust},
        names::ProgramRegion,
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
    /// Opens the region at `path`. `None`: there is no region, or no process has finished initialising it.
    ///
    /// While a monitor watches a region, a process that joins may initialise it again. [`Region::epoch`] then changes, and
    /// the caller must look up each [`Device`](crate::Device) again.
    ///
    /// # Errors
    /// Every [`RegionError`] of a file that is not a usable region.
    pub fn open(path: &Path, trust: Trust) -> Result<Option<Self>, RegionError> {
        let path = &map::absolute(path)?;
        let region = map::open(path, trust)?.map(Region::new);
        Ok(region.filter(Region::is_ready).map(|region| Self { region }))
    }

    /// Opens the region of a program, as [`open`](Self::open) does.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_program(region: &ProgramRegion) -> Result<Option<Self>, RegionError> {
        if !region.has_more_names {
            return Self::open(&region.path, region.trust);
        }
        let chosen = choice::choose(&map::absolute(&region.path)?, region.trust, Purpose::Looking)?;
        let Choice::Region(mapped) = chosen else { return Ok(None) };
        Ok(Some(Region::new(mapped)).filter(Region::is_ready).map(|region| Self { region }))
    }

    /// Returns the region.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }
}
