//! Allocates from memory pools, frees to them, and trims them.
//!
//! A pool takes device memory in chunks of at least 32 MiB. It cuts blocks from the chunks, and uses the first block that
//! fits. The stream that freed a block can use it again at once. Other streams can use it when that stream has reached the
//! free. The pool gives back chunks without blocks in use when the program trims it. A synchronisation does the same, as long
//! as the pool has more than its threshold.

use gpuslice_driver::types::{Status, status};

use super::objects::ProcessObjects;
use super::simulation::Simulation;
use crate::engine::{Completion, Target};
use crate::model::pools::{Freed, POOL_BLOCK_BYTES, Pool};
use crate::model::regions::{Origin, Region};
use crate::state::layout::MemoryKind;
use crate::status::Outcome;

/// The size of every chunk is a multiple of this number of bytes.
const CHUNK: u64 = 32 << 20;
impl ProcessObjects {
    /// Allocates a block from a pool for work in a stream, and returns its address.
    pub(crate) fn pool_allocate(
        &mut self,
        simulation: &Simulation,
        handle: u64,
        size: u64,
        stream: u64,
        context: u64,
    ) -> Result<u64, Status> {
        if size == 0 {
            return Err(status::INVALID_VALUE);
        }
        let block = size.checked_next_multiple_of(POOL_BLOCK_BYTES).ok_or(status::OUT_OF_MEMORY)?;
        self.settle_pool(simulation, handle);
        let pool = self.pools.get_mut(handle)?;
        if pool.is_imported {
            return Err(status::INVALID_VALUE);
        }
        let device = pool.device;
        let address = match pool.find(block, stream) {
            Some(address) => address,
            None => {
                self.grow_pool(simulation, handle, block)?;
                self.pools.get_mut(handle)?.find(block, stream).ok_or(status::OUT_OF_MEMORY)?
            }
        };
        let (backing, origin) = (address, Origin::Pool(handle));
        self.regions.add(address, Region { size, backing, device, context, origin, charged: 0, number: 0 });
        if let Some(device) = device {
            simulation.count_allocation(device);
        }
        Ok(address)
    }

    fn grow_pool(&mut self, simulation: &Simulation, handle: u64, block: u64) -> Outcome {
        let size = block.checked_next_multiple_of(CHUNK).ok_or(status::OUT_OF_MEMORY)?;
        let pool = self.pools.get(handle)?;
        if pool.most != 0 && pool.reserved().saturating_add(size) > pool.most {
            return Err(status::OUT_OF_MEMORY);
        }
        if let Some(device) = pool.device {
            let grown = simulation.grow(device, MemoryKind::Pool, size);
            if grown.is_err() {
                // Chunks that other pools of the device do not use can make room.
                self.release_pools(simulation, Some(device), Some(0));
                simulation.grow(device, MemoryKind::Pool, size)?;
            }
        }
        let Some(address) = simulation.arena.take(size, CHUNK) else {
            if let Some(device) = self.pools.get(handle)?.device {
                simulation.shrink(device, MemoryKind::Pool, size);
            }
            return Err(status::OUT_OF_MEMORY);
        };
        let pool = self.pools.get_mut(handle)?;
        pool.add_chunk(address, size);
        Ok(())
    }

    /// Frees a block. Without `freed` it is free at once, otherwise when the stream of `freed` reaches the free.
    pub(crate) fn pool_free(
        &mut self,
        simulation: &Simulation,
        address: u64,
        freed: Option<Freed>,
    ) -> Outcome {
        let region = *self.regions.at(address).ok_or(status::INVALID_VALUE)?;
        let Origin::Pool(handle) = region.origin else { return Err(status::INVALID_VALUE) };
        self.regions.remove(address);
        if let Some(number) = self.borrowed.take_loan(address) {
            simulation.shared.lock().withdraw(number);
        }
        let pool = self.pools.pools.get_mut(handle)?;
        pool.free(address, freed);
        let ended = pool.ended;
        if let Some(device) = region.device {
            simulation.uncount_allocation(device);
        }
        if ended {
            let _ = self.trim_pool(simulation, handle, None);
        }
        Ok(())
    }

    /// Frees a block at once. This is right if all work before the free is done.
    pub(crate) fn free_block_now(&mut self, simulation: &Simulation, address: u64) -> Outcome {
        self.pool_free(simulation, address, None)
    }

    fn settle_pool(&mut self, simulation: &Simulation, handle: u64) {
        let mut known: Vec<(Freed, bool)> = Vec::new();
        let mut done = |freed: &Freed| {
            if let Some((_, done)) = known.iter().find(|(other, _)| other == freed) {
                return *done;
            }
            let done = simulation.completion(freed.device, Target::Ticket(freed.ticket)) == Completion::Done;
            known.push((*freed, done));
            done
        };
        if let Ok(pool) = self.pools.pools.get_mut(handle) {
            pool.settle(&mut done);
        }
    }

    /// Returns a pool, after it has found out which frees were reached. So its counters are right.
    pub(crate) fn settled(&mut self, simulation: &Simulation, handle: u64) -> Result<&mut Pool, Status> {
        self.settle_pool(simulation, handle);
        self.pools.get_mut(handle)
    }

    /// Trims the pools of a device: each to its threshold, or to `keep` bytes. Without a device, trims all pools.
    pub(crate) fn release_pools(
        &mut self,
        simulation: &Simulation,
        device: Option<usize>,
        keep: Option<u64>,
    ) {
        for handle in self.pools.pools.matching(|pool| pool.device == device || device.is_none()) {
            let _ = self.trim_pool(simulation, handle, keep);
        }
    }

    /// Gives back chunks of a pool that has more than `keep` bytes. Without `keep`, the pool's threshold counts.
    pub(crate) fn trim_pool(&mut self, simulation: &Simulation, handle: u64, keep: Option<u64>) -> Outcome {
        self.settle_pool(simulation, handle);
        let pool = self.pools.pools.get_mut(handle).map_err(|_| status::INVALID_VALUE)?;
        let keep = if pool.ended { 0 } else { keep.unwrap_or(pool.threshold) };
        let (device, surplus) = (pool.device, pool.surplus(keep));
        let gone = pool.is_gone();
        for (address, size) in surplus {
            simulation.arena.give(address, size);
            if let Some(device) = device {
                simulation.shrink(device, MemoryKind::Pool, size);
            }
        }
        if gone {
            let _ = self.pools.pools.remove(handle);
        }
        Ok(())
    }

    /// Destroys a pool for the program. The pool itself ends with its last allocation.
    pub(crate) fn end_pool(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        let pool = self.pools.get_mut(handle)?;
        if pool.is_default {
            return Err(status::INVALID_VALUE);
        }
        pool.ended = true;
        self.pools.current.retain(|_, current| *current != handle);
        self.trim_pool(simulation, handle, Some(0))
    }

    /// Frees the blocks that were allocated in a context, and trims the pools of the context's device.
    pub(crate) fn end_blocks_of(&mut self, simulation: &Simulation, context: u64, device: usize) {
        let blocks = self
            .regions
            .matching(|region| matches!(region.origin, Origin::Pool(_)) && region.context == context);
        for address in blocks {
            let _ = self.free_block_now(simulation, address);
        }
        self.release_pools(simulation, Some(device), Some(0));
    }
}
