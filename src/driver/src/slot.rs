//! Slots: the address of the real function behind each entry.
//!
//! Each symbol has one word, which is empty until the first use. The library loads no driver. It looks for the function
//! in the libraries that the program has loaded, after gpuslice in the loader's order. Another preloaded library between
//! gpuslice and the driver therefore keeps its place. If a symbol is absent, no other form of it takes its place.
//!
//! The search reads the symbol tables of the libraries. The loader's own functions would clear a pending `dlerror` of
//! the program.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::elf::Image;
use crate::notes::NOTE;
use crate::table::{ALL, Api, COUNT, Symbol};
use core::ffi::{CStr, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use parking_lot::Mutex;

/// The address of each real function, by [`Symbol::index`]; null if it was not looked up or not found.
pub static SLOTS: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(ptr::null_mut()) }; COUNT];

/// The target of each call that no hook handles, by [`Symbol::index`]; null if it was not looked up.
pub static JUMP_TARGETS: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(ptr::null_mut()) }; COUNT];

/// `DT_SONAME` of the driver's two libraries.
const SONAMES: [&CStr; 2] = [c"libcuda.so.1", c"libnvidia-ml.so.1"];

/// An address in each driver library that the program has loaded into another namespace, where the usual search does
/// not find it.
static ELSEWHERE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Returns the real function of a symbol; `None` if no driver is loaded or the driver lacks it.
///
/// `F` is the row's function type: `crate::functions::name`.
#[inline]
#[must_use]
pub fn real<F: Copy>(symbol: Symbol) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    let address = address(symbol)?;
    // SAFETY: `transmute_copy` needs two types of the same size, which the assertion above checks. `F` is the alias of the
    // symbol's row, and the type of that row was compared with the header.
    Some(unsafe { core::mem::transmute_copy(&address) })
}

/// Returns the address of the real function of a symbol.
#[inline]
#[must_use]
pub fn address(symbol: Symbol) -> Option<NonNull<c_void>> {
    // Relaxed: the address publishes no other memory; the function was loaded before.
    let known = SLOTS.get(symbol.index())?.load(Ordering::Relaxed);
    NonNull::new(known).or_else(|| find(symbol))
}

/// Directs all calls of the symbol to `target` from now on: calls of the library and of the program.
pub fn set(symbol: Symbol, target: NonNull<c_void>) {
    for words in [&SLOTS, &JUMP_TARGETS] {
        if let Some(word) = words.get(symbol.index()) {
            word.store(target.as_ptr(), Ordering::Relaxed);
        }
    }
}

/// Directs the program's calls of the symbol to `target` until [`forget_jump_targets`].
pub fn set_jump_target(symbol: Symbol, target: NonNull<c_void>) {
    if let Some(word) = JUMP_TARGETS.get(symbol.index()) {
        word.store(target.as_ptr(), Ordering::Relaxed);
    }
}

/// Makes the program's next call of each function of an API look it up again.
pub fn forget_jump_targets(api: Api) {
    for symbol in ALL.iter().filter(|symbol| symbol.api() == api) {
        if let Some(word) = JUMP_TARGETS.get(symbol.index()) {
            word.store(ptr::null_mut(), Ordering::Relaxed);
        }
    }
}

/// Returns true if a library of this API is loaded.
#[must_use]
pub fn is_driver_loaded(api: Api) -> bool {
    ALL.iter().any(|symbol| symbol.api() == api && symbol.is_hooked() && address(*symbol).is_some())
}

/// Returns the driver library that contains an address, by its `DT_SONAME`.
#[must_use]
pub fn driver_at(address: *const c_void) -> Option<(Api, Image)> {
    let image = Image::containing(address)?;
    let soname = image.soname()?;
    match SONAMES.iter().position(|name| *name == soname)? {
        0 => Some((Api::Cuda, image)),
        _ => Some((Api::Nvml, image)),
    }
}

/// Records a driver library that the usual search may not find.
pub fn remember(api: Api, address: *const c_void) {
    if let Some(place) = ELSEWHERE.get(api as usize) {
        place.store(address.expose_provenance(), Ordering::Relaxed);
    }
}

#[cold]
fn find(symbol: Symbol) -> Option<NonNull<c_void>> {
    let mut name = [0_u8; 128];
    name.get_mut(..symbol.name().len())?.copy_from_slice(symbol.name().as_bytes());
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    let found = behind_us(symbol.api(), name).or_else(|| elsewhere(symbol.api(), name))?;
    let found = NonNull::new(found.cast_mut())?;
    SLOTS.get(symbol.index())?.store(found.as_ptr(), Ordering::Relaxed);
    Some(found)
}

fn behind_us(api: Api, name: &CStr) -> Option<*const c_void> {
    chain(api).into_iter().flatten().find_map(|image| image.symbol(name))
}

fn elsewhere(api: Api, name: &CStr) -> Option<*const c_void> {
    let address = ELSEWHERE.get(api as usize)?.load(Ordering::Relaxed);
    if address == 0 {
        return None;
    }
    Image::containing(ptr::with_exposed_provenance(address))?.symbol(name)
}

/// The most libraries after gpuslice that may define driver functions: other preloaded libraries, and the driver.
const LINKS: usize = 8;

type Chain = [Option<Image>; LINKS];

/// The chain of each API with the [`Image::generation`] in which it was made.
static CHAINS: Mutex<[((u64, u64), Chain); 2]> = Mutex::new([((0, 0), [None; LINKS]); 2]);

/// Returns the libraries after gpuslice that define functions of this API, in the loader's order.
///
/// The chain is kept until the program loads or unloads a library. The thread only tries the lock: in a child forked while
/// another thread held the lock, a wait would never end.
fn chain(api: Api) -> Chain {
    let generation = Image::generation();
    if let Some(kept) = CHAINS.try_lock().and_then(|chains| chains.get(api as usize).copied())
        && kept.0 == generation
    {
        return kept.1;
    }
    let links = make_chain(api);
    if let Some(mut chains) = CHAINS.try_lock()
        && let Some(kept) = chains.get_mut(api as usize)
    {
        *kept = (generation, links);
    }
    links
}

/// Makes the chain. It leaves out other copies of gpuslice, because each would charge a call once more.
fn make_chain(api: Api) -> Chain {
    let mut links = [None; LINKS];
    let Some(ours) = Image::containing(SLOTS.as_ptr().cast()) else { return links };
    let mut free = links.iter_mut();
    Image::each_behind(&ours, |image| {
        if defines(&image, api)
            && !image.has_note(NOTE)
            && let Some(link) = free.next()
        {
            *link = Some(image);
        }
    });
    links
}

/// Returns true if a library belongs to the chain. It is the driver, or it defines one of the functions that interposers
/// usually define.
fn defines(image: &Image, api: Api) -> bool {
    const TELLING: [&[&CStr]; 2] = [
        &[c"cuInit", c"cuMemAlloc_v2", c"cuLaunchKernel", c"cuGetProcAddress", c"cuGetProcAddress_v2"],
        &[c"nvmlInit_v2", c"nvmlInit", c"nvmlDeviceGetMemoryInfo", c"nvmlDeviceGetMemoryInfo_v2"],
    ];
    let names = TELLING.get(api as usize).copied().unwrap_or_default();
    names.iter().any(|name| image.symbol(name).is_some())
}
