//! What holds device memory beside allocations: which contexts, modules, libraries and limits, how much, and with
//! which context does it end?

use crate::slice::handle::Slice;
use gpuslice_region::Device;
use parking_lot::Mutex;
use std::collections::HashMap;

/// What holds memory, by the driver's handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// The context itself.
    Context,
    /// Its heaps, stacks and buffers.
    Limits,
    /// A module.
    Module(usize),
    /// A library, in one of the contexts that it is loaded into.
    Library(usize),
    /// A green context.
    Green(usize),
    /// Nothing that can be named: what was unloaded and not given back, and what was found to be taken since.
    Rest,
}

impl Holder {
    /// Returns true if it is a context, and neither code nor what nobody can name.
    fn is_context(self) -> bool {
        match self {
            Self::Context | Self::Limits | Self::Green(_) => true,
            Self::Module(_) | Self::Library(_) | Self::Rest => false,
        }
    }
}

/// Memory that was charged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holding {
    holder: Holder,
    /// The context that it ends with.
    context: usize,
    device: Device,
    bytes: u64,
}

impl Holding {
    /// Returns true if it is this that holds it.
    pub(crate) fn is_of(&self, holder: Holder) -> bool {
        self.holder == holder
    }

    /// The context that it ends with.
    pub(crate) fn context(&self) -> usize {
        self.context
    }

    /// How much.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// It is given back.
    pub(crate) fn end(self, slice: &Slice) {
        give_back(slice, self.holder, self.device, self.bytes);
    }
}

/// All that this process was charged for beside allocations.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    held: Mutex<HashMap<(Holder, usize), (Device, u64)>>,
}

impl Holdings {
    /// Bytes were charged for something that lives in a context.
    pub(crate) fn add(&self, slice: &Slice, holder: Holder, context: usize, device: Device, bytes: u64) {
        // Before anybody can find it and give it back.
        if holder.is_context() {
            slice.member().begin_context(device, bytes);
        }
        self.insert(holder, context, device, bytes);
    }

    fn insert(&self, holder: Holder, context: usize, device: Device, bytes: u64) {
        // Contexts are listed, also those that took nothing.
        if bytes > 0 || holder == Holder::Context {
            let mut held = self.held.lock();
            let (_, sum) = held.entry((holder, context)).or_insert((device, 0));
            *sum = sum.saturating_add(bytes);
        }
    }

    /// What something holds in a context.
    pub(crate) fn bytes(&self, holder: Holder, context: usize) -> u64 {
        self.held.lock().get(&(holder, context)).map_or(0, |(_, bytes)| *bytes)
    }

    /// Takes out all that something holds, in any context.
    pub(crate) fn take(&self, holder: Holder) -> Vec<Holding> {
        self.take_where(|of, _| of == holder)
    }

    /// Takes out all that ends with a context.
    pub(crate) fn take_of(&self, context: usize) -> Vec<Holding> {
        self.take_where(|_, of| of == context)
    }

    fn take_where(&self, fits: impl Fn(Holder, usize) -> bool) -> Vec<Holding> {
        let mut held = self.held.lock();
        let taken = held.extract_if(|(holder, context), _| fits(*holder, *context));
        taken.map(|((holder, context), (device, bytes))| Holding { holder, context, device, bytes }).collect()
    }

    /// What was taken out lives on.
    pub(crate) fn put_back(&self, holdings: Vec<Holding>) {
        for Holding { holder, context, device, bytes } in holdings {
            self.insert(holder, context, device, bytes);
        }
    }

    /// Gives back up to so much of what something holds; returns how much that was.
    pub(crate) fn shrink(&self, slice: &Slice, holder: Holder, context: usize, bytes: u64) -> u64 {
        let mut held = self.held.lock();
        let Some((device, sum)) = held.get_mut(&(holder, context)) else { return 0 };
        let (device, less) = (*device, bytes.min(*sum));
        *sum = sum.saturating_sub(less);
        drop(held);
        give_back(slice, holder, device, less);
        less
    }

    /// Gives back up to so much of what code holds in a context, whichever it is; returns how much that was.
    pub(crate) fn shrink_code(&self, slice: &Slice, context: usize, bytes: u64) -> u64 {
        let is_code = |holder: Holder| matches!(holder, Holder::Module(_) | Holder::Library(_));
        let held = self.held.lock();
        let code: Vec<Holder> = held
            .keys()
            .filter(|(holder, of)| *of == context && is_code(*holder))
            .map(|(holder, _)| *holder)
            .collect();
        drop(held);
        let shrink = |left: u64, holder| left.saturating_sub(self.shrink(slice, holder, context, left));
        bytes.saturating_sub(code.into_iter().fold(bytes, shrink))
    }

    /// The contexts of a device in which anything is held.
    pub(crate) fn contexts(&self, device: Device) -> Vec<usize> {
        let held = self.held.lock();
        let mut contexts: Vec<usize> =
            held.iter().filter(|(_, (on, _))| *on == device).map(|((_, context), _)| *context).collect();
        contexts.sort_unstable();
        contexts.dedup();
        contexts
    }

    /// The contexts that this process has made, with their devices.
    pub(crate) fn contexts_made(&self) -> Vec<(usize, Device)> {
        let held = self.held.lock();
        let contexts = held.iter().filter(|((holder, _), _)| *holder == Holder::Context);
        contexts.map(|((_, context), (device, _))| (*context, *device)).collect()
    }

    /// Another holder has so much of what one was charged.
    pub(crate) fn pass(&self, slice: &Slice, from: (Holder, usize), to: (Holder, usize), bytes: u64) {
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

/// What something held is given back, and is no context's any more.
fn give_back(slice: &Slice, holder: Holder, device: Device, bytes: u64) {
    if holder.is_context() {
        slice.member().end_context(device, bytes);
    }
    slice.refund(device, bytes);
}
