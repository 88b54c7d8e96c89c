//! Tables of rows without pointers: their links, allocation and lists.

/// The index of a row plus one. 0 means no row, so zeroed memory links to nothing.
pub(super) type Link = u32;

/// The properties of rows that a table needs.
pub(super) trait Row: Copy {
    /// Returns the row as a free one. All its bytes are zero, except for words that must outlive the use of the row.
    fn cleared(&self) -> Self;
    /// Returns true if the row is in use.
    fn live(&self) -> bool;
    /// Returns the field of a free row with the link to the next free row.
    fn next_free(&mut self) -> &mut Link;
}

/// A fixed array of rows with a free list. It is valid when zeroed. Rows that were never used are taken in ascending order, so
/// untouched pages cost no memory.
#[repr(C)]
pub(super) struct Table<T, const N: usize> {
    /// Number of rows that were ever taken. All rows in use have lower indices.
    used: u32,
    free: Link,
    /// The row for an invalid link. So a damaged file cannot cause a panic.
    null: T,
    rows: [T; N],
}

impl<T: Row, const N: usize> Table<T, N> {
    /// Returns the row of a link.
    pub(super) fn at(&self, link: Link) -> &T {
        (link as usize).checked_sub(1).and_then(|i| self.rows.get(i)).unwrap_or(&self.null)
    }

    /// Returns the row of a link for writing.
    pub(super) fn at_mut(&mut self, link: Link) -> &mut T {
        match (link as usize).checked_sub(1).and_then(|i| self.rows.get_mut(i)) {
            Some(row) => row,
            None => &mut self.null,
        }
    }

    /// Takes a free row. The caller must then mark it as used.
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

    /// Frees a row.
    pub(super) fn give(&mut self, link: Link) {
        let free = self.free;
        let row = self.at_mut(link);
        *row = row.cleared();
        *row.next_free() = free;
        self.free = link;
    }

    /// Returns the links of all rows that were ever taken, in ascending order.
    pub(super) fn links(&self) -> core::ops::RangeInclusive<Link> {
        1..=self.used.min(u32::try_from(N).unwrap_or(u32::MAX))
    }

    /// Returns true if no row is free.
    pub(super) fn full(&self) -> bool {
        self.free == 0 && self.used as usize >= N
    }

    /// Rebuilds the free list from the rows that are not in use.
    pub(super) fn rebuild(&mut self) {
        self.free = 0;
        for link in self.links().rev() {
            if !self.at(link).live() {
                self.give(link);
            }
        }
    }
}

/// A first-in, first-out list of rows. The links of the list are in the rows.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct List {
    /// The oldest row.
    pub(super) head: Link,
    /// The newest row.
    pub(super) tail: Link,
}
