//! What memory do graphs hold?
//!
//! Each device has a graph pool, apart from all others. Instantiating takes nothing. A launch or an upload makes the
//! pool large enough for what is needed at the most at a time: by allocations that live, and by graphs that run or
//! wait. Graphs of one stream follow each other and share memory; graphs of different streams do not. What nobody
//! needs any more stays in the pool, to be used again or to be trimmed. Memory is in blocks, and a block is never two
//! executables' at a time.

use gpuslice_driver::types::{Status, status};

use super::objects::ProcessObjects;
use super::simulation::Simulation;
use crate::engine::{Completion, Target, Ticket};
use crate::model::executables::AUTO_FREE;
use crate::model::graphs::{Allocation, GRANULE, Graph, pages};
use crate::model::regions::{Origin, Region};
use crate::model::streams::StreamPlace;
use crate::state::layout::MemoryKind;
use crate::status::Outcome;

impl ProcessObjects {
    /// An address for an allocation of a graph; no memory yet, and never anybody else's.
    pub(crate) fn graph_address(&self, simulation: &Simulation, size: u64) -> Result<u64, Status> {
        if size == 0 {
            return Err(status::INVALID_VALUE);
        }
        simulation.arena.take(pages(size), GRANULE).ok_or(status::OUT_OF_MEMORY)
    }

    /// What a pool of a device must have now: what lives, and the largest of what runs or waits in each stream.
    fn demand(&mut self, simulation: &Simulation, device: usize) -> u64 {
        let block = simulation.config.graph_block;
        let blocks = |bytes: u64| bytes.div_ceil(block) * block;
        let mut lanes: Vec<(StreamPlace, u64)> = Vec::new();
        let mut live = 0;
        for ((_, of), hold) in self.graph_holds.iter_mut().filter(|((_, of), _)| *of == device) {
            let _ = of;
            let kept = blocks(hold.kept);
            live += kept;
            let Some((place, ticket)) = hold.flight else { continue };
            let done =
                |ticket| simulation.completion(place.device, Target::Ticket(ticket)) == Completion::Done;
            if ticket.is_some_and(done) {
                hold.flight = None;
                continue;
            }
            let rest = hold.most.saturating_sub(kept);
            match lanes.iter_mut().find(|(lane, _)| lane.device == place.device && lane.id == place.id) {
                Some((_, most)) => *most = rest.max(*most),
                None => lanes.push((place, rest)),
            }
        }
        self.graph_holds.retain(|_, hold| !hold.ended || hold.kept > 0 || hold.flight.is_some());
        live + lanes.iter().map(|(_, most)| most).sum::<u64>()
    }

    /// Makes the pool of a device large enough for everything that is needed now.
    fn supply(&mut self, simulation: &Simulation, device: usize) -> Outcome {
        let demand = self.demand(simulation, device);
        let mapped = self.mapped(device);
        let pool = self.graph_pools.entry(device).or_default();
        let growth = demand.saturating_sub(pool.reserved);
        simulation.grow(device, MemoryKind::Graph, growth)?;
        pool.reserved += growth;
        pool.reserved_high = pool.reserved_high.max(pool.reserved);
        pool.used_high = pool.used_high.max(mapped.min(pool.reserved));
        Ok(())
    }

    /// What is mapped by executables of a device, counted as often as it is mapped.
    fn mapped(&self, device: usize) -> u64 {
        let holds = self.graph_holds.iter().filter(|((_, of), _)| *of == device);
        holds.map(|(_, hold)| if hold.mapped { hold.most } else { pages(hold.kept) }).sum()
    }

    /// Brings an executable's memory to the devices as for a launch into a stream.
    pub(crate) fn back_exec(&mut self, simulation: &Simulation, handle: u64, place: StreamPlace) -> Outcome {
        let block = simulation.config.graph_block;
        let needs = self.execs.get(handle)?.needs();
        let mut before = Vec::new();
        for (device, most) in &needs {
            let hold = self.graph_holds.entry((handle, *device)).or_default();
            before.push((*device, hold.flight.replace((place, None)), hold.mapped));
            hold.most = most.div_ceil(block) * block;
            hold.mapped = true;
        }
        let outcome = needs.iter().try_for_each(|(device, _)| self.supply(simulation, *device));
        if outcome.is_err() {
            for (device, flight, mapped) in before {
                if let Some(hold) = self.graph_holds.get_mut(&(handle, device)) {
                    (hold.flight, hold.mapped) = (flight, mapped);
                }
            }
        }
        outcome
    }

    /// Notes when what [`Self::back_exec`] was for is done; none: at once.
    pub(crate) fn note_flight(&mut self, handle: u64, ticket: Option<Ticket>) {
        for ((_, _), hold) in self.graph_holds.iter_mut().filter(|((exec, _), _)| *exec == handle) {
            hold.flight = hold.flight.take().filter(|_| ticket.is_some()).map(|(place, _)| (place, ticket));
        }
    }

    /// Makes an executable's allocations alive for a launch into a stream.
    pub(crate) fn take_graph_blocks(
        &mut self,
        simulation: &Simulation,
        handle: u64,
        place: StreamPlace,
    ) -> Outcome {
        let exec = self.execs.get(handle)?;
        if !exec.has_memory() {
            return Ok(());
        }
        let (flags, context, allocations) = (exec.flags, exec.context, exec.allocations());
        let left: Vec<u64> = allocations.iter().map(|one| one.address).collect();
        if left.iter().any(|address| self.regions.at(*address).is_some()) {
            // A second allocation at the same address would leak the first.
            if flags & AUTO_FREE == 0 {
                return Err(status::INVALID_VALUE);
            }
            for address in left {
                let _ = self.free_graph_block(address);
            }
        }
        self.back_exec(simulation, handle, place)?;
        for one in allocations {
            let size = self.regions.at(one.address).map_or(one.size, |earlier| earlier.size.max(one.size));
            self.enliven(handle, context, Allocation { size, ..one });
        }
        Ok(())
    }

    /// Makes an allocation of an executable alive.
    fn enliven(&mut self, handle: u64, context: u64, one: Allocation) {
        let (backing, device, origin) = (one.address, Some(one.device), Origin::Graph);
        let region = Region { size: one.size, backing, device, context, origin, charged: 0, number: 0 };
        let before = self.regions.at(one.address).map_or(0, |earlier| pages(earlier.size));
        self.regions.add(one.address, region);
        self.graph_blocks.insert(one.address, handle);
        if let Some(hold) = self.graph_holds.get_mut(&(handle, one.device)) {
            hold.kept = (hold.kept + pages(one.size)).saturating_sub(before);
        }
    }

    /// Frees what a launch frees by itself: what it takes again at the same address after the last free stays.
    pub(crate) fn give_graph_blocks(&mut self, handle: u64) -> Outcome {
        let exec = self.execs.get(handle)?;
        let (context, frees) = (exec.context, exec.frees());
        let mut kept = exec.kept();
        kept.retain(|one| frees.contains(&one.address));
        for address in frees {
            let _ = self.free_graph_block(address);
        }
        for one in kept {
            self.enliven(handle, context, one);
        }
        Ok(())
    }

    /// Frees one allocation of a graph. Its address stays the graph's, its memory the pool's.
    pub(crate) fn free_graph_block(&mut self, address: u64) -> Outcome {
        let region = self.regions.at(address).filter(|region| region.origin == Origin::Graph);
        let region = *region.ok_or(status::INVALID_VALUE)?;
        self.regions.remove(address);
        let exec = self.graph_blocks.remove(&address).unwrap_or(0);
        if let Some(hold) = self.graph_holds.get_mut(&(exec, region.device.unwrap_or(0))) {
            hold.kept = hold.kept.saturating_sub(pages(region.size));
        }
        Ok(())
    }

    /// An executable ends: what it has runs on, what lives stays alive, and the memory stays in the pool.
    pub(crate) fn end_exec(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        if let Some((device, _, event)) = self.execs.remove(handle)?.done {
            // Gone already where its context is.
            let _ = simulation.shared.lock().engine(device).remove_event(event);
        }
        for ((_, _), hold) in self.graph_holds.iter_mut().filter(|((exec, _), _)| *exec == handle) {
            (hold.ended, hold.mapped) = (true, hold.flight.is_some());
        }
        Ok(())
    }

    /// Gives back what the pool of a device does not need now.
    pub(crate) fn trim_graph_pool(&mut self, simulation: &Simulation, device: usize) {
        let demand = self.demand(simulation, device);
        for (_, hold) in self.graph_holds.iter_mut().filter(|((_, of), _)| *of == device) {
            hold.mapped = hold.flight.is_some();
        }
        let Some(pool) = self.graph_pools.get_mut(&device) else { return };
        let surplus = pool.reserved.saturating_sub(demand);
        pool.reserved -= surplus;
        simulation.shrink(device, MemoryKind::Graph, surplus);
    }

    /// Ends executables and graph memory of a context.
    pub(crate) fn end_graph_memory_of(&mut self, simulation: &Simulation, context: u64) {
        let live =
            self.regions.matching(|region| region.origin == Origin::Graph && region.context == context);
        for address in live {
            let _ = self.free_graph_block(address);
        }
        for exec in self.execs.matching(|exec| exec.context == context) {
            let _ = self.end_exec(simulation, exec);
            self.note_flight(exec, None);
        }
        let devices: Vec<usize> = self.graph_pools.keys().copied().collect();
        for device in devices {
            self.trim_graph_pool(simulation, device);
        }
    }

    /// `CUgraphMem_attribute`.
    pub(crate) fn graph_attribute(&mut self, device: usize, attribute: u32) -> Result<u64, Status> {
        let mapped = self.mapped(device);
        let pool = self.graph_pools.entry(device).or_default();
        Ok(match attribute {
            0 => mapped.min(pool.reserved),
            1 => pool.used_high,
            2 => pool.reserved,
            3 => pool.reserved_high,
            _ => return Err(status::INVALID_VALUE),
        })
    }

    /// Lets a high-water mark start again: the only thing that can be set.
    pub(crate) fn reset_graph_attribute(&mut self, device: usize, attribute: u32, value: u64) -> Outcome {
        let mapped = self.mapped(device);
        let pool = self.graph_pools.entry(device).or_default();
        match (attribute, value) {
            (1, 0) => pool.used_high = mapped.min(pool.reserved),
            (3, 0) => pool.reserved_high = pool.reserved,
            _ => return Err(status::INVALID_VALUE),
        }
        Ok(())
    }

    /// Refuses a second executable of a graph that has memory.
    pub(crate) fn check_single(&self, graph: u64) -> Outcome {
        let second = self.execs.iter().any(|(_, exec)| exec.source == graph && exec.has_memory());
        if second { Err(status::NOT_SUPPORTED) } else { Ok(()) }
    }

    /// Whether a graph or one of its children takes or frees memory.
    pub(crate) fn has_memory(&self, graph: &Graph) -> bool {
        graph.has_memory() || self.children_of(graph).values().any(Graph::has_memory)
    }

    /// Whether an address is one that a graph allocates, or that lives on after one.
    pub(crate) fn is_of_graph(&self, address: u64) -> bool {
        let allocates = |graph: &Graph| graph.allocations().iter().any(|one| one.address == address);
        self.graph_blocks.contains_key(&address)
            || self.graphs.iter().any(|(_, graph)| allocates(graph))
            || self.execs.iter().any(|(_, exec)| exec.allocations().iter().any(|one| one.address == address))
    }

    /// Refuses a free node for an address that is none of a graph's, or that its own graph has freed.
    pub(crate) fn check_free(&self, graph: u64, address: u64) -> Outcome {
        let own = self.graphs.get(graph)?;
        let is_own = own.allocations().iter().any(|one| one.address == address);
        let allowed = if is_own {
            own.has_unfreed(address)
        } else {
            self.is_of_graph(address) && !own.frees().contains(&address)
        };
        if allowed { Ok(()) } else { Err(status::INVALID_VALUE) }
    }
}
