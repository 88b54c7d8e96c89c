//! Device addresses of this process, and the bytes behind them.
//!
//! Device addresses are a reserved range that nobody may read or write. So a program that uses a device pointer as a host pointer
//! crashes, as on a real machine. The bytes are in an anonymous file that simgpu maps a second time, at addresses that it can
//! read and write. A page of the file exists only after a write to it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use parking_lot::Mutex;

use crate::hardware::allocation_sizes::{ALIGNMENT, PAGE};

/// Sizes of the reserved range, the largest first. A limit of the process may forbid the larger ones.
const SIZES: [u64; 5] = [4 << 40, 1 << 40, 64 << 30, 8 << 30, 1 << 30];
/// Sizes of the range below 4 GiB, which the functions of the first generation use. The largest is first.
const LOW_SIZES: [u64; 3] = [1 << 30, 512 << 20, 128 << 20];

/// Free ranges of addresses.
#[derive(Debug, Default)]
pub(crate) struct Space {
    by_address: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl Space {
    pub(crate) fn new(start: u64, size: u64) -> Self {
        let mut space = Self::default();
        space.insert(start, size);
        space
    }

    fn insert(&mut self, start: u64, size: u64) {
        if size > 0 {
            self.by_address.insert(start, size);
            self.by_size.insert((size, start));
        }
    }

    fn remove(&mut self, start: u64, size: u64) {
        self.by_address.remove(&start);
        self.by_size.remove(&(size, start));
    }

    /// Takes a part of the smallest free range that fits, and returns its start. `alignment` is a power of two.
    /// `alignment` is a power of two.
    pub(crate) fn take(&mut self, size: u64, alignment: u64) -> Option<u64> {
        let fits = |&&(length, start): &&(u64, u64)| {
            let aligned = start.checked_next_multiple_of(alignment);
            aligned.is_some_and(|aligned| aligned - start <= length && length - (aligned - start) >= size)
        };
        let &(_, start) = self.by_size.range((size, 0)..).find(fits)?;
        let aligned = start.checked_next_multiple_of(alignment)?;
        self.take_at(aligned, size).then_some(aligned)
    }

    /// Takes exactly this range if it is free, and returns true if it was.
    pub(crate) fn take_at(&mut self, at: u64, size: u64) -> bool {
        let Some((&start, &length)) = self.by_address.range(..=at).next_back() else { return false };
        let (Some(end), limit) = (at.checked_add(size), start + length) else { return false };
        if end > limit || size == 0 {
            return false;
        }
        self.remove(start, length);
        self.insert(start, at - start);
        self.insert(end, limit - end);
        true
    }

    /// Makes a range free again, and joins it with free neighbours.
    pub(crate) fn give(&mut self, start: u64, size: u64) {
        let (mut start, mut size) = (start, size);
        if let Some((&before, &length)) = self.by_address.range(..start).next_back()
            && before + length == start
        {
            self.remove(before, length);
            (start, size) = (before, size + length);
        }
        if let Some((&after, &length)) = self.by_address.range(start..).next()
            && start + size == after
        {
            self.remove(after, length);
            size += length;
        }
        self.insert(start, size);
    }
}

/// The device addresses of this process, and the bytes behind them.
#[derive(Debug)]
pub(crate) struct Arena {
    base: u64,
    window: u64,
    size: u64,
    file: OwnedFd,
    space: Mutex<Space>,
    low: Mutex<Option<Space>>,
}

/// Reserves addresses that nobody may read or write, and returns the first one.
fn reserve(size: u64, extra: i32) -> Option<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | extra;
    let length = usize::try_from(size).ok()?;
    // SAFETY: without `MAP_FIXED` the kernel chooses a free address, so the mapping replaces no other.
    let base = unsafe { libc::mmap(core::ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
    (base != libc::MAP_FAILED).then(|| base.addr() as u64)
}

fn at<T>(address: u64) -> *mut T {
    core::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}

impl Arena {
    /// Reserves the largest range that the process may have. Returns `None` if it may have none.
    pub(crate) fn new() -> Option<Self> {
        SIZES.into_iter().find_map(Self::of_size)
    }

    /// Makes an arena with a range of this size. Returns `None` if a step fails. simgpu reads and writes the bytes through the
    /// window, a mapping whose address the program does not know. The range of device addresses has the same size.
    fn of_size(size: u64) -> Option<Self> {
        let length = usize::try_from(size).ok()?;
        // SAFETY: `memfd_create` needs a zero-terminated name: the literal is one.
        let file = unsafe { libc::memfd_create(c"simgpu".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return None;
        }
        // SAFETY: `from_raw_fd` needs an open descriptor without another owner: it was made above.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        // SAFETY: `ftruncate` needs an open descriptor: `file` owns one.
        if unsafe { libc::ftruncate(file.as_raw_fd(), i64::try_from(size).ok()?) } != 0 {
            return None;
        }
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: without `MAP_FIXED` the kernel chooses a free address, so the mapping replaces no other.
        let window = unsafe { libc::mmap(core::ptr::null_mut(), length, rights, flags, file.as_raw_fd(), 0) };
        if window == libc::MAP_FAILED {
            return None;
        }
        // The simulation does not continue in a forked child, and a core file does not need the bytes.
        for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
            // SAFETY: `madvise` needs mapped pages: `window` was mapped above with `length` bytes.
            unsafe { libc::madvise(window, length, advice) };
        }
        let Some(base) = reserve(size, 0) else {
            // SAFETY: `munmap` needs a mapping without users: it was made above, and no other code knows its address.
            unsafe { libc::munmap(window, length) };
            return None;
        };
        let base = base.next_multiple_of(PAGE);
        let space = Mutex::new(Space::new(base, size - PAGE));
        let window = window.expose_provenance() as u64;
        Some(Self { base, window, size, file, space, low: Mutex::new(None) })
    }

    /// Takes device addresses with bytes behind them, and returns the first one.
    pub(crate) fn take(&self, size: u64, alignment: u64) -> Option<u64> {
        let size = size.checked_next_multiple_of(ALIGNMENT)?;
        self.space.lock().take(size, alignment.max(ALIGNMENT))
    }

    /// Takes exactly these addresses if they are free, and returns true if they were.
    pub(crate) fn take_at(&self, address: u64, size: u64) -> bool {
        self.space.lock().take_at(address, size)
    }

    /// Gives addresses back. The whole pages of memory behind them return to the kernel.
    pub(crate) fn give(&self, address: u64, size: u64) {
        let size = size.next_multiple_of(ALIGNMENT);
        let start = address.next_multiple_of(PAGE);
        let end = (address + size) & !(PAGE - 1);
        if start < end
            && let Ok(length) = usize::try_from(end - start)
        {
            // SAFETY: `madvise` needs mapped whole pages: these lie inside the window, and no allocation has them any more.
            unsafe { libc::madvise(self.host(start).cast(), length, libc::MADV_REMOVE) };
        }
        self.space.lock().give(address, size);
    }

    /// Takes addresses below 4 GiB, and returns the first one. They have no bytes of their own: each stands for a
    /// device address of the normal range.
    pub(crate) fn take_low(&self, size: u64, alignment: u64) -> Option<u64> {
        let size = size.checked_next_multiple_of(ALIGNMENT)?;
        let mut low = self.low.lock();
        if low.is_none() {
            let reserved = |size: u64| reserve(size, libc::MAP_32BIT).map(|start| Space::new(start, size));
            *low = LOW_SIZES.into_iter().find_map(reserved);
        }
        low.as_mut()?.take(size, alignment.max(ALIGNMENT))
    }

    /// Gives addresses below 4 GiB back.
    pub(crate) fn give_low(&self, address: u64, size: u64) {
        if let Some(low) = self.low.lock().as_mut() {
            low.give(address, size.next_multiple_of(ALIGNMENT));
        }
    }

    /// Returns the host address of the bytes of a device address.
    pub(crate) fn host(&self, address: u64) -> *mut u8 {
        at(self.window + address.saturating_sub(self.base).min(self.size - 1))
    }

    /// Maps whole pages of a file behind device addresses. `offset` is the place of the first page in the file.
    pub(crate) fn put_file(&self, address: u64, size: u64, file: &OwnedFd, offset: u64) -> bool {
        let (Ok(length), Ok(offset)) = (usize::try_from(size), i64::try_from(offset)) else { return false };
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let place = self.host(address).cast();
        // SAFETY: `MAP_FIXED` replaces the mapping: these are whole pages of the window, and the caller took their addresses.
        let mapped = unsafe { libc::mmap(place, length, rights, flags, file.as_raw_fd(), offset) };
        mapped != libc::MAP_FAILED
    }

    /// Gives addresses back behind which [`Self::put_file`] has mapped a file, and maps the arena's own pages there again. If the
    /// kernel refuses that, the addresses stay taken: [`Self::give`] would remove the pages of the file.
    pub(crate) fn give_with_file(&self, address: u64, size: u64) {
        if self.put_file(address, size, &self.file, address - self.base) {
            self.give(address, size);
        }
    }

    /// Returns the descriptor of the arena's file, and the offset of a device address in the file.
    pub(crate) fn file(&self, address: u64) -> (i32, u64) {
        (self.file.as_raw_fd(), address.saturating_sub(self.base))
    }

    /// Lets the program read and write whole pages of device addresses itself, as it may do with managed memory.
    pub(crate) fn expose(&self, address: u64, size: u64) -> bool {
        let Ok(length) = usize::try_from(size.next_multiple_of(PAGE)) else { return false };
        let Ok(offset) = i64::try_from(address - self.base) else { return false };
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: `MAP_FIXED` replaces the mapping: these are whole pages of the reserved range, which the caller got
        // from `take`.
        let mapped = unsafe { libc::mmap(at(address), length, rights, flags, self.file.as_raw_fd(), offset) };
        mapped != libc::MAP_FAILED
    }

    /// Ends the access of the program to pages that [`Self::expose`] opened.
    pub(crate) fn hide(&self, address: u64, size: u64) {
        let Ok(length) = usize::try_from(size.next_multiple_of(PAGE)) else { return };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: `MAP_FIXED` replaces the mapping: these are whole pages of the reserved range, which the caller got
        // from `take`.
        unsafe { libc::mmap(at(address), length, libc::PROT_NONE, flags, -1, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returned_pieces_can_be_taken_as_a_whole_again() {
        let mut space = Space::new(4096, 4096);
        let parts: Vec<u64> = (0..8).map(|_| space.take(512, 512).unwrap()).collect();
        assert_eq!(space.take(512, 512), None);
        for part in [1, 0, 7, 3, 2, 5, 4, 6].map(|index| parts[index]) {
            space.give(part, 512);
        }
        assert_eq!(space.take(4096, 512), Some(4096));
    }

    #[test]
    fn an_alignment_is_kept_and_costs_nothing() {
        let mut space = Space::new(512, 1 << 20);
        assert_eq!(space.take(4096, 65536), Some(65536));
        assert_eq!(space.take(512, 512), Some(512));
        assert!(!space.take_at(65536, 512));
        assert!(space.take_at(1024, 512));
    }

    #[test]
    fn the_smallest_free_range_that_fits_is_taken() {
        let mut space = Space::new(0, 1 << 20);
        let first = space.take(1024, 512).unwrap();
        let _second = space.take(512, 512).unwrap();
        space.give(first, 1024);
        assert_eq!(space.take(1024, 512), Some(first));
    }

    #[test]
    fn bytes_written_behind_an_address_are_read_back_and_gone_after_it_is_given_back() {
        let arena = Arena::new().unwrap();
        let address = arena.take(1 << 20, ALIGNMENT).unwrap();
        // SAFETY: `write` needs mapped, writable memory: the byte lies in the MiB that `take` has returned, inside the window.
        unsafe { arena.host(address + PAGE).write(7) };
        // SAFETY: `read` needs an initialised byte: the line above has written it.
        assert_eq!(unsafe { arena.host(address + PAGE).read() }, 7);
        arena.give(address, 1 << 20);
        // SAFETY: `read` needs mapped, initialised memory: the window stays mapped after `give`, and its pages read as zeroes.
        assert_eq!(unsafe { arena.host(address + PAGE).read() }, 0);
    }

    #[test]
    fn addresses_of_the_first_generation_fit_into_32_bits() {
        let arena = Arena::new().unwrap();
        let address = arena.take_low(1000, ALIGNMENT).unwrap();
        assert!(u32::try_from(address + 1000).is_ok());
        arena.give_low(address, 1000);
    }
}
