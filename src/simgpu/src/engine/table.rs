//! Tables of rows without pointers: links, allocation, lists.

/// A row's index plus one; 0 is no row, so zeroed memory links to nothing.
pub(super) type Link = u32;

/// The properties of rows that a table needs.
pub(super) trait Row: Copy {
    /// Returns a free row. All bytes are zero, except for words that must outlive the use of the row.
    fn cleared(&self) -> Self;
    /// Returns true if the row is in use.
    fn live(&self) -> bool;
    /// Returns the field of a free row with the link to the next free row.
    fn next_free(&mut self) -> &mut Link;
}

/// A fixed array of rows with a free list. It is valid when zeroed. The lowest free row is taken first, so untouched
/// rows never cost a page.
#[repr(C)]
pub(super) struct Table<T, const N: usize> {
    /// Number of rows that were ever taken. All live rows lie below.
    used: u32,
    free: Link,
    /// Stands in for a link that leads nowhere, so a damaged file cannot cause a panic.
    null: T,
    rows: [T; N],
}

impl<T: Row, const N: usize> Table<T, N> {
    /// Returns the row behind a link.
    pub(super) fn at(&self, link: Link) -> &T {
        (link as usize).checked_sub(1).and_then(|i| self.rows.get(i)).unwrap_or(&self.null)
    }

    /// Returns the row behind a link, to write.
    pub(super) fn at_mut(&mut self, link: Link) -> &mut T {
        match (link as usize).checked_sub(1).and_then(|i| self.rows.get_mut(i)) {
            Some(row) => row,
            None => &mut self.null,
        }
    }

    /// Takes a free row. The caller makes it live.
    pub(super) fn take(&mut self) -> Option<Link> {
        if self.free != 0 {
            let link = self.free;
            self.free = *self.at_mut(link).next_free();
            *self.at_mut(link).next_free() = 0;
            return Some(link);
        }
        if self.used as usize >= N {
            return None;
        }
        self.used += 1;
        Some(self.used)
    }

    /// Gives a row back.
    pub(super) fn give(&mut self, link: Link) {
        let free = self.free;
        let row = self.at_mut(link);
        *row = row.cleared();
        *row.next_free() = free;
        self.free = link;
    }

    /// Returns the links of all rows that were ever taken, lowest first.
    pub(super) fn links(&self) -> core::ops::RangeInclusive<Link> {
        1..=self.used.min(u32::try_from(N).unwrap_or(u32::MAX))
    }

    /// Returns true if every row is live.
    pub(super) fn full(&self) -> bool {
        self.free == 0 && self.used as usize >= N
    }

    /// Rebuilds the free list from the rows that are not live.
    pub(super) fn rebuild(&mut self) {
        self.free = 0;
        for link in self.links().rev() {
            if !self.at(link).live() {
                self.give(link);
            }
        }
    }
}

/// A first-in, first-out list of rows. The rows hold the links.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct List {
    /// The oldest.
    pub(super) head: Link,
    /// The newest.
    pub(super) tail: Link,
}
