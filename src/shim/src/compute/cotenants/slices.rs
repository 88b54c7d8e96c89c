//! Which slices' regions lie beside this one's, and what do they tell of a device?
//!
//! A process looks that holds a chair, and of each slice the one that is elected. A region that cannot be opened takes no
//! part: the GPU time that its slice uses makes the GPU look smaller. So does one that nobody is paid for in, a `fixed`
//! slice with the whole GPU and normal priority: it counts nothing, so there is nothing to be seen.

use crate::os::{clock, messages};
use crate::slice::handle::Slice;
use crate::slice::other_slices::{MOST, NAMES, Opened, open};
use core::fmt;
use gpuslice_policy::arbiter::demand::SliceFigures;
use gpuslice_policy::arbiter::schedule::ReadingSchedule;
use gpuslice_policy::arbiter::{self, SliceSettings};
use gpuslice_policy::config::LogLevel;
use gpuslice_policy::units::{Nanos, Permille};
use gpuslice_region::{Device, Limits, Monitor, Region, Uuid};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::Path;

/// How often it is looked who of a slice has died, in nanoseconds: their work does not count any more.
const BURY: u64 = 250_000_000;
/// A process whose use has not moved for so long stands still, in nanoseconds: its work does not wait for the GPU.
const STOPPED: u64 = 100_000_000;

/// A slice beside this one, or this one itself.
#[derive(Debug)]
pub(crate) struct Cotenant {
    /// A number that no other has.
    id: u64,
    name: OsString,
    inode: u64,
    monitor: Monitor,
    buried: u64,
    /// What each process of each device had used, and since when that has been so.
    still: BTreeMap<Device, Vec<(u64, u64)>>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Cotenants {
    known: Vec<Cotenant>,
    /// Files that are none.
    others: BTreeSet<(u64, OsString)>,
    ids: u64,
    pace: ReadingSchedule,
    /// When somebody wanted to know last.
    asked: u64,
    /// Whether it was said that there are more than are looked at.
    said: bool,
    /// Whether it was said that a program is in no slice of the folder.
    has_warned: bool,
}

impl Cotenants {
    /// The slices that are there.
    pub(crate) fn all(&mut self) -> &mut [Cotenant] {
        &mut self.known
    }

    /// Closes all of them if nobody has asked for so long. Whether any is open. What was said is not said again.
    pub(crate) fn rest(&mut self, after: u64, now: u64) -> bool {
        if now.saturating_sub(self.asked) >= after {
            let (said, has_warned) = (self.said, self.has_warned);
            *self = Self { said, has_warned, ids: self.ids, ..Self::default() };
        }
        !self.known.is_empty()
    }

    /// A program of no slice in the folder uses the GPU. Warns once, where no other slice of the folder is on the GPU.
    pub(crate) fn warn_if_alone(&mut self, slice: &Slice, gpu: &Uuid) {
        let own = slice.region().path();
        let Some(folder) = own.parent() else { return };
        let on_gpu = |region: &Region| region.path() != own && region.device(gpu).is_some();
        if self.has_warned || self.known.iter().any(|one| on_gpu(one.region())) {
            return;
        }
        self.has_warned = true;
        let text = format_args!(
            "gpuslice: {gpu}: a program uses this GPU that is in no slice of {}. The driver's turns for it count as this slice's \
             time, so that the slice may get down to half of its share, and a policy does not divide the GPU with it. Give all \
             containers one folder, and name a region in it with GPUSLICE_REGION.",
            folder.display()
        );
        messages::say(LogLevel::Warn, &text);
    }

    /// Looks who has come and gone, where it is time to.
    pub(crate) fn look(&mut self, slice: &Slice, now: u64) {
        self.asked = now;
        if !self.pace.looks(now) {
            return;
        }
        let own = slice.region().path();
        let Some(folder) = own.parent() else { return };
        let changed = fs::metadata(folder).map_or((0, 0), |found| (found.mtime(), found.mtime_nsec()));
        if self.pace.reads(changed, now) {
            self.read(folder, own);
            self.pace.has_read(clock::now());
        }
        for neighbour in &mut self.known {
            neighbour.bury(now);
        }
    }

    fn read(&mut self, folder: &Path, own: &Path) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        let mut found: Vec<(u64, OsString)> =
            entries.take(NAMES).flatten().map(|entry| (entry.ino(), entry.file_name())).collect();
        let all: BTreeSet<&(u64, OsString)> = found.iter().collect();
        self.others.retain(|other| all.contains(other));
        // Regions that nobody lives in are left behind: they would take the places of others.
        self.known.retain(|known| {
            all.contains(&(known.inode, known.name.clone())) && known.monitor.region().is_inhabited()
        });
        // The own one has its place whatever else there is.
        found.sort_by_key(|(_, name)| Some(name.as_os_str()) != own.file_name());
        for (inode, name) in found {
            let is_known = self.known.iter().any(|known| known.inode == inode);
            let is_full = self.known.len() >= MOST;
            if is_known || (is_full && self.said) || self.others.contains(&(inode, name.clone())) {
                continue;
            }
            match open(&folder.join(&name), own) {
                Opened::Region(monitor) if monitor.region().is_inhabited() && is_full => {
                    self.said = true;
                    messages::say(LogLevel::Warn, &LeftOut(monitor.region().path()));
                }
                Opened::Region(monitor) if monitor.region().is_inhabited() => {
                    self.ids = self.ids.wrapping_add(1);
                    let (id, still) = (self.ids, BTreeMap::new());
                    self.known.push(Cotenant { id, name, inode, monitor, buried: 0, still });
                }
                Opened::Region(_) | Opened::NotYet => {}
                Opened::Other => {
                    self.others.insert((inode, name));
                }
            }
        }
    }
}

/// Says that a slice has no part in what is divided.
struct LeftOut<'a>(&'a Path);

impl fmt::Display for LeftOut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "gpuslice: {}: GPUs are divided among {MOST} slices of a folder, and this one is beyond them: it keeps its own \
             limit and is lent nothing. Put some regions elsewhere with GPUSLICE_REGION.",
            self.0.display()
        )
    }
}

impl Cotenant {
    /// A number that no other has.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Its region.
    pub(crate) fn region(&self) -> &Region {
        self.monitor.region()
    }

    /// Forgets what the dead had under way.
    fn bury(&mut self, now: u64) {
        if now.saturating_sub(self.buried) >= BURY {
            self.buried = now;
            let _noticed = self.monitor.reap_if_due(now);
        }
    }

    /// What it asks for and tells of a GPU, and its number for it. None where it has no part in it.
    pub(crate) fn seen(&mut self, gpu: &Uuid, now: u64) -> Option<(Device, arbiter::Slice)> {
        let region = self.monitor.region();
        let device = region.device(gpu).filter(|device| region.is_paced(*device))?;
        if !region.is_ready() || !region.is_inhabited() {
            return None;
        }
        let mut seen =
            SliceFigures { owed: region.paid_until(device).saturating_sub(now), ..SliceFigures::default() };
        let still = self.still.entry(device).or_default();
        for (slot, work) in region.process_activity(device, now).enumerate() {
            seen.used = seen.used.saturating_add(work.used);
            seen.throttled = seen.throttled.saturating_add(work.throttled);
            seen.waits |= work.waits;
            if still.len() <= slot {
                still.push((work.used, now));
            }
            let Some((used, since)) = still.get_mut(slot) else { continue };
            if *used != work.used || work.queued == 0 {
                (*used, *since) = (work.used, now);
            }
            if now.saturating_sub(*since) < STOPPED {
                seen.queued = seen.queued.saturating_add(work.queued);
            }
        }
        Some((device, arbiter::Slice { id: self.id, settings: wish(region.limits(device)), figures: seen }))
    }
}

fn wish(limits: Limits) -> SliceSettings {
    let limit = u16::try_from(limits.cores_permille).ok().and_then(Permille::new);
    SliceSettings {
        policy: limits.sharing.policy,
        limit: limit.unwrap_or(Permille::FULL),
        weight: limits.sharing.weight,
        priority: limits.sharing.priority,
        burst: Nanos::new(limits.burst_ns),
    }
}
