//! What does memory of a size take of a device?
//!
//! Known, measured on A10G, RTX 3090 and H200 with driver 580.173: above 1 MiB the next multiple of 2 MiB; up to 1 MiB a power of
//! two, in blocks of 2 MiB that small allocations share. Believed: each 2 MiB of addresses that begin at a multiple of 2 MiB are
//! one block, so that an address tells its block. A block is of one context and one size, and no block is taken
//! while another of the kind has a free slot.
//!
//! A block is charged as a whole. The addresses alone say which blocks there are, so that the charge is right however the
//! driver puts sizes together. What is believed of sizes decides only whether a block is reserved before a call, or whether the
//! blocks that are charged already have a slot for it: a driver that takes a block only when all others of the kind are
//! full never has more of them than `live + calls under way` need. Where that turns out wrong ([`Change::more`]) the caller
//! reserves a block afterwards, or undoes the call.

use crate::address_table::Addresses;

/// What a device's memory is taken in.
pub const BLOCK: u64 = 2 << 20;
/// The largest allocation that shares a block.
pub const LARGEST_SMALL: u64 = 1 << 20;
/// The least slot of a block.
const LEAST: u64 = 512;
/// The same of managed memory, which comes in pages.
const LEAST_MANAGED: u64 = 64 << 10;

/// What memory of so many bytes takes where it shares no block. Saturates.
#[must_use]
pub fn taken(bytes: u64) -> u64 {
    match bytes {
        0 => 0,
        1..=LARGEST_SMALL => slot(bytes, LEAST),
        _ => bytes.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX),
    }
}

fn slot(bytes: u64, least: u64) -> u64 {
    bytes.next_power_of_two().max(least)
}

/// Which slots share blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    context: usize,
    kind: Kind,
    slot: u64,
}

/// What sort of address an allocation has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An ordinary one.
    Linear,
    /// One that the host can use as well.
    Managed,
    /// One of 32 bits.
    Low,
}

impl Family {
    /// The family of an allocation; none for one that shares no block.
    #[must_use]
    pub fn of(context: usize, kind: Kind, bytes: u64) -> Option<Self> {
        let least = if kind == Kind::Managed { LEAST_MANAGED } else { LEAST };
        (1..=LARGEST_SMALL).contains(&bytes).then(|| Self { context, kind, slot: slot(bytes, least) })
    }

    fn slots(self) -> u64 {
        BLOCK.checked_div(self.slot).unwrap_or(1)
    }
}

/// How a call that is under way is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a call that was begun is to be ended"]
pub struct Way {
    pool: usize,
    needs_block: bool,
}

impl Way {
    /// Whether the caller has to reserve a block.
    #[must_use]
    pub fn needs_block(&self) -> bool {
        self.needs_block
    }
}

/// What the end of a call changes of the charge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use = "the charge is to be changed"]
pub struct Change {
    /// Blocks to be given back.
    pub back: u64,
    /// Blocks to be charged whatever the quota says: the driver has them.
    pub charge: u64,
    /// A block is to be paid for that nobody expected, or the call is to be undone.
    pub more: bool,
}

/// A block in use.
#[derive(Debug, Clone, Copy)]
struct Block {
    pool: usize,
    live: u64,
    /// Whether allocations of other families are among them: the driver has ended it and begun it anew, or packs otherwise.
    is_mixed: bool,
}

/// All blocks of a family.
#[derive(Debug)]
struct Pool {
    family: Family,
    /// Allocations in its blocks.
    live: u64,
    /// Allocations that are asked for, and those of them that reserved a block.
    calls: u64,
    reserving: u64,
    /// Frees under way.
    leaving: u64,
    /// Blocks that are known.
    blocks: u64,
    /// Blocks that are paid for beyond them. Less than none: a call has got one that another call reserved, or one for which
    /// a free that is under way ends another. Calls under way may need them, so they are settled when there is none.
    spare: i64,
}

impl Pool {
    const fn new(family: Family) -> Self {
        Self { family, live: 0, calls: 0, reserving: 0, leaving: 0, blocks: 0, spare: 0 }
    }

    /// Whether what is paid for has slots for all that live and are asked for, and one more.
    fn has_slot(&self) -> bool {
        let wanted = self.live.saturating_add(self.calls).saturating_add(1);
        let paid = self.blocks.saturating_add(self.reserving).saturating_add_signed(self.spare);
        wanted <= paid.saturating_mul(self.family.slots())
    }

    fn is_unused(&self) -> bool {
        self.blocks == 0 && self.calls == 0 && self.leaving == 0
    }

    /// A call is over: what it reserved is anybody's.
    fn end(&mut self, way: Way) {
        self.calls = self.calls.saturating_sub(1);
        self.reserving = self.reserving.saturating_sub(way.needs_block.into());
        self.spare = self.spare.saturating_add(way.needs_block.into());
    }

    fn settle(&mut self, mut change: Change) -> Change {
        if self.calls == 0 && (self.leaving == 0 || self.spare > 0) {
            let spare = core::mem::take(&mut self.spare);
            let blocks = spare.unsigned_abs();
            let side = if spare > 0 { &mut change.back } else { &mut change.charge };
            *side = side.saturating_add(blocks);
        }
        change
    }
}

/// The blocks of a process.
#[derive(Debug, Default)]
pub struct Blocks {
    pools: Vec<Pool>,
    all: Addresses<Block>,
}

impl Blocks {
    /// An allocation is about to be asked for. Where a block has to be reserved first, that is to be followed by
    /// [`reserved`](Self::reserved) or [`refused`](Self::refused).
    pub fn begin(&mut self, family: Family) -> Way {
        let at = self.pool_of(family);
        let Some(pool) = self.pools.get_mut(at) else { return Way { pool: at, needs_block: true } };
        let needs_block = !pool.has_slot();
        pool.calls = pool.calls.saturating_add(1);
        Way { pool: at, needs_block }
    }

    /// The block that it needs is reserved: other calls may count on it.
    pub fn reserved(&mut self, way: &Way) {
        if let Some(pool) = self.pools.get_mut(way.pool) {
            pool.reserving = pool.reserving.saturating_add(1);
        }
    }

    /// There was no room for the block that it needs.
    pub fn refused(&mut self, way: Way) -> Change {
        self.pools.get_mut(way.pool).map_or_else(Change::default, |pool| {
            pool.calls = pool.calls.saturating_sub(1);
            pool.settle(Change::default())
        })
    }

    /// It was not made.
    pub fn failed(&mut self, way: Way) -> Change {
        self.pools.get_mut(way.pool).map_or_else(Change::default, |pool| {
            pool.end(way);
            pool.settle(Change::default())
        })
    }

    /// It was made at an address.
    pub fn landed(&mut self, way: Way, address: u64) -> Change {
        let start = start_of(address);
        let Some(found) = self.all.get_mut(start) else { return self.landed_in_new(way, start) };
        let block = *found;
        let is_foreign = block.pool != way.pool;
        found.live = block.live.saturating_add(1);
        found.is_mixed = block.is_mixed || is_foreign;
        let mut gives = 0;
        let mut change = Change::default();
        if let Some(pool) = self.pools.get_mut(way.pool) {
            pool.end(way);
            // A call of the block's own family may have expected the slot.
            gives = i64::from(is_foreign && pool.spare > 0);
            pool.spare = pool.spare.saturating_sub(gives);
            change = pool.settle(change);
        }
        if let Some(pool) = self.pools.get_mut(block.pool) {
            // No call of its own family finds a slot there any more.
            let slots = if is_foreign && !block.is_mixed { pool.family.slots() } else { 0 };
            pool.live = pool.live.saturating_add(1).saturating_add(slots);
            pool.spare = pool.spare.saturating_add(gives);
            change = pool.settle(change);
        }
        change
    }

    fn landed_in_new(&mut self, way: Way, start: u64) -> Change {
        let Some(pool) = self.pools.get_mut(way.pool) else { return Change::default() };
        self.all.insert(start, Block { pool: way.pool, live: 1, is_mixed: false });
        pool.end(way);
        pool.live = pool.live.saturating_add(1);
        pool.blocks = pool.blocks.saturating_add(1);
        let ahead = pool.reserving.saturating_add(pool.leaving);
        let more = pool.spare.saturating_add_unsigned(ahead) <= 0;
        pool.spare = pool.spare.saturating_sub((!more).into());
        pool.settle(Change { more, ..Change::default() })
    }

    /// An allocation is about to be freed.
    pub fn leaves(&mut self, address: u64) {
        let block = self.all.get(start_of(address));
        if let Some(pool) = block.and_then(|block| self.pools.get_mut(block.pool)) {
            pool.leaving = pool.leaving.saturating_add(1);
        }
    }

    /// It was not freed.
    pub fn stays(&mut self, address: u64) -> Change {
        let block = self.all.get(start_of(address));
        let pool = block.and_then(|block| self.pools.get_mut(block.pool));
        pool.map_or_else(Change::default, |pool| {
            pool.leaving = pool.leaving.saturating_sub(1);
            pool.settle(Change::default())
        })
    }

    /// It was freed.
    pub fn left(&mut self, address: u64) -> Change {
        self.end_one(address, 1)
    }

    /// An allocation ended with its context, or was undone.
    pub fn ended(&mut self, address: u64) -> Change {
        self.end_one(address, 0)
    }

    fn end_one(&mut self, address: u64, leaving: u64) -> Change {
        let start = start_of(address);
        let Some(found) = self.all.get_mut(start) else { return Change::default() };
        found.live = found.live.saturating_sub(1);
        let block = *found;
        if block.live == 0 {
            self.all.take(start);
        }
        let Some(pool) = self.pools.get_mut(block.pool) else { return Change::default() };
        pool.leaving = pool.leaving.saturating_sub(leaving);
        pool.live = pool.live.saturating_sub(1);
        if block.live == 0 {
            pool.blocks = pool.blocks.saturating_sub(1);
            pool.spare = pool.spare.saturating_add(1);
            let slots = if block.is_mixed { pool.family.slots() } else { 0 };
            pool.live = pool.live.saturating_sub(slots);
        }
        pool.settle(Change::default())
    }

    /// The pool of a family. One that has nothing any more makes place for another.
    fn pool_of(&mut self, family: Family) -> usize {
        if let Some(at) = self.pools.iter().position(|pool| pool.family == family) {
            return at;
        }
        let at = self.pools.iter().position(Pool::is_unused).unwrap_or(self.pools.len());
        match self.pools.get_mut(at) {
            Some(pool) if pool.family != family => *pool = Pool::new(family),
            Some(_) => {}
            None => self.pools.push(Pool::new(family)),
        }
        at
    }
}

/// Where the block of an address begins.
const fn start_of(address: u64) -> u64 {
    address & !BLOCK.wrapping_sub(1)
}
