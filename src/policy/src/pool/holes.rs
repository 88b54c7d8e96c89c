//! Free ranges inside a pool, in which an allocation fits without growth of the pool.
//!
//! The model learns from the driver's calls. Freed memory is free. So is the rest of a piece that the pool took for an
//! allocation. Other memory counts as occupied. A block that was freed in stream order is free for that stream at once. For
//! other streams it is free when the driver has counted the free.
//!
//! The driver frees a block some time before or after the call returns, and another thread may have the block again by
//! then. So a block that is being freed becomes a hole only if no allocation was placed into it before the free ended.
//!
//! The model assumes that allocations are placed at the start of a hole or piece. If an allocation makes the pool
//! grow although a hole was known, the assumption is wrong. From then on no hole is known.

use std::collections::BTreeMap;

/// Smallest growth of a pool, in bytes: drivers of the 12 and 13 series take 32 MiB at a time from the device.
pub const POOL_GROWTH: u64 = 32 << 20;

/// Returns the largest growth of a pool for an allocation. `None`: no pool can be so large.
#[must_use]
pub const fn largest_growth(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(POOL_GROWTH)
}

/// Alignment of allocations in a pool, in bytes.
pub const ALIGNMENT: u64 = 512;

/// The streams that may use a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeFor {
    /// Only this stream.
    Stream(usize),
    /// All streams.
    All,
}

/// Ranges of a pool that are known to be free.
#[derive(Debug, Default)]
pub struct Holes {
    /// By start: the end, and the streams that may use the hole.
    known: BTreeMap<u64, (u64, FreeFor)>,
    /// Pieces that the pool took from the device, as far as the calls show them. From start to end.
    pieces: BTreeMap<u64, u64>,
    /// By ticket: blocks that the driver is freeing, from start to end.
    being_freed: BTreeMap<u64, (u64, u64)>,
    tickets: u64,
    is_wrong: bool,
}

impl Holes {
    /// Returns the number of allocations of `size` bytes that surely fit, for this stream. `None`: for any stream.
    ///
    /// A hole counts as if it were cut into pieces of [`POOL_GROWTH`]. Example: three allocations of 20 MiB fit into a hole
    /// of 64 MiB, but need three new pieces of 32 MiB. They may lose their hole to an allocation with a reservation, or to
    /// a release of the hole's piece. Then they must fit into as many new pieces as were reserved or released.
    #[must_use]
    pub fn room(&self, size: u64, stream: Option<usize>) -> u64 {
        let fit_in = |bytes: u64| bytes.checked_div(size).unwrap_or(0);
        let fits = |(start, (end, free)): (&u64, &(u64, FreeFor))| {
            if *free != FreeFor::All && stream.is_none_or(|stream| *free != FreeFor::Stream(stream)) {
                return 0;
            }
            let bytes = end.saturating_sub(*start);
            let pieces = bytes.checked_div(POOL_GROWTH).unwrap_or(0);
            fit_in(POOL_GROWTH)
                .saturating_mul(pieces)
                .saturating_add(fit_in(bytes.checked_rem(POOL_GROWTH).unwrap_or(0)))
        };
        self.known.iter().map(fits).fold(0, u64::saturating_add)
    }

    /// Returns true if a block lies in a known hole.
    #[must_use]
    pub fn contain(&self, start: u64, bytes: u64) -> bool {
        let hole = self.known.range(..=start).next_back();
        hole.is_some_and(|(_, (end, _))| start.saturating_add(bytes) <= *end)
    }

    /// Begins the free of a block. Returns its ticket.
    pub fn begin_free(&mut self, start: u64, bytes: u64) -> u64 {
        self.tickets = self.tickets.wrapping_add(1);
        self.being_freed.insert(self.tickets, (start, start.saturating_add(bytes)));
        self.tickets
    }

    /// Ends a free that failed.
    pub fn cancel_free(&mut self, ticket: u64) {
        self.being_freed.remove(&ticket);
    }

    /// Ends a free that succeeded.
    pub fn finish_free(&mut self, ticket: u64, free: FreeFor) {
        if let Some((start, end)) = self.being_freed.remove(&ticket) {
            self.add(start, end.saturating_sub(start), free);
        }
    }

    /// Adds a free range. Adjacent ranges are merged only if all streams may use them. Until a stream has reached the free,
    /// the driver keeps its memory block by block. They are not merged where one piece may end and the next one begin,
    /// because no allocation lies in two pieces.
    fn add(&mut self, start: u64, bytes: u64, free: FreeFor) {
        if self.is_wrong {
            return;
        }
        let (mut start, mut end) = (start, start.saturating_add(bytes));
        if free == FreeFor::All {
            let before = self.known.range(..start).next_back().map(|(key, hole)| (*key, *hole));
            if let Some((from, (until, FreeFor::All))) = before
                && until == start
                && self.is_inside_piece(start)
            {
                start = from;
            }
            if let Some((after, FreeFor::All)) = self.known.get(&end).copied()
                && self.is_inside_piece(end)
            {
                self.known.remove(&end);
                end = after;
            }
        }
        self.known.insert(start, (end, free));
    }

    /// Records an allocation.
    pub fn allocated(&mut self, start: u64, bytes: u64) {
        let end = start.saturating_add(bytes);
        self.being_freed.retain(|_, (from, until)| *until <= start || end <= *from);
        self.occupy(start, end);
    }

    /// Returns true if an address surely lies inside a piece, and not where two pieces meet.
    fn is_inside_piece(&self, address: u64) -> bool {
        self.pieces.range(..address).next_back().is_some_and(|(_, end)| address < *end)
    }

    /// Adds a piece of `growth` bytes that the pool took for a block. The rest of the piece becomes a hole.
    pub fn add_rest(&mut self, start: u64, bytes: u64, growth: u64) {
        self.add_piece(start, start.saturating_add(growth));
        self.add_free(start.saturating_add(bytes), start.saturating_add(growth));
    }

    /// Adds a piece that the pool took. None of its memory is known to be free yet.
    pub fn add_piece(&mut self, start: u64, end: u64) {
        if start < end {
            self.pieces.retain(|from, until| *until <= start || end <= *from);
            self.pieces.insert(start, end);
        }
    }

    /// Adds a free part of a piece.
    pub fn add_free(&mut self, start: u64, end: u64) {
        if start < end {
            self.add(start, end.saturating_sub(start), FreeFor::All);
        }
    }

    /// Returns the bytes of all holes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.known.iter().fold(0, |sum, (start, (end, _))| sum.saturating_add(end.saturating_sub(*start)))
    }

    /// Removes a range from the holes. The range may contain parts of holes and unknown memory.
    fn occupy(&mut self, start: u64, end: u64) {
        while let Some((from, (until, free))) =
            self.known.range(..end).next_back().map(|(key, hole)| (*key, *hole))
            && until > start
        {
            self.known.remove(&from);
            if end < until {
                self.known.insert(end, (until, free));
            }
            if from < start {
                self.known.insert(from, (start, free));
                break;
            }
        }
    }

    /// Makes every hole free for all streams, because the driver has counted all frees.
    pub fn settle(&mut self) {
        if self.known.values().all(|(_, free)| *free == FreeFor::All) {
            return;
        }
        for (start, (end, _)) in core::mem::take(&mut self.known) {
            self.add(start, end.saturating_sub(start), FreeFor::All);
        }
    }

    /// Forgets all holes, because the pool released memory, and it is unknown which memory.
    pub fn forget(&mut self) {
        self.known.clear();
        self.pieces.clear();
        self.being_freed.clear();
    }

    /// Gives up the model, because the pool grew although a hole was known.
    pub fn refute(&mut self) {
        self.forget();
        self.is_wrong = true;
    }
}

#[cfg(test)]
impl Holes {
    /// Returns the holes, from start to end.
    pub(super) fn ranges(&self) -> Vec<(u64, u64)> {
        self.known.iter().map(|(start, (end, _))| (*start, *end)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PIECE: u64 = 32 << 20;
    const UNIT: u64 = 64 << 10;

    /// A pool of pieces. It places an allocation at the start of the first hole that is large enough.
    #[derive(Debug, Default)]
    struct FirstFit {
        pieces: u64,
        live: BTreeMap<u64, u64>,
    }

    impl FirstFit {
        fn allocate(&mut self, bytes: u64) -> (u64, u64) {
            if let Some(start) = self.hole(bytes) {
                self.live.insert(start, bytes);
                return (start, 0);
            }
            let growth = bytes.next_multiple_of(PIECE);
            // Pieces are apart, as the driver's mappings are.
            let start = 1 << 40 | self.pieces << 33;
            self.pieces += growth / PIECE;
            self.live.insert(start, bytes);
            (start, growth)
        }

        fn hole(&self, bytes: u64) -> Option<u64> {
            let starts = (0..self.pieces).map(|piece| 1 << 40 | piece << 33);
            starts.into_iter().find_map(|piece| {
                let mut at = piece;
                for (start, length) in self.live.range(piece..piece + PIECE) {
                    if start - at >= bytes {
                        return Some(at);
                    }
                    at = start + length;
                }
                (piece + PIECE - at >= bytes).then_some(at)
            })
        }
    }

    #[test]
    fn the_rest_of_a_new_piece_is_free() {
        let mut holes = Holes::default();
        holes.allocated(0, UNIT);
        holes.add_rest(0, UNIT, PIECE);
        assert_eq!(holes.room(UNIT, Some(1)), PIECE / UNIT - 1);
        assert_eq!(holes.room(PIECE, Some(1)), 0);
    }

    #[test]
    fn a_hole_is_free_for_its_stream_alone_until_the_driver_has_counted_it() {
        let mut holes = Holes::default();
        holes.add(0, UNIT, FreeFor::Stream(1));
        assert_eq!((holes.room(UNIT, Some(1)), holes.room(UNIT, Some(2)), holes.room(UNIT, None)), (1, 0, 0));
        holes.settle();
        assert_eq!((holes.room(UNIT, Some(1)), holes.room(UNIT, Some(2))), (1, 1));
    }

    #[test]
    fn a_hole_has_room_for_no_more_than_as_many_new_pieces_have() {
        let mut holes = Holes::default();
        holes.add(0, 2 * PIECE, FreeFor::All);
        assert_eq!(holes.room(PIECE * 5 / 8, Some(1)), 2);
    }

    #[test]
    fn holes_side_by_side_become_one() {
        let mut holes = Holes::default();
        holes.add_piece(0, PIECE);
        for block in [0, 2, 1] {
            holes.add(block * UNIT, UNIT, FreeFor::All);
        }
        assert_eq!(holes.room(3 * UNIT, Some(1)), 1);
    }

    #[test]
    fn holes_that_meet_where_two_pieces_meet_are_two_holes() {
        let half = PIECE / 2;
        for are_known in [true, false] {
            let mut holes = Holes::default();
            let bounds = if are_known { &[0, PIECE][..] } else { &[][..] };
            bounds.iter().for_each(|start| holes.add_piece(*start, start + PIECE));
            [half, PIECE].into_iter().for_each(|start| holes.add(start, half, FreeFor::All));
            assert_eq!([half, half + UNIT].map(|size| holes.room(size, Some(1))), [2, 0], "{are_known}");
        }
    }

    #[test]
    fn a_model_that_was_refuted_knows_nothing_any_more() {
        let mut holes = Holes::default();
        holes.allocated(0, UNIT);
        holes.add_rest(0, UNIT, PIECE);
        holes.refute();
        holes.add(0, UNIT, FreeFor::All);
        assert_eq!(holes.room(UNIT, Some(1)), 0);
    }

    proptest! {
        #[test]
        fn a_pool_does_not_grow_for_an_allocation_that_fits_the_model(
            steps in prop::collection::vec((1_u64..200, any::<prop::sample::Index>(), any::<bool>()), 1..400)
        ) {
            let (mut pool, mut holes) = (FirstFit::default(), Holes::default());
            for (units, which, frees) in steps {
                let bytes = units * ALIGNMENT * 97;
                if frees && !pool.live.is_empty() {
                    let keys: Vec<u64> = pool.live.keys().copied().collect();
                    let start = *which.get(&keys);
                    let length = pool.live.remove(&start).unwrap();
                    holes.add(start, length, FreeFor::All);
                    continue;
                }
                let promised = holes.room(bytes, Some(1)) > 0;
                let (start, growth) = pool.allocate(bytes);
                prop_assert!(!promised || growth == 0);
                // A model of a first-fit pool knows every hole if it has observed the pool from its start.
                prop_assert!(promised || growth > 0);
                holes.allocated(start, bytes);
                holes.add_rest(start, bytes, growth);
            }
        }
    }
}
