//! Device memory that is no allocation: of contexts, modules, libraries and limits. The table has the bytes of each, and the
//! context with which the memory ends.

use crate::slice::handle::Slice;
use gpuslice_region::Device;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Owner of memory that is charged and is no allocation, by the driver's handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum OverheadOwner {
    /// The context itself.
    Context,
    /// The context's heaps, stacks and buffers.
    Limits,
    /// A module.
    Module(usize),
    /// A library, in one of the contexts that it is loaded into.
    Library(usize),
    /// A green context.
    Green(usize),
    /// No known owner. A measurement has found the memory. Or code was unloaded and the driver did not give its memory back.
    Rest,
}

impl OverheadOwner {
    /// Returns true if the holder is a context, and neither code nor [`Rest`](Self::Rest).
    fn is_context(self) -> bool {
        match self {
            Self::Context | Self::Limits | Self::Green(_) => true,
            Self::Module(_) | Self::Library(_) | Self::Rest => false,
        }
    }
}

/// Memory that was charged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Overhead {
    holder: OverheadOwner,
    /// Context that the memory ends with.
    context: usize,
    device: Device,
    bytes: u64,
}

impl Overhead {
    /// Returns true if `holder` holds this memory.
    pub(crate) fn is_of(&self, holder: OverheadOwner) -> bool {
        self.holder == holder
    }

    /// Returns the context that the memory ends with.
    pub(crate) fn context(&self) -> usize {
        self.context
    }

    /// Returns the bytes of the memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives the memory back.
    pub(crate) fn end(self, slice: &Slice) {
        give_back(slice, self.holder, self.device, self.bytes);
    }
}

/// Memory that this process was charged for and that is no allocation.
#[derive(Debug, Default)]
pub(crate) struct Overheads {
    held: Mutex<HashMap<(OverheadOwner, usize), (Device, u64)>>,
}

impl Overheads {
    /// Adds bytes that were charged for a holder in a context.
    pub(crate) fn add(
        &self,
        slice: &Slice,
        holder: OverheadOwner,
        context: usize,
        device: Device,
        bytes: u64,
    ) {
        // The count comes before the insertion, after which another thread can find the memory and give it back.
        if holder.is_context() {
            slice.member().begin_context(device, bytes);
        }
        self.insert(holder, context, device, bytes);
    }

    fn insert(&self, holder: OverheadOwner, context: usize, device: Device, bytes: u64) {
        // Contexts are in the table even if they took nothing, because `contexts_made` lists them.
        if bytes > 0 || holder == OverheadOwner::Context {
            let mut held = self.held.lock();
            let (_, sum) = held.entry((holder, context)).or_insert((device, 0));
            *sum = sum.saturating_add(bytes);
        }
    }

    /// Returns the bytes that a holder has in a context.
    pub(crate) fn bytes(&self, holder: OverheadOwner, context: usize) -> u64 {
        self.held.lock().get(&(holder, context)).map_or(0, |(_, bytes)| *bytes)
    }

    /// Takes out all memory of a holder, in any context.
    pub(crate) fn take(&self, holder: OverheadOwner) -> Vec<Overhead> {
        self.take_where(|of, _| of == holder)
    }

    /// Takes out all memory that ends with a context.
    pub(crate) fn take_of(&self, context: usize) -> Vec<Overhead> {
        self.take_where(|_, of| of == context)
    }

    fn take_where(&self, fits: impl Fn(OverheadOwner, usize) -> bool) -> Vec<Overhead> {
        let mut held = self.held.lock();
        let taken = held.extract_if(|(holder, context), _| fits(*holder, *context));
        taken
            .map(|((holder, context), (device, bytes))| Overhead { holder, context, device, bytes })
            .collect()
    }

    /// Puts back memory whose context has not ended.
    pub(crate) fn put_back(&self, overheads: Vec<Overhead>) {
        for Overhead { holder, context, device, bytes } in overheads {
            self.insert(holder, context, device, bytes);
        }
    }

    /// Gives back up to `bytes` of a holder's memory in a context. Returns the bytes that were given back.
    pub(crate) fn shrink(&self, slice: &Slice, holder: OverheadOwner, context: usize, bytes: u64) -> u64 {
        let mut held = self.held.lock();
        let Some((device, sum)) = held.get_mut(&(holder, context)) else { return 0 };
        let (device, less) = (*device, bytes.min(*sum));
        *sum = sum.saturating_sub(less);
        drop(held);
        give_back(slice, holder, device, less);
        less
    }

    /// Gives back up to `bytes` of the memory of any code in a context. Returns the bytes that were given back.
    pub(crate) fn shrink_code(&self, slice: &Slice, context: usize, bytes: u64) -> u64 {
        let is_code =
            |holder: OverheadOwner| matches!(holder, OverheadOwner::Module(_) | OverheadOwner::Library(_));
        let held = self.held.lock();
        let code: Vec<OverheadOwner> = held
            .keys()
            .filter(|(holder, of)| *of == context && is_code(*holder))
            .map(|(holder, _)| *holder)
            .collect();
        drop(held);
        let shrink = |left: u64, holder| left.saturating_sub(self.shrink(slice, holder, context, left));
        bytes.saturating_sub(code.into_iter().fold(bytes, shrink))
    }

    /// Returns the contexts of a device that have an entry in the table.
    pub(crate) fn contexts(&self, device: Device) -> Vec<usize> {
        let held = self.held.lock();
        let mut contexts: Vec<usize> =
            held.iter().filter(|(_, (on, _))| *on == device).map(|((_, context), _)| *context).collect();
        contexts.sort_unstable();
        contexts.dedup();
        contexts
    }

    /// Returns the contexts that this process has made, with their devices.
    pub(crate) fn contexts_made(&self) -> Vec<(usize, Device)> {
        let held = self.held.lock();
        let contexts = held.iter().filter(|((holder, _), _)| *holder == OverheadOwner::Context);
        contexts.map(|((_, context), (device, _))| (*context, *device)).collect()
    }

    /// Moves up to `bytes` of the charge of one holder to another.
    pub(crate) fn pass(
        &self,
        slice: &Slice,
        from: (OverheadOwner, usize),
        to: (OverheadOwner, usize),
        bytes: u64,
    ) {
        let mut held = self.held.lock();
        let Some((device, sum)) = held.get_mut(&from) else { return };
        let (device, part) = (*device, bytes.min(*sum));
        *sum = sum.saturating_sub(part);
        let (_, of_other) = held.entry(to).or_insert((device, 0));
        *of_other = of_other.saturating_add(part);
        drop(held);
        if from.0.is_context() && !to.0.is_context() {
            slice.member().end_context(device, part);
        }
    }
}

/// Gives back bytes of a holder. If the holder is a context, the region does not count the bytes as a context's any more.
fn give_back(slice: &Slice, holder: OverheadOwner, device: Device, bytes: u64) {
    if holder.is_context() {
        slice.member().end_context(device, bytes);
    }
    slice.refund(device, bytes);
}
