//! The library's allocator: a reserve for a program that has no memory left.
//!
//! A container's limit on address space (`ulimit -v`) makes `malloc` fail. A program may be ready for that, but Rust's
//! collections end the process. So a block for which `malloc` has no room comes from a reserve. The reserve is address space
//! that is mapped when the limits are read, and that costs no memory until it is used. When a quarter of it is in use, GPU work
//! is refused, because the library could not keep count of it for much longer. From then on the library allocates almost
//! nothing.
//!
//! Blocks of the reserve have sizes of powers of two, and a freed block is used again. The reserve grows with the largest block
//! of the library, because a full table asks for twice its size.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::alloc::{GlobalAlloc, Layout};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use once_cell::race::OnceRef;
use std::alloc::System;

/// The library's allocator.
#[derive(Debug)]
pub(crate) struct Guest;

/// The reserve before the limits are read, in bytes. It lies in the library's own zeroed memory.
const FIRST: usize = 64 << 10;
/// The reserve that is mapped when they are read, in bytes.
const USUAL: usize = 4 << 20;
/// Blocks from this size on make the reserve grow.
const LARGE: usize = 512 << 10;
/// The reserve has room for this many of the largest block. The next table is twice as large, and both exist while it is
/// filled.
const GROWTH: usize = 4;
/// Parts of the reserve.
const PARTS: usize = 16;
/// The least block, which has room for the address of the next free one.
const LEAST: usize = 32;
/// Sizes of blocks.
const SIZES: usize = usize::BITS as usize;
/// How often the lock of free blocks is tried. It is held for some instructions. A forked child may find it held for good.
const TRIES: usize = 10_000;

/// A part of the reserve. Blocks are cut off its used end.
struct Part {
    start: AtomicUsize,
    bytes: AtomicUsize,
    used: AtomicUsize,
}

/// Zeroed memory of the library's own, which needs no call.
#[repr(align(4096))]
struct Memory(core::cell::UnsafeCell<[u8; FIRST]>);

// SAFETY: used by address alone, in blocks that `Part::cut` gives to one caller each.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(core::cell::UnsafeCell::new([0; FIRST]));
static ALL: [Part; PARTS] = [const { Part::new() }; PARTS];
/// Parts that there are, the first one included.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Whether any block was ever given out: each free asks.
static IS_USED: AtomicBool = AtomicBool::new(false);
/// Called when the reserve is low. Empty until the limits are read: before that there is nothing to keep count of.
static WHEN_LOW: OnceRef<'static, fn()> = OnceRef::new();
/// Whether a thread changes the free blocks, or adds a part.
static IS_LOCKED: AtomicBool = AtomicBool::new(false);
/// The first free block of each size; 0 for none.
static FREE: [AtomicUsize; SIZES] = [const { AtomicUsize::new(0) }; SIZES];

impl Part {
    const fn new() -> Self {
        Self { start: AtomicUsize::new(0), bytes: AtomicUsize::new(0), used: AtomicUsize::new(0) }
    }

    /// Cuts off a block; none where there is no room.
    fn cut(&self, bytes: usize, align: usize) -> Option<usize> {
        let (start, all) = (self.start.load(Ordering::Acquire), self.bytes.load(Ordering::Acquire));
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let from = start.checked_add(used)?.checked_next_multiple_of(align)?.checked_sub(start)?;
            let to = from.checked_add(bytes).filter(|to| *to <= all)?;
            match self.used.compare_exchange_weak(used, to, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return start.checked_add(from),
                Err(now) => used = now,
            }
        }
    }

    fn contains(&self, address: usize) -> bool {
        let start = self.start.load(Ordering::Acquire);
        address.checked_sub(start).is_some_and(|offset| offset < self.bytes.load(Ordering::Acquire))
    }
}

fn parts() -> &'static [Part] {
    if COUNT.load(Ordering::Acquire) == 0 {
        // Threads that race here write the same.
        if let Some(first) = ALL.first() {
            first.start.store(MEMORY.0.get().expose_provenance(), Ordering::Release);
            first.bytes.store(FIRST, Ordering::Release);
        }
        let _other = COUNT.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
    }
    ALL.get(..COUNT.load(Ordering::Acquire)).unwrap_or_default()
}

/// Runs a step under the lock of the reserve. None where another thread does not release it.
fn alone<T>(step: impl FnOnce() -> T) -> Option<T> {
    for _ in 0..TRIES {
        if !IS_LOCKED.swap(true, Ordering::Acquire) {
            let done = step();
            IS_LOCKED.store(false, Ordering::Release);
            return Some(done);
        }
        core::hint::spin_loop();
    }
    None
}

/// The size of the block for a request, and its place among the sizes.
fn size_of_block(layout: Layout) -> Option<(usize, usize)> {
    let bytes = layout.size().max(LEAST).checked_next_power_of_two()?;
    Some((bytes, usize::try_from(bytes.trailing_zeros()).ok()?))
}

/// Maps the reserve, once, when the limits are read. `when_low` is called when a quarter of it is in use, and when it cannot
/// grow: by any thread, within an allocation, perhaps several times. False: there is no address space for the reserve.
pub(crate) fn take(when_low: &'static fn()) -> bool {
    let _already = WHEN_LOW.set(when_low);
    grow_to(USUAL)
}

/// Maps a part of `bytes` bytes unless there is one as large.
fn grow_to(bytes: usize) -> bool {
    let has = |part: &Part| part.bytes.load(Ordering::Acquire) >= bytes;
    if parts().iter().any(has) {
        return true;
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new private mapping at an address of the kernel's choice.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return false;
    }
    let add = || {
        let count = COUNT.load(Ordering::Acquire);
        let part = ALL.get(count)?;
        part.start.store(start.expose_provenance(), Ordering::Release);
        part.bytes.store(bytes, Ordering::Release);
        COUNT.store(count.saturating_add(1), Ordering::Release);
        Some(())
    };
    if alone(add).flatten().is_none() {
        // SAFETY: mapped above, and nobody has seen it.
        unsafe { libc::munmap(start, bytes) };
        return false;
    }
    true
}

/// A block of the reserve; null where it has none. Its content is anything.
#[cold]
fn block(layout: Layout) -> *mut u8 {
    IS_USED.store(true, Ordering::Relaxed);
    let found = size_of_block(layout).and_then(|(bytes, place)| {
        let head = FREE.get(place)?;
        let reused = alone(|| {
            let first = head.load(Ordering::Relaxed);
            if first == 0 || !first.is_multiple_of(layout.align()) {
                return None;
            }
            // SAFETY: a free block holds the address of the next one, by `give_back`.
            let next = unsafe { ptr::with_exposed_provenance::<usize>(first).read() };
            head.store(next, Ordering::Relaxed);
            Some(first)
        });
        let align = layout.align().max(LEAST);
        reused.flatten().or_else(|| parts().iter().find_map(|part| part.cut(bytes, align)))
    });
    if let Some(when_low) = WHEN_LOW.get()
        && is_low()
    {
        when_low();
    }
    ptr::with_exposed_provenance_mut(found.unwrap_or(0))
}

/// Returns true if a quarter of the reserve was used, or all of what there is for the time before the limits are read.
fn is_low() -> bool {
    let sum = |of: fn(&Part) -> &AtomicUsize| -> usize {
        parts().iter().skip(1).map(|part| of(part).load(Ordering::Relaxed)).fold(0, usize::saturating_add)
    };
    sum(|part| &part.used) >= sum(|part| &part.bytes) / 4
}

/// Gives a block back, if it is one of the reserve.
#[cold]
fn give_back(address: usize, layout: Layout) -> bool {
    if !parts().iter().any(|part| part.contains(address)) {
        return false;
    }
    let Some((_, place)) = size_of_block(layout) else { return true };
    let Some(head) = FREE.get(place) else { return true };
    // Where another thread does not come to an end the block is lost.
    let _given = alone(|| {
        // SAFETY: the block is nobody's any more, and has room for an address by `LEAST`.
        unsafe { ptr::with_exposed_provenance_mut::<usize>(address).write(head.load(Ordering::Relaxed)) };
        head.store(address, Ordering::Relaxed);
    });
    true
}

/// Makes the reserve grow after a large block: the next block of its kind is larger.
#[cold]
fn expect_more(bytes: usize) {
    if let Some(when_low) = WHEN_LOW.get()
        && !grow_to(bytes.saturating_mul(GROWTH))
    {
        when_low();
    }
}

// SAFETY: blocks come from the system's allocator or from the reserve. Those of the reserve are cut off once, aligned and as
// long as asked for, and are in use by one caller until they are given back. Nothing here unwinds.
unsafe impl GlobalAlloc for Guest {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's own layout.
        let address = unsafe { System.alloc(layout) };
        if address.is_null() {
            return block(layout);
        }
        if layout.size() >= LARGE {
            expect_more(layout.size());
        }
        address
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's own layout.
        let address = unsafe { System.alloc_zeroed(layout) };
        if address.is_null() {
            let address = block(layout);
            if !address.is_null() {
                // SAFETY: the block is as long as the layout.
                unsafe { address.write_bytes(0, layout.size()) };
            }
            return address;
        }
        if layout.size() >= LARGE {
            expect_more(layout.size());
        }
        address
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        if !IS_USED.load(Ordering::Relaxed) || !give_back(address.addr(), layout) {
            // SAFETY: not of the reserve, so of the system's.
            unsafe { System.dealloc(address, layout) };
        }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let is_ours =
            IS_USED.load(Ordering::Relaxed) && parts().iter().any(|part| part.contains(address.addr()));
        if !is_ours {
            // SAFETY: of the system's, with the caller's own layout.
            let moved = unsafe { System.realloc(address, layout, bytes) };
            if !moved.is_null() {
                if bytes >= LARGE {
                    expect_more(bytes);
                }
                return moved;
            }
        }
        let Ok(larger) = Layout::from_size_align(bytes, layout.align()) else { return ptr::null_mut() };
        // SAFETY: a layout of more than nothing, as the caller's.
        let moved = if is_ours { unsafe { self.alloc(larger) } } else { block(larger) };
        if !moved.is_null() {
            // SAFETY: both blocks are at least so long, and are two.
            unsafe { ptr::copy_nonoverlapping(address, moved, layout.size().min(bytes)) };
            // SAFETY: the caller's own block, which it gives up.
            unsafe { self.dealloc(address, layout) };
        }
        moved
    }
}
