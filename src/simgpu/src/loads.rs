//! Who waits while code is loaded?
//!
//! Where it is asked for (`SIMGPU_FIRST_LAUNCH=waits`), the first launch of a function whose code is loaded late returns once
//! its context has nothing left to do, as has been seen of real drivers, and all other threads that ask for something of the
//! context wait as well.

use parking_lot::{Condvar, Mutex};

use crate::thread;

/// The contexts in which code is being loaded, and by which threads.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    all: Mutex<Vec<(u64, i32)>>,
    ended: Condvar,
}

impl Loads {
    /// Waits while another thread loads code in a context.
    pub(crate) fn enter(&self, context: u64) {
        let mut all = self.all.lock();
        // Asked for only where it matters: it is a system call.
        while all.iter().any(|(loaded, by)| *loaded == context && *by != thread::number()) {
            self.ended.wait(&mut all);
        }
    }

    /// Loads code in a context.
    pub(crate) fn load(&self, context: u64, wait: impl FnOnce()) {
        self.enter(context);
        let load = (context, thread::number());
        self.all.lock().push(load);
        wait();
        self.all.lock().retain(|other| *other != load);
        self.ended.notify_all();
    }
}
