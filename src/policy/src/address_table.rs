//! A hash table from addresses to values, with open addressing and linear probing.
//!
//! The address and its value are adjacent, so a look-up costs one cache miss however many addresses there are. A
//! removal moves later entries back into the gap instead of leaving a mark. So an old table is as fast as a new one.
//!
//! The newest address is kept outside the table, beside the table's own fields. Most allocations are freed soon, and then
//! the table is not touched at all.

/// Slots of the smallest table.
const SMALLEST: usize = 4;

/// Values by address. A value with a niche takes the least space: an option of it is no larger than the value.
#[derive(Debug, Clone)]
pub struct AddressTable<V> {
    newest: Option<(u64, V)>,
    /// Empty, or a power of two of slots, of which at least one is free.
    slots: Box<[AddressSlot<V>]>,
    /// Slots in use.
    len: usize,
}

type AddressSlot<V> = Option<AddressEntry<V>>;

/// An address with its value. If the value has 24 bytes, two entries fill one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
struct AddressEntry<V> {
    address: u64,
    value: V,
}

impl<V> Default for AddressTable<V> {
    fn default() -> Self {
        Self { newest: None, slots: Box::default(), len: 0 }
    }
}

impl<V: Copy> AddressTable<V> {
    /// Inserts a value. If the address is present, the older value is lost, at this call or later: see
    /// [`take`](Self::take).
    pub fn insert(&mut self, address: u64, value: V) {
        if let Some((address, value)) = self.newest.replace((address, value)) {
            self.settle(AddressEntry { address, value });
        }
    }

    /// Returns the value of an address.
    #[must_use]
    pub fn get(&self, address: u64) -> Option<V> {
        let newest = self.newest.filter(|(newest, _)| *newest == address).map(|(_, value)| value);
        newest.or_else(|| Some((*self.slots.get(self.find(address))?)?.value))
    }

    /// Returns the value of an address, for a change in place.
    pub fn get_mut(&mut self, address: u64) -> Option<&mut V> {
        if self.newest.as_ref().is_some_and(|(newest, _)| *newest == address) {
            return self.newest.as_mut().map(|(_, value)| value);
        }
        if self.slots.is_empty() {
            return None;
        }
        let place = self.find(address);
        self.slots.get_mut(place)?.as_mut().map(|entry| &mut entry.value)
    }

    /// Returns the position at which the search for an address will begin. The caller may prefetch it.
    #[must_use]
    pub fn near(&self, address: u64) -> Option<*const u8> {
        if self.slots.is_empty() {
            return None;
        }
        self.slots.get(self.home(address)).map(|slot| core::ptr::from_ref(slot).cast())
    }

    /// Removes an address. If it was inserted twice, returns the later value, and the older one may still be present.
    pub fn take(&mut self, address: u64) -> Option<V> {
        if let Some((_, value)) = self.newest.take_if(|(newest, _)| *newest == address) {
            return Some(value);
        }
        let place = self.find(address);
        let entry = (*self.slots.get(place)?)?;
        self.clear(place);
        Some(entry.value)
    }

    /// Returns all addresses with their values, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, V)> {
        let settled = self.slots.iter().flatten().map(|entry| (entry.address, entry.value));
        self.newest.into_iter().chain(settled)
    }

    /// Returns the number of addresses for which there is memory.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slots.len().saturating_add(1)
    }

    /// Inserts an entry into the table.
    fn settle(&mut self, entry: AddressEntry<V>) {
        // The table is at most three quarters full, so that a free slot is near.
        if self.len.saturating_mul(4) >= self.slots.len().saturating_mul(3) {
            self.grow();
        }
        let place = self.find(entry.address);
        if let Some(slot) = self.slots.get_mut(place)
            && slot.replace(entry).is_none()
        {
            self.len = self.len.saturating_add(1);
        }
    }

    fn grow(&mut self) {
        let slots = self.slots.len().saturating_mul(2).max(SMALLEST);
        let before = core::mem::replace(&mut self.slots, vec![None; slots].into());
        self.len = 0;
        before.into_iter().flatten().for_each(|entry| self.settle(entry));
    }

    /// Frees a slot. Then moves into the gap the later entries that a search would not find behind it.
    fn clear(&mut self, mut gap: usize) {
        let mut next = gap;
        loop {
            next = self.after(next);
            let Some(Some(entry)) = self.slots.get(next).copied() else { break };
            if self.distance(self.home(entry.address), next) >= self.distance(gap, next) {
                self.put(gap, Some(entry));
                gap = next;
            }
        }
        self.put(gap, None);
        self.len = self.len.saturating_sub(1);
    }

    /// Returns the slot of an address. If the address is absent, returns the free slot in which it belongs.
    fn find(&self, address: u64) -> usize {
        let mut place = self.home(address);
        while let Some(Some(entry)) = self.slots.get(place)
            && entry.address != address
        {
            place = self.after(place);
        }
        place
    }

    fn put(&mut self, place: usize, entry: AddressSlot<V>) {
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = entry;
        }
    }

    /// Returns the position at which the search for an address begins: the low bits of its [`spread`].
    #[allow(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
    fn home(&self, address: u64) -> usize {
        spread(address) as usize & self.mask()
    }

    fn after(&self, place: usize) -> usize {
        place.wrapping_add(1) & self.mask()
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & self.mask()
    }

    fn mask(&self) -> usize {
        self.slots.len().wrapping_sub(1)
    }
}

/// Spreads addresses, whose low bits are zero, over all bits. It multiplies by 2^64 divided by the golden ratio, as Knuth
/// describes, and folds the halves of the product. A table uses the low bits. A caller with several tables chooses one by the
/// top bits. Without the upper half, most addresses of one table would have the same few places if all were multiples of 32 KiB.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "the halves of the product are what is wanted")]
pub fn spread(address: u64) -> u64 {
    let product = u128::from(address >> 8 ^ address << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (low, high) = (product as u64, (product >> 64) as u64);
    low ^ low >> 32 ^ high
}
