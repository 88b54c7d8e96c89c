//! Does this process stand in a slice, and how did it get there?
//!
//! The settings are read at the first call that needs them. Without a limit the library steps aside for good.
//! With one, the process joins its slice as soon as the driver is initialised, and a child that it forks has to
//! join again: what belongs to one process lives on a page that the kernel empties at a fork.
//!
//! A limit that cannot be enforced refuses: `cuInit` returns `CUDA_ERROR_NOT_PERMITTED`, and so do from then on
//! all calls that would take memory or submit work. A process that loses its region while it runs is refused more
//! memory.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::bypass;
use crate::devices;
use crate::os::allocator;
use crate::os::messages;
use crate::os::reentrancy::shielded;
use crate::slice::Slice;
use core::fmt::Display;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};
use gpuslice_driver::slot;
use gpuslice_driver::table::{ALL, Treatment};
use gpuslice_driver::types::{Status, status};
use gpuslice_policy::config::{Config, LogLevel, ReportTotal, misspelt};
use gpuslice_region::names;
use gpuslice_region::operator::Operator;
use gpuslice_region::{Member, RegionError, Trust};
use once_cell::race::{OnceBox, OnceNonZeroUsize};
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where a process stands.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Standing {
    /// No limit was set, or the driver is not initialised: calls go on as they are.
    Free,
    /// It is a member of a slice.
    Member(&'static Slice),
    /// A limit was set that cannot be enforced.
    Refused,
}

/// What the settings came to.
static STAGE: AtomicU8 = AtomicU8::new(UNREAD);
const UNREAD: u8 = 0;
const FREE: u8 = 1;
const LIMITED: u8 = 2;
const REFUSED: u8 = 3;

/// The settings, where there is a limit.
static SETTINGS: OnceBox<Settings> = OnceBox::new();

/// The settings of this process and of its forked children.
#[derive(Debug)]
pub(crate) struct Settings {
    /// What was set.
    pub(crate) config: Config,
    /// Where the region is.
    pub(crate) region: PathBuf,
    /// Whose file the region may be.
    pub(crate) trust: Trust,
}

/// What belongs to one process and not to its forked children. Valid when it is all zeroes, which is what a
/// child finds.
struct Own {
    slice: AtomicPtr<Slice>,
    joining: Mutex<()>,
}

/// Where this process stands, as far as it can be told without a call of the driver's. Cheap.
#[inline]
pub(crate) fn standing() -> Standing {
    // Relaxed: the settings themselves are published by `SETTINGS`.
    match STAGE.load(Ordering::Relaxed) {
        FREE => Standing::Free,
        LIMITED => member().map_or_else(join, Standing::Member),
        REFUSED => Standing::Refused,
        _ => {
            read_settings();
            standing_now()
        }
    }
}

#[cold]
fn standing_now() -> Standing {
    match STAGE.load(Ordering::Relaxed) {
        LIMITED => member().map_or_else(join, Standing::Member),
        REFUSED => Standing::Refused,
        _ => Standing::Free,
    }
}

#[inline]
fn member() -> Option<&'static Slice> {
    let own = own()?;
    // Acquire: pairs with the store in `join`.
    let slice = own.slice.load(Ordering::Acquire);
    // SAFETY: null, or a slice that `join` leaked.
    unsafe { slice.as_ref() }
}

/// The slice, if this process has joined it. Nothing is done to join.
pub(crate) fn joined() -> Option<&'static Slice> {
    if STAGE.load(Ordering::Relaxed) == LIMITED { member() } else { None }
}

/// Reads the settings if that has not been done, and says whether they refuse GPU work.
pub(crate) fn is_refused() -> bool {
    if STAGE.load(Ordering::Relaxed) == UNREAD {
        read_settings();
    }
    STAGE.load(Ordering::Relaxed) == REFUSED
}

/// Whether libraries may look in their own scope first: nothing is limited, or the settings allow it.
pub(crate) fn leaves_deepbind() -> bool {
    let leaves = settings().is_some_and(|settings| settings.config.deepbind);
    leaves || STAGE.load(Ordering::Relaxed) == FREE
}

/// The settings, where there is a limit.
pub(crate) fn settings() -> Option<&'static Settings> {
    if STAGE.load(Ordering::Relaxed) == UNREAD {
        read_settings();
    }
    SETTINGS.get()
}

/// Whether a device's size is reported as the driver says it, whatever the quota is.
pub(crate) fn reports_device_total() -> bool {
    settings().is_some_and(|settings| settings.config.report_total == ReportTotal::Device)
}

/// Takes the process into its slice, if the driver is initialised.
#[cold]
fn join() -> Standing {
    shielded(join_now).unwrap_or(Standing::Refused)
}

fn join_now() -> Standing {
    let (Some(settings), Some(own)) = (SETTINGS.get(), own()) else { return Standing::Free };
    let _one_at_a_time = own.joining.lock();
    if let Some(slice) = member() {
        return Standing::Member(slice);
    }
    if STAGE.load(Ordering::Relaxed) == REFUSED {
        return Standing::Refused;
    }
    let mut found = match devices::find() {
        None => return Standing::Free,
        Some(Ok(found)) => found,
        Some(Err(unknown)) => {
            refuse(&unknown);
            return Standing::Refused;
        }
    };
    if let Some(hidden) = bypass::hidden() {
        refuse(&hidden);
        return Standing::Refused;
    }
    if settings.config.counts_on_bus()
        && let Err(unknown) = devices::number_by_bus(&mut found)
    {
        refuse(&unknown);
        return Standing::Refused;
    }
    let uuids: Vec<_> = found.iter().map(|device| device.uuid).collect();
    let ambiguous = settings.config.ambiguous(&uuids);
    if !ambiguous.is_empty() {
        ambiguous.iter().for_each(|malformed| refuse(malformed));
        return Standing::Refused;
    }
    let asked = devices::limits(&found, &settings.config);
    let (member, differences) = match Member::join(&settings.region, settings.trust, &asked) {
        Ok(joined) => joined,
        Err(error) => {
            refuse(&format_args!("gpuslice: {error}. GPU work is refused."));
            return Standing::Refused;
        }
    };
    for difference in differences {
        messages::say(LogLevel::Warn, &devices::Disagreement(difference));
    }
    let slice = Box::leak(Box::new(Slice::new(member, &found)));
    // Release: pairs with the load in `member`.
    own.slice.store(ptr::from_mut(slice), Ordering::Release);
    Standing::Member(slice)
}

/// Refuses GPU work from now on, before any was done.
fn refuse(why: &dyn Display) {
    messages::say(LogLevel::Error, why);
    STAGE.store(REFUSED, Ordering::Relaxed);
    close(|treatment| matches!(treatment, Treatment::Charge | Treatment::Gate));
}

/// Refuses memory from now on, because the slice has lost its region, and work where the slice has a share of time:
/// nobody could say any more how much the others use. What the process has it can use and give back. Said once, whoever
/// notices it.
pub(crate) fn lose(why: &RegionError) {
    if STAGE.swap(REFUSED, Ordering::Relaxed) == REFUSED {
        return;
    }
    let has_share = SETTINGS.get().is_some_and(|settings| settings.config.has_share());
    let what =
        if has_share { "New allocations and launches are refused." } else { "New allocations are refused." };
    messages::say(LogLevel::Error, &format_args!("gpuslice: {why}. {what}"));
    close(|treatment| match treatment {
        Treatment::Charge => true,
        Treatment::Gate => has_share,
        _ => false,
    });
}

/// The program has no memory left for what we have to keep count of. Needs none itself: any thread calls it in the middle
/// of an allocation.
#[cold]
pub(crate) fn run_out() {
    if STAGE.compare_exchange(LIMITED, REFUSED, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        messages::say_plainly(
            LogLevel::Error,
            "gpuslice: the process has no memory left to keep count in (RLIMIT_AS, or a limit of the container); raise \
             that limit and start it again. GPU work is refused.\n",
        );
        close(|treatment| matches!(treatment, Treatment::Charge | Treatment::Gate));
    }
}

/// Says once that the slice's file is gone, whichever thread notices it.
pub(crate) fn goes_on_without_file(removed: &RegionError) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        messages::say(LogLevel::Warn, &format_args!("gpuslice: {removed}."));
    }
}

/// From now on the slots of all calls of such a treatment lead to [`refused`].
fn close(is_meant: impl Fn(Treatment) -> bool) {
    let Some(target) = NonNull::new((refused as *mut core::ffi::c_void).cast()) else { return };
    for symbol in ALL.iter().filter(|symbol| is_meant(symbol.treatment())) {
        slot::set(*symbol, target);
    }
}

/// What stands behind the entries of refused calls.
extern "C" fn refused() -> Status {
    status::NOT_PERMITTED
}

#[cold]
fn read_settings() {
    if shielded(read_settings_now).is_none() {
        STAGE.store(REFUSED, Ordering::Relaxed);
    }
}

fn read_settings_now() {
    std::panic::set_hook(Box::new(|panic| {
        messages::say(LogLevel::Error, &format_args!("gpuslice: internal error, please report: {panic}"));
    }));
    let env = |name: &str| std::env::var_os(name).map(OsStringExt::into_vec);
    let operator = Operator::look(&env);
    match Config::from_sources(&env, &operator.files()) {
        Ok(mut config) => {
            config.warnings.extend(misspelt(&environment(), &operator.files()));
            settle(config);
        }
        Err(rejected) => {
            messages::set(rejected.log);
            rejected.warnings.iter().for_each(|warning| messages::say(warning.level(), warning));
            if STAGE.load(Ordering::Relaxed) == UNREAD {
                rejected.malformed.iter().for_each(|malformed| refuse(malformed));
            }
        }
    }
}

/// All variables of the environment whose names are text, as those of all settings are.
fn environment() -> Vec<(String, Vec<u8>)> {
    let variables = std::env::vars_os();
    variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_vec()))).collect()
}

fn settle(config: Config) {
    messages::set(config.log.clone());
    config.warnings.iter().for_each(|warning| messages::say(warning.level(), warning));
    if config.is_unlimited() {
        STAGE.store(FREE, Ordering::Relaxed);
        return;
    }
    let named = config.region.clone().or_else(mounted_region);
    let trust = if named.is_some() { Trust::AnyOwner } else { Trust::OwnerOnly };
    let region = named.unwrap_or_else(default_region);
    let _already = SETTINGS.set(Box::new(Settings { config, region, trust }));
    if !allocator::take(&(run_out as fn())) {
        refuse(
            &"gpuslice: the process has no address space for 4MiB (RLIMIT_AS); raise that limit. GPU work is refused.",
        );
        return;
    }
    // Another thread may have found out meanwhile that the limits cannot be enforced: that stays.
    let _kept = STAGE.compare_exchange(UNREAD, LIMITED, Ordering::Relaxed, Ordering::Relaxed);
}

/// The region in the folder that a node agent mounts into a container: who can write there may share the slice.
fn mounted_region() -> Option<PathBuf> {
    const FOLDER: &str = "/run/gpuslice/region";
    let folder = Path::new(FOLDER);
    folder.is_dir().then(|| folder.join("region"))
}

fn default_region() -> PathBuf {
    // SAFETY: always succeeds.
    let user = unsafe { libc::geteuid() };
    let container = std::fs::metadata("/proc/self/ns/mnt").map_or(0, |namespace| namespace.ino());
    names::usual(user, container)
}

/// The page of this process.
#[inline]
fn own() -> Option<&'static Own> {
    static PAGE: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let page = PAGE.get().or_else(|| Some(PAGE.get_or_init(|| map_page().unwrap_or(NonZeroUsize::MIN))))?;
    if page == NonZeroUsize::MIN {
        return None;
    }
    // SAFETY: a page of our own that is never unmapped, and all zeroes is a valid `Own`.
    unsafe { ptr::with_exposed_provenance::<Own>(page.get()).as_ref() }
}

/// A page that a forked child finds empty, by whatever call it was forked.
#[cold]
fn map_page() -> Option<NonZeroUsize> {
    const SIZE: usize = 4096;
    const { assert!(size_of::<Own>() <= SIZE) };
    // SAFETY: a new private mapping at an address of the kernel's choice.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    // SAFETY: advice about the page just mapped; on failure it is not used.
    if page == libc::MAP_FAILED || unsafe { libc::madvise(page, SIZE, libc::MADV_WIPEONFORK) } != 0 {
        refuse(
            &"gpuslice: the kernel gives no page that is emptied at a fork (Linux 4.14 has it). GPU work is refused.",
        );
        return None;
    }
    NonZeroUsize::new(page.expose_provenance())
}
