//! Libraries with variables, and the contexts that they are loaded into.
//!
//! A CUDA library (`CUlibrary`) belongs to no context. The driver takes memory for its variables in each context at the first use
//! there, for example at a launch. But gpuslice never refuses a launch. So it loads the CUDA library into every context that a
//! quota limits, before the program gets the handle of a kernel. The tables have only libraries with large variables, because
//! only these take memory that can be reserved.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::sync::atomic::{AtomicBool, Ordering};
use parking_lot::Mutex;
use std::collections::HashMap;

/// Library with large variables.
#[derive(Debug)]
struct KnownLibrary {
    /// Bytes of its variables, in each context.
    variables: u64,
    /// True if the program may have the handle of a kernel.
    launchable: bool,
    /// Contexts into which the library is loaded, or is being loaded.
    contexts: Vec<usize>,
}

/// Libraries of this process.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    /// True if there ever was a library with large variables. Each look-up of a kernel reads it.
    any: AtomicBool,
    known: Mutex<HashMap<usize, KnownLibrary>>,
    /// Library of each module and kernel that the driver gave out for a library.
    origins: Mutex<HashMap<usize, usize>>,
}

impl Libraries {
    /// Adds a library whose variables take `variables` bytes in each context, and which is loaded into `contexts` already.
    pub(crate) fn add(&self, library: usize, variables: u64, contexts: Vec<usize>) {
        if variables > 0 {
            let known = KnownLibrary { variables, launchable: false, contexts };
            self.known.lock().insert(library, known);
            // Relaxed: a thread that uses the library got its handle from the thread that stores here.
            self.any.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if there ever was a library with large variables.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Notes that the caller is about to load a library into a context. Returns the bytes of its variables. `None`: the library
    /// has no large variables, or the context has it already.
    pub(crate) fn claim(&self, library: usize, context: usize) -> Option<u64> {
        let mut known = self.any.load(Ordering::Relaxed).then(|| self.known.lock())?;
        let known = known.get_mut(&library).filter(|known| !known.contexts.contains(&context))?;
        known.contexts.push(context);
        Some(known.variables)
    }

    /// Takes back the claim of a library that was not loaded into the context.
    pub(crate) fn unclaim(&self, library: usize, context: usize) {
        if let Some(known) = self.known.lock().get_mut(&library) {
            known.contexts.retain(|of| *of != context);
        }
    }

    /// Notes that the program is about to get the handle of a kernel of a library. Returns false if the library has no large
    /// variables.
    pub(crate) fn becomes_launchable(&self, library: usize) -> bool {
        if !self.any.load(Ordering::Relaxed) {
            return false;
        }
        let mut known = self.known.lock();
        known.get_mut(&library).map(|known| known.launchable = true).is_some()
    }

    /// Returns the libraries that a launch in a new context would load, with the bytes of their variables.
    pub(crate) fn launchable(&self) -> Vec<(usize, u64)> {
        self.matching(|known| known.launchable)
    }

    /// Returns all libraries with large variables.
    pub(crate) fn all(&self) -> Vec<(usize, u64)> {
        self.matching(|_| true)
    }

    fn matching(&self, fits: impl Fn(&KnownLibrary) -> bool) -> Vec<(usize, u64)> {
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let known = self.known.lock();
        known
            .iter()
            .filter(|(_, known)| fits(known))
            .map(|(library, known)| (*library, known.variables))
            .collect()
    }

    /// Forgets a context that has ended. The driver may give its handle to another context.
    pub(crate) fn context_ended(&self, context: usize) {
        if self.any.load(Ordering::Relaxed) {
            self.known.lock().values_mut().for_each(|known| known.contexts.retain(|of| *of != context));
        }
    }

    /// Notes that the driver gave out a module or a kernel of a library.
    pub(crate) fn note_origin(&self, handle: usize, library: usize) {
        self.origins.lock().insert(handle, library);
    }

    /// Returns the library of a module or a kernel.
    pub(crate) fn of(&self, handle: usize) -> Option<usize> {
        self.origins.lock().get(&handle).copied()
    }

    /// Forgets a library that has ended, and the handles of all its modules and kernels.
    pub(crate) fn forget(&self, library: usize) {
        self.known.lock().remove(&library);
        self.origins.lock().retain(|_, of| *of != library);
    }
}
