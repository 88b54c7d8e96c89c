//! What memory do graphs hold?
//!
//! Each device has a graph pool. A launch, or an upload, sets aside in it what the executable's allocations hold
//! at the most; the pool grows where it has not enough, and keeps what is set aside no more until it is trimmed.

use gpuslice_driver::types::{Status, status};

use crate::arena::PAGE;
use crate::driver::Outcome;
use crate::engine::{Completion, Target};
use crate::graphs::{AUTO_FREE, Graph};
use crate::local::Local;
use crate::regions::{Origin, Region};
use crate::simulation::Simulation;
use crate::state::Kind;

/// The graph pool of a device.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GraphPool {
    /// Device memory that it has.
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    /// Allocations that live.
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    /// Set aside for executables, or alive without one.
    aside: u64,
}

/// What the pool grows by.
const GRANULE: u64 = 2 << 20;

fn rounded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX)
}

impl Local {
    /// An address for an allocation of a graph; no memory yet.
    pub(crate) fn graph_address(&self, simulation: &Simulation, size: u64) -> Result<u64, Status> {
        if size == 0 {
            return Err(status::INVALID_VALUE);
        }
        simulation.arena.take(size, PAGE).ok_or(status::OUT_OF_MEMORY)
    }

    /// Sets memory aside for an executable.
    pub(crate) fn back_exec(&mut self, simulation: &Simulation, exec: u64) -> Outcome {
        let exec = self.execs.get_mut(exec)?;
        let (device, wanted) = (exec.device, rounded(exec.graph.footprint()));
        let more = wanted.saturating_sub(exec.backed);
        let pool = self.graph_pools.entry(device).or_default();
        let growth = (pool.aside + more).saturating_sub(pool.reserved);
        simulation.grow(device, Kind::Graph, growth)?;
        pool.reserved += growth;
        pool.reserved_high = pool.reserved_high.max(pool.reserved);
        pool.aside += more;
        exec.backed = exec.backed.max(wanted);
        Ok(())
    }

    /// Makes an executable's allocations alive for a launch.
    pub(crate) fn take_graph_blocks(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        let exec = self.execs.get(handle)?;
        let (graph, flags, context) = (exec.graph.clone(), exec.flags, exec.context);
        if !graph.has_memory() {
            return Ok(());
        }
        let allocations = graph.allocations();
        let left =
            |local: &Self| allocations.iter().any(|(address, ..)| local.regions.at(*address).is_some());
        if left(self) {
            if flags & AUTO_FREE == 0 {
                return Err(status::INVALID_VALUE);
            }
            for (address, ..) in &allocations {
                let _ = self.free_graph_block(simulation, *address);
            }
        }
        self.back_exec(simulation, handle)?;
        for (address, size, device) in allocations {
            let origin = Origin::Graph;
            let region = Region {
                size,
                backing: address,
                device: Some(device),
                context,
                origin,
                charged: 0,
                number: 0,
            };
            self.regions.add(address, region);
            let pool = self.graph_pools.entry(device).or_default();
            pool.used += size;
        }
        if let Some(pool) = self.graph_pools.get_mut(&self.execs.get(handle)?.device) {
            let live: u64 = pool.used.min(pool.aside);
            pool.used_high = pool.used_high.max(live);
        }
        Ok(())
    }

    /// Frees what a launch frees by itself.
    pub(crate) fn give_graph_blocks(&mut self, simulation: &Simulation, graph: &Graph) {
        for address in graph.frees() {
            let _ = self.free_graph_block(simulation, address);
        }
    }

    /// Frees one allocation of a graph. Its address stays the graph's.
    pub(crate) fn free_graph_block(&mut self, simulation: &Simulation, address: u64) -> Outcome {
        let region = self.regions.at(address).filter(|region| region.origin == Origin::Graph);
        let region = *region.ok_or(status::INVALID_VALUE)?;
        self.regions.remove(address);
        let device = region.device.unwrap_or(0);
        let orphan = self.orphans.remove(&address).unwrap_or(0);
        if let Some(pool) = self.graph_pools.get_mut(&device) {
            pool.used = pool.used.saturating_sub(region.size);
            pool.aside = pool.aside.saturating_sub(orphan);
        }
        if orphan > 0 {
            simulation.arena.give(address, region.size);
        }
        Ok(())
    }

    /// An executable ends: what is set aside for it stays in the pool, what still lives stays alive.
    pub(crate) fn end_exec(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        let exec = self.execs.remove(handle)?;
        let mut kept = 0;
        for (address, size, _) in exec.graph.allocations() {
            if self.regions.at(address).is_some() {
                self.orphans.insert(address, rounded(size));
                kept += rounded(size);
            }
        }
        if let Some(pool) = self.graph_pools.get_mut(&exec.device) {
            pool.aside = pool.aside.saturating_sub(exec.backed).saturating_add(kept);
            // Several that live may round up to more than the launch needed.
            let growth = pool.aside.saturating_sub(pool.reserved);
            if simulation.grow(exec.device, Kind::Graph, growth).is_ok() {
                pool.reserved += growth;
            }
        }
        Ok(())
    }

    /// Gives back what the pool of a device does not need now.
    pub(crate) fn trim_graph_pool(&mut self, simulation: &Simulation, device: usize) {
        let idle = |local: &Self, handle: u64| {
            let Ok(exec) = local.execs.get(handle) else { return false };
            let alive =
                exec.graph.allocations().iter().any(|(address, ..)| local.regions.at(*address).is_some());
            let done = exec.last.is_none_or(|(place, ticket)| {
                simulation.completion(place.device, Target::Ticket(ticket)) == Completion::Done
            });
            exec.device == device && done && !alive
        };
        let handles = self.execs.matching(|exec| exec.device == device && exec.backed > 0);
        let idle: Vec<u64> = handles.into_iter().filter(|handle| idle(self, *handle)).collect();
        let Some(pool) = self.graph_pools.get_mut(&device) else { return };
        for handle in idle {
            if let Ok(exec) = self.execs.get_mut(handle) {
                pool.aside = pool.aside.saturating_sub(exec.backed);
                exec.backed = 0;
            }
        }
        let surplus = pool.reserved.saturating_sub(pool.aside);
        pool.reserved -= surplus;
        simulation.shrink(device, Kind::Graph, surplus);
    }

    /// Ends executables and graph memory of a context.
    pub(crate) fn end_graph_memory_of(&mut self, simulation: &Simulation, context: u64, device: usize) {
        let live =
            self.regions.matching(|region| region.origin == Origin::Graph && region.context == context);
        for address in live {
            let _ = self.free_graph_block(simulation, address);
        }
        for exec in self.execs.matching(|exec| exec.context == context) {
            let _ = self.end_exec(simulation, exec);
        }
        self.trim_graph_pool(simulation, device);
    }

    /// `CUgraphMem_attribute`.
    pub(crate) fn graph_attribute(&mut self, device: usize, attribute: u32) -> Result<u64, Status> {
        let pool = self.graph_pools.entry(device).or_default();
        Ok(match attribute {
            0 => pool.used,
            1 => pool.used_high,
            2 => pool.reserved,
            3 => pool.reserved_high,
            _ => return Err(status::INVALID_VALUE),
        })
    }

    /// Lets a high-water mark start again: the only thing that can be set.
    pub(crate) fn reset_graph_attribute(&mut self, device: usize, attribute: u32, value: u64) -> Outcome {
        let pool = self.graph_pools.entry(device).or_default();
        match (attribute, value) {
            (1, 0) => pool.used_high = pool.used,
            (3, 0) => pool.reserved_high = pool.reserved,
            _ => return Err(status::INVALID_VALUE),
        }
        Ok(())
    }

    /// Refuses a second executable of a graph that has memory.
    pub(crate) fn check_single(&self, graph: u64) -> Outcome {
        let memory = self.graphs.get(graph)?.has_memory();
        let second = self.execs.iter().any(|(_, exec)| exec.source == graph);
        if memory && second { Err(status::NOT_SUPPORTED) } else { Ok(()) }
    }
}
