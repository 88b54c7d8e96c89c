//! Allocations of a pool whose driver calls overlap, and the pieces that the pool took for them.
//!
//! Example: two threads allocate 64 KiB each at once, and the pool grows by 32 MiB. The addresses of the blocks and the
//! growth show which memory is new, but only after both calls have ended. So the free part of a new piece becomes known
//! when no call is in flight.

use super::holes::{Holes, POOL_GROWTH};

/// Number of blocks from which on no free part of a piece becomes known. So many blocks of overlapping calls are
/// remembered.
const MOST_PLACED: usize = 64;

/// Driver calls that overlap: from a call that begins while no other is in flight, until no call is in flight.
#[derive(Debug, Default)]
pub(super) struct OverlappingCalls {
    /// Bytes that the pool held before the first call. `None`: the growth of an earlier call may be missing.
    before: Option<u64>,
    /// Largest allocation, in bytes.
    pub(super) largest: u64,
    /// Stream of the allocations without a reservation. `None`: several streams, or no such allocation.
    pub(super) stream: Option<usize>,
    /// True if any of the allocations has a reservation.
    pub(super) is_backed: bool,
    /// True if the driver may have released memory of the pool meanwhile.
    is_doubted: bool,
    /// Blocks that were placed outside the known holes, as start and size.
    placed: Vec<(u64, u64)>,
}

impl OverlappingCalls {
    pub(super) fn new(before: Option<u64>) -> Self {
        Self { before, ..Self::default() }
    }

    /// Records a block that was placed outside the known holes.
    pub(super) fn place(&mut self, start: u64, bytes: u64, is_doubted: bool) {
        self.is_doubted |= is_doubted;
        if self.placed.len() < MOST_PLACED {
            self.placed.push((start, bytes));
        }
    }

    /// Returns the growth of the pool during the calls.
    pub(super) fn growth(&self, held: u64) -> u64 {
        self.before.map_or(0, |before| held.saturating_sub(before))
    }

    /// Adds the free parts of the new pieces to the holes. `unknown`: bytes of the pool that are neither allocated nor in a
    /// known hole.
    ///
    /// If one block was placed outside the known holes, the pool grew for this block. Several blocks may also lie in
    /// unknown memory that the pool had before. So their pieces become known only if the pool had no such memory.
    pub(super) fn learn(mut self, growth: u64, unknown: Option<u64>, holes: &mut Holes) {
        if let [(start, bytes)] = self.placed.as_slice() {
            return holes.add_rest(*start, *bytes, growth);
        }
        let used = self.placed.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
        let is_all_new = unknown.is_some() && unknown == growth.checked_sub(used);
        if self.is_doubted || !is_all_new || self.placed.len() >= MOST_PLACED {
            return;
        }
        self.placed.sort_unstable();
        let pieces = pieces(&self.placed);
        if pieces.iter().fold(0, |sum: u64, (start, end)| sum.saturating_add(end.saturating_sub(*start)))
            != growth
        {
            return;
        }
        for (start, end) in pieces {
            let inside = self.placed.iter().filter(|(block, _)| (start..end).contains(block));
            holes.add_piece(start, end);
            let free = inside.fold(start, |free, (block, bytes)| {
                holes.add_free(free, *block);
                block.saturating_add(*bytes)
            });
            holes.add_free(free, end);
        }
    }
}

/// Returns the pieces of blocks in the order of their addresses, from start to end. The pool took a piece for the first
/// block in it.
fn pieces(placed: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut pieces: Vec<(u64, u64)> = Vec::new();
    for (start, bytes) in placed {
        if pieces.last().is_none_or(|(_, end)| start >= end) {
            pieces.push((*start, start.saturating_add(bytes.next_multiple_of(POOL_GROWTH))));
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const UNIT: u64 = 64 << 10;

    /// Returns the holes, from start to end, that become known from blocks outside the known holes and from the growth of
    /// the pool.
    fn learnt(blocks: &[(u64, u64)], growth: u64, unknown: u64) -> Vec<(u64, u64)> {
        let (mut overlap, mut holes) = (OverlappingCalls::new(Some(0)), Holes::default());
        blocks.iter().for_each(|(start, bytes)| overlap.place(*start, *bytes, false));
        overlap.learn(growth, Some(unknown), &mut holes);
        holes.ranges()
    }

    #[test]
    fn one_block_makes_the_rest_of_its_piece_known_whatever_else_is_unknown() {
        assert_eq!(learnt(&[(0, UNIT)], POOL_GROWTH, POOL_GROWTH), [(UNIT, POOL_GROWTH)]);
    }

    #[test]
    fn blocks_that_share_a_new_piece_make_the_rests_between_and_behind_them_known() {
        let blocks = [(3 * UNIT, UNIT), (0, UNIT)];
        let expected = [(UNIT, 3 * UNIT), (4 * UNIT, POOL_GROWTH)];
        assert_eq!(learnt(&blocks, POOL_GROWTH, POOL_GROWTH - 2 * UNIT), expected);
    }

    #[test]
    fn blocks_in_pieces_of_their_own_make_the_rest_of_each_known() {
        let (other, size) = (1 << 40, 40 * MIB);
        let expected = [(20 * MIB, POOL_GROWTH), (other + size, other + 2 * POOL_GROWTH)];
        assert_eq!(learnt(&[(other, size), (0, 20 * MIB)], 3 * POOL_GROWTH, 36 * MIB), expected);
    }

    #[test]
    fn several_blocks_tell_nothing_if_one_of_them_may_lie_in_unknown_memory() {
        let blocks = [(0, UNIT), (1 << 40, UNIT)];
        assert_eq!(learnt(&blocks, POOL_GROWTH, 2 * POOL_GROWTH - 2 * UNIT), []);
        // Two pieces would need more growth than one piece.
        assert_eq!(learnt(&blocks, POOL_GROWTH, POOL_GROWTH - 2 * UNIT), []);
    }

    #[test]
    fn several_blocks_tell_nothing_if_the_pool_may_have_released_memory() {
        let (mut overlap, mut holes) = (OverlappingCalls::new(Some(0)), Holes::default());
        overlap.place(0, UNIT, false);
        overlap.place(UNIT, UNIT, true);
        overlap.learn(POOL_GROWTH, Some(POOL_GROWTH - 2 * UNIT), &mut holes);
        assert_eq!(holes.ranges(), []);
    }

    #[test]
    fn more_blocks_than_are_remembered_tell_nothing() {
        for (count, holes) in [(MOST_PLACED - 1, 1), (MOST_PLACED, 0), (MOST_PLACED + 1, 0)] {
            let blocks: Vec<_> = (0..count as u64).map(|block| (block * UNIT, UNIT)).collect();
            assert_eq!(learnt(&blocks, POOL_GROWTH, POOL_GROWTH - count as u64 * UNIT).len(), holes);
        }
    }
}
