//! Memory of the allocations that graphs make.
//!
//! Each device has a graph pool, which is separate from all other pools. Instantiation takes no memory. A launch or an upload
//! grows the pool to the largest need at that time. This is what living allocations need, and what graphs need that run or wait.
//! Graphs of one stream run one after another, so they share memory. Graphs of different streams do not. Memory that nothing
//! uses any more stays in the pool until it is used again or the program trims the pool. Memory is in blocks, and no two
//! executable graphs share a block.

use gpuslice_driver::types::{Status, status};

use super::objects::ProcessObjects;
use super::simulation::Simulation;
use crate::engine::{Completion, Target, Ticket};
use crate::model::executables::AUTO_FREE;
use crate::model::graphs::{Allocation, GRAPH_GRANULE_BYTES, Graph, pages};
use crate::model::regions::{Origin, Region};
use crate::model::streams::StreamPlace;
use crate::state::layout::MemoryKind;
use crate::status::Outcome;

impl ProcessObjects {
    /// Takes an address for an allocation of a graph. No memory is mapped there yet. No other allocation gets the address later.
    pub(crate) fn graph_address(&self, simulation: &Simulation, size: u64) -> Result<u64, Status> {
        if size == 0 {
            return Err(status::INVALID_VALUE);
        }
        simulation.arena.take(pages(size), GRAPH_GRANULE_BYTES).ok_or(status::OUT_OF_MEMORY)
    }

    /// Returns the bytes that the pool of a device needs now. These are the living allocations, and for each stream the largest
    /// need of a graph that runs or waits there. A graph's own living allocations are not counted twice.
    ///
    /// Also forgets launches that are done, and holds of destroyed executables that need nothing more.
    fn demand(&mut self, simulation: &Simulation, device: usize) -> u64 {
        let block = simulation.config.graph_block;
        let blocks = |bytes: u64| bytes.div_ceil(block) * block;
        let mut lanes: Vec<(StreamPlace, u64)> = Vec::new();
        let mut live = 0;
        for ((_, of), hold) in self.graph_holds.iter_mut().filter(|((_, of), _)| *of == device) {
            let _ = of;
            let kept = blocks(hold.kept);
            live += kept;
            let Some((place, ticket)) = hold.newest_launch else { continue };
            let done =
                |ticket| simulation.completion(place.device, Target::Ticket(ticket)) == Completion::Done;
            if ticket.is_some_and(done) {
                hold.newest_launch = None;
                continue;
            }
            let rest = hold.most.saturating_sub(kept);
            match lanes.iter_mut().find(|(lane, _)| lane.device == place.device && lane.id == place.id) {
                Some((_, most)) => *most = rest.max(*most),
                None => lanes.push((place, rest)),
            }
        }
        self.graph_holds.retain(|_, hold| !hold.ended || hold.kept > 0 || hold.newest_launch.is_some());
        live + lanes.iter().map(|(_, most)| most).sum::<u64>()
    }

    /// Grows the pool of a device to what it needs now.
    fn grow_to_demand(&mut self, simulation: &Simulation, device: usize) -> Outcome {
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

    /// Returns the bytes that executables have mapped on a device. Memory that two of them have mapped counts twice.
    fn mapped(&self, device: usize) -> u64 {
        let holds = self.graph_holds.iter().filter(|((_, of), _)| *of == device);
        holds.map(|(_, hold)| if hold.mapped { hold.most } else { pages(hold.kept) }).sum()
    }

    /// Provides the memory that an executable needs for a launch into a stream. If a device has too little, the
    /// executable holds what it held before.
    pub(crate) fn back_exec(&mut self, simulation: &Simulation, handle: u64, place: StreamPlace) -> Outcome {
        let block = simulation.config.graph_block;
        let needs = self.execs.get(handle)?.needs();
        let mut before = Vec::new();
        for (device, most) in &needs {
            let hold = self.graph_holds.entry((handle, *device)).or_default();
            before.push((*device, hold.newest_launch.replace((place, None)), hold.mapped));
            hold.most = most.div_ceil(block) * block;
            hold.mapped = true;
        }
        let outcome = needs.iter().try_for_each(|(device, _)| self.grow_to_demand(simulation, *device));
        if outcome.is_err() {
            for (device, newest_launch, mapped) in before {
                if let Some(hold) = self.graph_holds.get_mut(&(handle, device)) {
                    (hold.newest_launch, hold.mapped) = (newest_launch, mapped);
                }
            }
        }
        outcome
    }

    /// Records the ticket of the launch for which [`Self::back_exec`] provided memory. `None` means
    /// that the launch is done already.
    pub(crate) fn note_launch(&mut self, handle: u64, ticket: Option<Ticket>) {
        for ((_, _), hold) in self.graph_holds.iter_mut().filter(|((exec, _), _)| *exec == handle) {
            hold.newest_launch =
                hold.newest_launch.take().filter(|_| ticket.is_some()).map(|(place, _)| (place, ticket));
        }
    }

    /// Makes an executable's allocations live, for a launch into a stream.
    ///
    /// If an allocation of an earlier launch still lives, the launch fails, or with the flag
    /// [`AUTO_FREE`] the launch frees it first.
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
            // A second allocation at the same address would make the first one unreachable.
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
            self.make_live(handle, context, Allocation { size, ..one });
        }
        Ok(())
    }

    /// Makes one allocation of an executable live: adds its region, and counts its bytes.
    fn make_live(&mut self, handle: u64, context: u64, one: Allocation) {
        let (backing, device, origin) = (one.address, Some(one.device), Origin::Graph);
        let region = Region { size: one.size, backing, device, context, origin, charged: 0, number: 0 };
        let before = self.regions.at(one.address).map_or(0, |earlier| pages(earlier.size));
        self.regions.add(one.address, region);
        self.graph_blocks.insert(one.address, handle);
        if let Some(hold) = self.graph_holds.get_mut(&(handle, one.device)) {
            hold.kept = (hold.kept + pages(one.size)).saturating_sub(before);
        }
    }

    /// Frees the memory that the launched graph itself frees. An allocation stays if the graph makes it after the graph's
    /// last free of the same address.
    pub(crate) fn give_graph_blocks(&mut self, handle: u64) -> Outcome {
        let exec = self.execs.get(handle)?;
        let (context, frees) = (exec.context, exec.frees());
        let mut kept = exec.kept();
        kept.retain(|one| frees.contains(&one.address));
        for address in frees {
            let _ = self.free_graph_block(address);
        }
        for one in kept {
            self.make_live(handle, context, one);
        }
        Ok(())
    }

    /// Frees one allocation of a graph. The graph keeps the address, and the pool keeps the memory.
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

    /// Ends an executable. Its launches continue, its living allocations stay, and its memory stays in the pool.
    pub(crate) fn end_exec(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        if let Some((device, _, event)) = self.execs.remove(handle)?.done {
            // If the context has ended, the event has ended with it.
            let _ = simulation.shared.lock().engine(device).remove_event(event);
        }
        for ((_, _), hold) in self.graph_holds.iter_mut().filter(|((exec, _), _)| *exec == handle) {
            (hold.ended, hold.mapped) = (true, hold.newest_launch.is_some());
        }
        Ok(())
    }

    /// Gives back the memory of a device's graph pool that the pool does not need now.
    pub(crate) fn trim_graph_pool(&mut self, simulation: &Simulation, device: usize) {
        let demand = self.demand(simulation, device);
        for (_, hold) in self.graph_holds.iter_mut().filter(|((_, of), _)| *of == device) {
            hold.mapped = hold.newest_launch.is_some();
        }
        let Some(pool) = self.graph_pools.get_mut(&device) else { return };
        let surplus = pool.reserved.saturating_sub(demand);
        pool.reserved -= surplus;
        simulation.shrink(device, MemoryKind::Graph, surplus);
    }

    /// Ends the executables of a context, and the memory of its graphs.
    pub(crate) fn end_graph_memory_of(&mut self, simulation: &Simulation, context: u64) {
        let live =
            self.regions.matching(|region| region.origin == Origin::Graph && region.context == context);
        for address in live {
            let _ = self.free_graph_block(address);
        }
        for exec in self.execs.matching(|exec| exec.context == context) {
            let _ = self.end_exec(simulation, exec);
            self.note_launch(exec, None);
        }
        let devices: Vec<usize> = self.graph_pools.keys().copied().collect();
        for device in devices {
            self.trim_graph_pool(simulation, device);
        }
    }

    /// Returns the value of a `CUgraphMem_attribute` of a device.
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

    /// Sets a high-water mark back to the present value. No other attribute can be set.
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

    /// Fails if a graph with memory nodes already has an executable, because it may have only one.
    pub(crate) fn check_single(&self, graph: u64) -> Outcome {
        let second = self.execs.iter().any(|(_, exec)| exec.source == graph && exec.has_memory());
        if second { Err(status::NOT_SUPPORTED) } else { Ok(()) }
    }

    /// Returns true if a graph, or a graph of a child node, allocates or frees memory.
    pub(crate) fn has_memory(&self, graph: &Graph) -> bool {
        graph.has_memory() || self.children_of(graph).values().any(Graph::has_memory)
    }

    /// Returns true if a graph allocates at an address, or if a living allocation of a graph is there.
    pub(crate) fn is_of_graph(&self, address: u64) -> bool {
        let allocates = |graph: &Graph| graph.allocations().iter().any(|one| one.address == address);
        self.graph_blocks.contains_key(&address)
            || self.graphs.iter().any(|(_, graph)| allocates(graph))
            || self.execs.iter().any(|(_, exec)| exec.allocations().iter().any(|one| one.address == address))
    }

    /// Fails if a free node may not free an address, because no graph allocates there, or because
    /// the same graph frees it already.
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
