//! Allocator of the library, with a reserve for a program that has no memory left.
//!
//! A container's limit on address space (`ulimit -v`) makes `malloc` fail. A program may handle that failure, but Rust's
//! collections end the process. So if `malloc` fails, the block comes from a reserve. The reserve is address space that the
//! library maps when it reads the limits. It costs no memory until it is used. When a quarter of it is in use, the library
//! refuses GPU work, because it could soon not record that work any more. After that it allocates almost nothing.
//!
//! Blocks of the reserve have sizes of powers of two, and a freed block is used again. The reserve grows with the largest block
//! of the library, because a full table allocates a block of twice its size.
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
pub(crate) struct LibraryAllocator;

/// Bytes of the reserve before the limits are read. They are in the library's own zeroed memory.
const FIRST_BYTES: usize = 64 << 10;
/// Bytes of the reserve that is mapped when the limits are read.
const RESERVE_BYTES: usize = 4 << 20;
/// Size of the smallest block that makes the reserve grow.
const LARGE_BLOCK: usize = 512 << 10;
/// Number of blocks of the largest size for which the reserve has room. The next table is twice as large, and both tables exist
/// while the thread copies the entries.
const LARGEST_BLOCKS: usize = 4;
/// Largest number of parts of the reserve.
const RESERVE_PARTS: usize = 16;
/// Size of the smallest block. It has room for the address of the next free block.
const LEAST_BLOCK: usize = 32;
/// Number of block sizes.
const BLOCK_SIZES: usize = usize::BITS as usize;
/// Number of times that a thread tries the lock of the free blocks. A thread holds it for a few instructions. A forked child may
/// find it locked for ever.
const LOCK_TRIES: usize = 10_000;

/// A part of the reserve. A new block is the first free bytes behind the used bytes.
struct ReservePart {
    start: AtomicUsize,
    bytes: AtomicUsize,
    used: AtomicUsize,
}

/// Zeroed memory of the library itself, which exists without a call of the kernel.
#[repr(align(4096))]
struct ZeroedMemory(core::cell::UnsafeCell<[u8; FIRST_BYTES]>);

// SAFETY: `Sync` requires that threads do not access the same bytes at once: `ReservePart::cut` gives each block to one caller.
unsafe impl Sync for ZeroedMemory {}

static MEMORY: ZeroedMemory = ZeroedMemory(core::cell::UnsafeCell::new([0; FIRST_BYTES]));
static ALL: [ReservePart; RESERVE_PARTS] = [const { ReservePart::new() }; RESERVE_PARTS];
/// Number of parts, including the first part, which is [`MEMORY`].
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// True once the reserve has given out a block. Each free reads it.
static IS_USED: AtomicBool = AtomicBool::new(false);
/// Function that the allocator calls when the reserve is low. Empty until the limits are read, because the library records no
/// work before that.
static WHEN_LOW: OnceRef<'static, fn()> = OnceRef::new();
/// True while a thread changes the free blocks, or adds a part.
static IS_LOCKED: AtomicBool = AtomicBool::new(false);
/// Address of the first free block of each size; 0 for none.
static FREE: [AtomicUsize; BLOCK_SIZES] = [const { AtomicUsize::new(0) }; BLOCK_SIZES];

impl ReservePart {
    const fn new() -> Self {
        Self { start: AtomicUsize::new(0), bytes: AtomicUsize::new(0), used: AtomicUsize::new(0) }
    }

    /// Takes a new block behind the used bytes. Returns `None` if the part has no room.
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

fn parts() -> &'static [ReservePart] {
    if COUNT.load(Ordering::Acquire) == 0 {
        // All threads that run this at once write equal values.
        if let Some(first) = ALL.first() {
            first.start.store(MEMORY.0.get().expose_provenance(), Ordering::Release);
            first.bytes.store(FIRST_BYTES, Ordering::Release);
        }
        let _other = COUNT.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
    }
    ALL.get(..COUNT.load(Ordering::Acquire)).unwrap_or_default()
}

/// Runs a step under the lock of the reserve. Returns `None` if another thread does not release the lock.
fn alone<T>(step: impl FnOnce() -> T) -> Option<T> {
    for _ in 0..LOCK_TRIES {
        if !IS_LOCKED.swap(true, Ordering::Acquire) {
            let done = step();
            IS_LOCKED.store(false, Ordering::Release);
            return Some(done);
        }
        core::hint::spin_loop();
    }
    None
}

/// Returns the size of the block for a request, and its place among the sizes.
fn size_of_block(layout: Layout) -> Option<(usize, usize)> {
    let bytes = layout.size().max(LEAST_BLOCK).checked_next_power_of_two()?;
    Some((bytes, usize::try_from(bytes.trailing_zeros()).ok()?))
}

/// Maps the reserve, once, when the limits are read. The allocator calls `when_low` when a quarter of the reserve is in use, and
/// when it cannot grow. The call may come from any thread, within an allocation, and several times. Returns false if there is no
/// address space for the reserve.
pub(crate) fn take(when_low: &'static fn()) -> bool {
    let _already = WHEN_LOW.set(when_low);
    grow_to(RESERVE_BYTES)
}

/// Maps a part of `bytes` bytes unless a part is that large. Returns false if there is no address space, if there are too many
/// parts, or if another thread does not release the lock.
fn grow_to(bytes: usize) -> bool {
    let has = |part: &ReservePart| part.bytes.load(Ordering::Acquire) >= bytes;
    if parts().iter().any(has) {
        return true;
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: `mmap` requires that it replaces no mapping in use: without an address the kernel chooses a free range.
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
        // SAFETY: `munmap` requires a range that no code uses: it is the mapping made above, and no other thread knows it.
        unsafe { libc::munmap(start, bytes) };
        return false;
    }
    true
}

/// Returns a block of the reserve; null if it has none. Its content is undefined.
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
            // SAFETY: a read requires a valid, aligned and initialised word: `give_back` wrote the next address to this free
            // block.
            let next = unsafe { ptr::with_exposed_provenance::<usize>(first).read() };
            head.store(next, Ordering::Relaxed);
            Some(first)
        });
        let align = layout.align().max(LEAST_BLOCK);
        reused.flatten().or_else(|| parts().iter().find_map(|part| part.cut(bytes, align)))
    });
    if let Some(when_low) = WHEN_LOW.get()
        && is_low()
    {
        when_low();
    }
    ptr::with_exposed_provenance_mut(found.unwrap_or(0))
}

/// Returns true if a quarter of the mapped reserve is in use, or if no reserve is mapped.
fn is_low() -> bool {
    let sum = |of: fn(&ReservePart) -> &AtomicUsize| -> usize {
        parts().iter().skip(1).map(|part| of(part).load(Ordering::Relaxed)).fold(0, usize::saturating_add)
    };
    sum(|part| &part.used) >= sum(|part| &part.bytes) / 4
}

/// Gives a block back to the reserve. Returns false if the block is not of the reserve.
#[cold]
fn give_back(address: usize, layout: Layout) -> bool {
    if !parts().iter().any(|part| part.contains(address)) {
        return false;
    }
    let Some((_, place)) = size_of_block(layout) else { return true };
    let Some(head) = FREE.get(place) else { return true };
    // If another thread never releases the lock, the block is lost.
    let _given = alone(|| {
        // SAFETY: a write requires a valid and aligned place: the caller gave the block up, and no block is smaller than
        // `LEAST_BLOCK`.
        unsafe { ptr::with_exposed_provenance_mut::<usize>(address).write(head.load(Ordering::Relaxed)) };
        head.store(address, Ordering::Relaxed);
    });
    true
}

/// Makes the reserve grow after a large block, because the next block of its table is larger.
#[cold]
fn expect_more(bytes: usize) {
    if let Some(when_low) = WHEN_LOW.get()
        && !grow_to(bytes.saturating_mul(LARGEST_BLOCKS))
    {
        when_low();
    }
}

// SAFETY: `GlobalAlloc` requires blocks that are aligned, long enough, and used by one caller each. The system's allocator gives
// such blocks. `ReservePart::cut` gives aligned blocks of sufficient length, each once. They are reused only after they were
// given back. No function here unwinds.
unsafe impl GlobalAlloc for LibraryAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `System.alloc` requires a layout that is not empty, and the caller of this `alloc` keeps the same contract.
        let address = unsafe { System.alloc(layout) };
        if address.is_null() {
            return block(layout);
        }
        if layout.size() >= LARGE_BLOCK {
            expect_more(layout.size());
        }
        address
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `System.alloc_zeroed` requires a layout that is not empty, and the caller keeps the same contract.
        let address = unsafe { System.alloc_zeroed(layout) };
        if address.is_null() {
            let address = block(layout);
            if !address.is_null() {
                // SAFETY: `write_bytes` requires room for `layout.size()` bytes: `block` returns no smaller block.
                unsafe { address.write_bytes(0, layout.size()) };
            }
            return address;
        }
        if layout.size() >= LARGE_BLOCK {
            expect_more(layout.size());
        }
        address
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        if !IS_USED.load(Ordering::Relaxed) || !give_back(address.addr(), layout) {
            // SAFETY: `dealloc` requires a block of the same allocator: a block outside the reserve is of the system's allocator.
            unsafe { System.dealloc(address, layout) };
        }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let is_ours =
            IS_USED.load(Ordering::Relaxed) && parts().iter().any(|part| part.contains(address.addr()));
        if !is_ours {
            // SAFETY: `System.realloc` requires a block of its own: this block is outside the reserve. The caller keeps the rest
            // of the contract.
            let moved = unsafe { System.realloc(address, layout, bytes) };
            if !moved.is_null() {
                if bytes >= LARGE_BLOCK {
                    expect_more(bytes);
                }
                return moved;
            }
        }
        // The block moves. A block of the system's allocator that cannot grow moves to the reserve. A block of the reserve moves
        // to any new block.
        let Ok(larger) = Layout::from_size_align(bytes, layout.align()) else { return ptr::null_mut() };
        // SAFETY: `alloc` requires a layout that is not empty: by the contract of `realloc`, `bytes` is not 0.
        let moved = if is_ours { unsafe { self.alloc(larger) } } else { block(larger) };
        if !moved.is_null() {
            // SAFETY: `copy_nonoverlapping` requires two ranges that are valid and do not overlap. They are two blocks, and each
            // has room for the smaller of the two sizes.
            unsafe { ptr::copy_nonoverlapping(address, moved, layout.size().min(bytes)) };
            // SAFETY: `dealloc` requires a block that was allocated with `layout`: by the contract of `realloc`, `address` is
            // one.
            unsafe { self.dealloc(address, layout) };
        }
        moved
    }
}
