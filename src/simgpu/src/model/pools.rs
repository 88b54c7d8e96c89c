//! Stream-ordered memory pools.
//!
//! A pool takes memory in large chunks, and cuts blocks for allocations from them. It uses the first block that fits.

use std::collections::BTreeMap;

use gpuslice_driver::types::{Status, status};

use super::objects::{Objects, Tag};
use super::virtual_memory::location;
use crate::engine::Ticket;

/// `CU_MEM_ALLOCATION_TYPE_PINNED` and `CU_MEM_ALLOCATION_TYPE_MANAGED`.
pub(crate) const PINNED_TYPE: u32 = 1;
pub(crate) const MANAGED_TYPE: u32 = 2;

/// The size of every block is a multiple of this number of bytes.
pub(crate) const POOL_BLOCK_BYTES: u64 = 512;

/// A free that is queued: the device and the stream, and the ticket of the free in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Freed {
    pub(crate) device: usize,
    pub(crate) stream: u64,
    pub(crate) ticket: Ticket,
}

/// Whether a block is in use.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Use {
    /// An allocation has the block.
    Used,
    /// The program has freed the block in a stream, and the stream may not have reached the free yet.
    Pending(Freed),
    Free,
}

/// A block, which is a part of a chunk.
#[derive(Debug, Clone, Copy)]
struct ChunkPart {
    size: u64,
    state: Use,
}

/// A piece of device memory that a pool has taken.
#[derive(Debug)]
struct Chunk {
    size: u64,
    /// The blocks by address. They leave no gaps.
    blocks: BTreeMap<u64, ChunkPart>,
}

/// A pool.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The device of the pool's memory. `None` for host memory, and for managed memory without a device.
    pub(crate) device: Option<usize>,
    /// Kind and number of the pool's location, as the program gave them.
    pub(crate) location: (u32, i32),
    pub(crate) allocation_type: u32,
    pub(crate) handle_types: u32,
    /// True if this is the default pool of a device. The program cannot destroy such a pool.
    pub(crate) is_default: bool,
    /// True if this process imported the pool from another one. Nothing can be allocated from such a pool.
    pub(crate) is_imported: bool,
    /// The largest number of bytes that the pool may take; 0 for no limit.
    pub(crate) most: u64,
    pub(crate) threshold: u64,
    /// The reuse policies. They are all on, and the simulation does the same whatever they are.
    pub(crate) policies: [u32; 3],
    reserved: u64,
    pub(crate) reserved_high: u64,
    used: u64,
    pub(crate) used_high: u64,
    /// True if the program has destroyed the pool while allocations of it live.
    pub(crate) ended: bool,
    chunks: BTreeMap<u64, Chunk>,
}

impl Chunk {
    /// Merges free blocks that are neighbours.
    fn join(&mut self) {
        let mut joined: BTreeMap<u64, ChunkPart> = BTreeMap::new();
        for (address, block) in core::mem::take(&mut self.blocks) {
            match joined.last_entry() {
                Some(mut last) if block.state == Use::Free && last.get().state == Use::Free => {
                    last.get_mut().size += block.size;
                }
                _ => {
                    joined.insert(address, block);
                }
            }
        }
        self.blocks = joined;
    }

    fn is_empty(&self) -> bool {
        self.blocks.values().all(|block| block.state == Use::Free)
    }
}

impl Pool {
    /// Makes an empty pool for a place. `device` is the number that the machine gives to the place's device.
    pub(crate) fn new(device: Option<usize>, (allocation_type, kind, id): PoolPlace) -> Self {
        Self {
            device,
            location: (kind, id),
            allocation_type,
            handle_types: 0,
            is_default: false,
            is_imported: false,
            most: 0,
            threshold: 0,
            policies: [1; 3],
            reserved: 0,
            reserved_high: 0,
            used: 0,
            used_high: 0,
            ended: false,
            chunks: BTreeMap::new(),
        }
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Takes a block of `size` bytes for work in a stream, and returns its address. Returns `None` if no block fits.
    ///
    /// A block with a pending free may be used only by the stream that freed it. For other streams, the free may come after the
    /// new work. If the block is larger than `size`, the rest becomes a block of its own in the same state.
    pub(crate) fn find(&mut self, size: u64, stream: u64) -> Option<u64> {
        let fits = |block: &ChunkPart| match block.state {
            Use::Free => block.size >= size,
            Use::Pending(freed) => freed.stream == stream && block.size >= size,
            Use::Used => false,
        };
        let chunks = self.chunks.values_mut();
        let (address, blocks, block) = chunks.into_iter().find_map(|chunk| {
            let (address, block) = chunk.blocks.iter().find(|(_, block)| fits(block))?;
            let (address, block) = (*address, *block);
            Some((address, &mut chunk.blocks, block))
        })?;
        // A block with a pending free counts as used until the stream reaches the free.
        if matches!(block.state, Use::Pending(_)) {
            self.used -= block.size;
        }
        blocks.insert(address, ChunkPart { size, state: Use::Used });
        if block.size > size {
            let rest = ChunkPart { size: block.size - size, state: block.state };
            if matches!(rest.state, Use::Pending(_)) {
                self.used += rest.size;
            }
            blocks.insert(address + size, rest);
        }
        self.used += size;
        self.used_high = self.used_high.max(self.used);
        Some(address)
    }

    /// Adds a chunk, as one free block.
    pub(crate) fn add_chunk(&mut self, address: u64, size: u64) {
        self.reserved += size;
        self.reserved_high = self.reserved_high.max(self.reserved);
        let blocks = BTreeMap::from([(address, ChunkPart { size, state: Use::Free })]);
        self.chunks.insert(address, Chunk { size, blocks });
    }

    /// Frees a block. Without `freed` it is free at once, otherwise when the stream of `freed` reaches the free.
    pub(crate) fn free(&mut self, address: u64, freed: Option<Freed>) {
        let Some(block) = self.block(address) else { return };
        let size = block.size;
        block.state = freed.map_or(Use::Free, Use::Pending);
        if freed.is_none() {
            self.used -= size;
            if let Some((_, chunk)) = self.chunks.range_mut(..=address).next_back() {
                chunk.join();
            }
        }
    }

    /// Returns true if the program has destroyed the pool and no memory of it is left.
    pub(crate) fn is_gone(&self) -> bool {
        self.ended && self.chunks.is_empty()
    }

    /// Returns the block that begins at an address.
    fn block(&mut self, address: u64) -> Option<&mut ChunkPart> {
        let (_, chunk) = self.chunks.range_mut(..=address).next_back()?;
        chunk.blocks.get_mut(&address)
    }

    /// Makes blocks free whose streams have reached the free. `done` tells, for a free, whether its stream has.
    pub(crate) fn settle(&mut self, done: &mut impl FnMut(&Freed) -> bool) {
        for chunk in self.chunks.values_mut() {
            let mut changed = false;
            for block in chunk.blocks.values_mut() {
                if let Use::Pending(freed) = block.state
                    && done(&freed)
                {
                    block.state = Use::Free;
                    self.used -= block.size;
                    changed = true;
                }
            }
            if changed {
                chunk.join();
            }
        }
    }

    /// Removes chunks that have no block in use, until the pool has `keep` bytes or fewer. Returns the address and the
    /// size of each removed chunk.
    pub(crate) fn surplus(&mut self, keep: u64) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        let empty: Vec<(u64, u64)> = self
            .chunks
            .iter()
            .filter(|(_, chunk)| chunk.is_empty())
            .map(|(address, chunk)| (*address, chunk.size))
            .collect();
        for (address, size) in empty.into_iter().rev() {
            if self.reserved > keep {
                self.chunks.remove(&address);
                self.reserved -= size;
                out.push((address, size));
            }
        }
        out
    }
}

/// A place: an allocation type, and the kind and number of a location. Each place has a default pool and a current pool.
pub(crate) type PoolPlace = (u32, u32, i32);

/// Returns the place of the ordinary pools of a device. `ordinal` is the number that this process gives to the device.
pub(crate) const fn on_device(ordinal: i32) -> PoolPlace {
    (PINNED_TYPE, location::DEVICE, ordinal)
}

/// All pools of this process.
#[derive(Debug)]
pub(crate) struct Pools {
    pub(crate) pools: Objects<Pool>,
    pub(crate) defaults: BTreeMap<PoolPlace, u64>,
    pub(crate) current: BTreeMap<PoolPlace, u64>,
}

impl Pools {
    pub(crate) fn new() -> Self {
        Self { pools: Objects::new(Tag::Pool), defaults: BTreeMap::new(), current: BTreeMap::new() }
    }

    /// Returns the default pool of a place, and makes it first if necessary. `device` is the number that the
    /// machine gives to the place's device.
    pub(crate) fn default_of(&mut self, place: PoolPlace, device: Option<usize>) -> u64 {
        let pools = &mut self.pools;
        *self.defaults.entry(place).or_insert_with(|| {
            let mut pool = Pool::new(device, place);
            pool.is_default = true;
            pools.add(pool)
        })
    }

    /// Returns the current pool of a place. Allocations for which the program names no pool come from
    /// the current pool of their device.
    pub(crate) fn current_of(&mut self, place: PoolPlace, device: Option<usize>) -> u64 {
        match self.current.get(&place) {
            Some(pool) => *pool,
            None => self.default_of(place, device),
        }
    }

    pub(crate) fn set_current(&mut self, place: PoolPlace, pool: u64) {
        self.current.insert(place, pool);
    }

    /// Returns a pool, if the program has not destroyed it.
    pub(crate) fn get(&self, pool: u64) -> Result<&Pool, Status> {
        self.pools.get(pool).ok().filter(|pool| !pool.ended).ok_or(status::INVALID_VALUE)
    }

    pub(crate) fn get_mut(&mut self, pool: u64) -> Result<&mut Pool, Status> {
        self.pools.get_mut(pool).ok().filter(|pool| !pool.ended).ok_or(status::INVALID_VALUE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(sizes: &[u64]) -> Pool {
        let mut pool = Pool::new(Some(0), on_device(0));
        for (index, size) in sizes.iter().enumerate() {
            let address = (index as u64 + 1) << 40;
            let blocks = BTreeMap::from([(address, ChunkPart { size: *size, state: Use::Free })]);
            pool.chunks.insert(address, Chunk { size: *size, blocks });
            pool.reserved += size;
        }
        pool
    }

    #[test]
    fn the_first_block_that_fits_is_taken_and_the_rest_of_it_stays() {
        let mut pool = pool(&[1024, 4096]);
        assert_eq!(pool.find(2048, 1), Some(2 << 40));
        assert_eq!(pool.find(512, 1), Some(1 << 40));
        assert_eq!(pool.find(2048, 1), Some((2 << 40) + 2048));
        assert_eq!(pool.find(1024, 1), None);
        assert_eq!((pool.used, pool.used_high), (4608, 4608));
    }

    #[test]
    fn chunks_with_blocks_stay_and_others_go_down_to_the_threshold() {
        let mut pool = pool(&[1024, 1024, 1024]);
        let used = pool.find(512, 1);
        assert_eq!(used, Some(1 << 40));
        assert_eq!(pool.surplus(2048), [(3 << 40, 1024)]);
        assert_eq!(pool.surplus(0), [(2 << 40, 1024)]);
        assert_eq!(pool.reserved, 1024);
    }
}
