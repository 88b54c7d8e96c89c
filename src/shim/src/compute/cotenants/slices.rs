//! Slices on the same GPUs whose regions lie in the same directory: this slice and its co-tenants.
//!
//! Two kinds of processes read them: the arbiter of a GPU, and the process of each slice that is elected to sample. They
//! leave out a region that they cannot open. The slice of that region then only reduces the GPU time that they see. They
//! also leave out a `fixed` slice with the whole GPU and normal priority, because such a slice counts no GPU time.

use crate::os::{clock, messages};
use crate::slice::handle::Slice;
use crate::slice::other_slices::{MOST_FILES, MOST_REGIONS, OpenedFile, open};
use core::fmt;
use gpuslice_policy::arbiter::schedule::ReadingSchedule;
use gpuslice_policy::config::LogLevel;
use gpuslice_policy::time::{Monotonic, WallTime};
use gpuslice_region::{Cotenant, Region, Uuid};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::Path;

/// A co-tenant, or this slice itself, and its file.
#[derive(Debug)]
struct KnownSlice {
    name: OsString,
    inode: u64,
    cotenant: Cotenant,
}

/// All slices that are known.
#[derive(Debug, Default)]
pub(crate) struct Cotenants {
    known: Vec<KnownSlice>,
    /// Files that are no regions, by inode and name. The process does not open them again.
    others: BTreeSet<(u64, OsString)>,
    /// Last number that was given to a slice. No number is used twice: readers store their places in the rings by these numbers.
    ids: u64,
    pace: ReadingSchedule,
    /// Instant of the last call of [`refresh`](Self::refresh).
    asked: Monotonic,
    /// True if the log has a warning that there are more slices than this process reads.
    has_warned_of_more: bool,
    /// True if the log has a warning of a program that is in no slice of the directory.
    has_warned_of_program: bool,
}

impl Cotenants {
    /// Returns the slices that are known.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut Cotenant> {
        self.known.iter_mut().map(|known| &mut known.cotenant)
    }

    /// Returns true if this process reads the region whose [file has this number](Region::file_number).
    pub(crate) fn has(&self, number: u64) -> bool {
        self.known.iter().any(|known| known.cotenant.region().file_number() == number)
    }

    /// Closes all regions if no thread has used the list for `after`. Returns true if any region is open afterwards. Warnings are
    /// not repeated. The numbers continue: otherwise a region that is opened later could get the number of an earlier region. A
    /// reader would then begin in its ring at the place of the earlier region.
    pub(crate) fn close_idle(&mut self, after: WallTime, now: Monotonic) -> bool {
        if now.since(self.asked) >= after {
            *self = Self {
                has_warned_of_more: self.has_warned_of_more,
                has_warned_of_program: self.has_warned_of_program,
                ids: self.ids,
                ..Self::default()
            };
        }
        !self.known.is_empty()
    }

    /// Warns once of a program that uses the GPU and is in no slice of the directory. `is_counted`: the program is in a slice of
    /// another directory, whose time slices do not count as this slice's time. Does not warn if another slice of the directory is
    /// on the GPU.
    pub(crate) fn warn_if_alone(&mut self, slice: &Slice, gpu: &Uuid, is_counted: bool) {
        let own = slice.region().path();
        let Some(folder) = own.parent() else { return };
        let on_gpu = |region: &Region| region.path() != own && region.device(gpu).is_some();
        if self.has_warned_of_program || self.known.iter().any(|known| on_gpu(known.cotenant.region())) {
            return;
        }
        self.has_warned_of_program = true;
        let effect = if is_counted {
            "A policy does not divide the GPU with it."
        } else {
            "Its turns on the GPU count as this slice's time. So the slice may get only about half of its share, and less beside \
             several such programs. A policy does not divide the GPU with it."
        };
        let text = format_args!(
            "gpuslice: {gpu}: a program uses this GPU that is in no slice of {}. {effect} Give all containers one folder, and \
             name a region in it with GPUSLICE_REGION, or run gpuslice-agent.",
            folder.display()
        );
        messages::say(LogLevel::Warn, &text);
    }

    /// Updates the list, if that is due. The thread checks the directory for a change each 25 ms. Without a change it reads the
    /// directory every 200 ms. Reading takes a 20th of the time at most, because the same thread measures GPU time.
    pub(crate) fn refresh(&mut self, slice: &Slice, now: Monotonic) {
        self.asked = now;
        if !self.pace.begin_look(now) {
            return;
        }
        let own = slice.region().path();
        let Some(folder) = own.parent() else { return };
        // The thread reads the directory's time of change before its entries. A file that is added meanwhile changes the time
        // again, and leads to another reading.
        let changed = fs::metadata(folder).map_or((0, 0), |found| (found.mtime(), found.mtime_nsec()));
        if self.pace.begin_reading(changed, now) {
            self.read(folder, own);
            self.pace.end_reading(clock::now());
        }
        self.all().for_each(|cotenant| cotenant.reap(now));
    }

    /// Opens the regions that are new in the directory, and closes regions that are gone.
    ///
    /// Files are identified by their inodes: a region that was removed and made again under the same name is another region. If a
    /// region is not ready or has no processes, the next reading tries it again. Any other file is not opened again.
    fn read(&mut self, folder: &Path, own: &Path) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        let mut found: Vec<(u64, OsString)> =
            entries.take(MOST_FILES).flatten().map(|entry| (entry.ino(), entry.file_name())).collect();
        let all: BTreeSet<&(u64, OsString)> = found.iter().collect();
        self.others.retain(|other| all.contains(other));
        // Regions without processes are left out, because the number of regions is bounded.
        self.known.retain(|known| {
            all.contains(&(known.inode, known.name.clone())) && known.cotenant.region().is_inhabited()
        });
        // The own region comes first, so that it always gets a place.
        found.sort_by_key(|(_, name)| Some(name.as_os_str()) != own.file_name());
        for (inode, name) in found {
            let is_known = self.known.iter().any(|known| known.inode == inode);
            let is_full = self.known.len() >= MOST_REGIONS;
            if is_known
                || (is_full && self.has_warned_of_more)
                || self.others.contains(&(inode, name.clone()))
            {
                continue;
            }
            match open(&folder.join(&name), own) {
                OpenedFile::Region(monitor) if monitor.region().is_inhabited() && is_full => {
                    self.has_warned_of_more = true;
                    messages::say(LogLevel::Warn, &LeftOut(monitor.region().path()));
                }
                OpenedFile::Region(monitor) if monitor.region().is_inhabited() => {
                    self.ids = self.ids.wrapping_add(1);
                    let cotenant = Cotenant::new(self.ids, monitor);
                    self.known.push(KnownSlice { name, inode, cotenant });
                }
                OpenedFile::Region(_) | OpenedFile::NotYet => {}
                OpenedFile::Other => {
                    self.others.insert((inode, name));
                }
            }
        }
    }
}

/// Message that a slice has no part in the division of GPUs.
struct LeftOut<'a>(&'a Path);

impl fmt::Display for LeftOut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "gpuslice: {}: GPUs are divided among {MOST_REGIONS} slices of a folder, and this one is beyond them: it keeps its own \
             limit and is lent nothing. Put some regions elsewhere with GPUSLICE_REGION.",
            self.0.display()
        )
    }
}
