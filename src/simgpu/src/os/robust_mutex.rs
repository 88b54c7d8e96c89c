//! A mutex that processes share, and that survives the death of the thread that holds it.
//!
//! This is a robust mutex of the C library. If the thread that holds it ends, in whatever way, the kernel lets another thread
//! take it. The mutex needs no descriptor, which a program could close, and no process number, which could be used again.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

/// A mutex in shared memory.
#[repr(C, align(8))]
pub struct RobustMutex {
    /// The C library's structure. The bytes are more than it needs.
    bytes: UnsafeCell<[u8; 64]>,
}

const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= 64);
const _: () = assert!(align_of::<libc::pthread_mutex_t>() <= 8);

impl core::fmt::Debug for RobustMutex {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("RobustMutex")
    }
}

// SAFETY: the C library makes this mutex for use by several threads and processes at once.
unsafe impl Sync for RobustMutex {}

/// The result of an attempt to take a mutex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// This thread has taken the mutex.
    Ours,
    /// This thread has taken the mutex, and the thread that held it before has died.
    Inherited,
    /// Another thread has the mutex.
    Busy,
}

impl RobustMutex {
    fn raw(&self) -> *mut libc::pthread_mutex_t {
        self.bytes.get().cast()
    }

    /// Makes the mutex ready for use. No other thread may know of it yet.
    pub fn init(&self) {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: `pthread_mutexattr_init` needs room for attributes: `attributes` has it.
        unsafe { libc::pthread_mutexattr_init(attributes.as_mut_ptr()) };
        // SAFETY: `pthread_mutexattr_setpshared` needs initialised attributes: the call above has initialised them.
        unsafe { libc::pthread_mutexattr_setpshared(attributes.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED) };
        // SAFETY: `pthread_mutexattr_setrobust` needs initialised attributes: the first call has initialised them.
        unsafe { libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST) };
        // SAFETY: `pthread_mutex_init` needs room for a mutex: the bytes are large and aligned enough, and unused.
        unsafe { libc::pthread_mutex_init(self.raw(), attributes.as_ptr()) };
    }

    fn outcome(&self, result: i32) -> Taken {
        match result {
            0 => Taken::Ours,
            libc::EOWNERDEAD => {
                // SAFETY: `pthread_mutex_consistent` needs a mutex that this thread holds: `init` made it, and this
                // thread has just taken it.
                unsafe { libc::pthread_mutex_consistent(self.raw()) };
                Taken::Inherited
            }
            _ => Taken::Busy,
        }
    }

    /// Takes the mutex. Waits if another thread has it.
    ///
    /// Each wait lasts at most 0.1 s, and then the thread tries again. This is because a wake-up is lost if the kernel gives it
    /// to a waiter that is killed at that moment.
    pub fn lock(&self) -> Taken {
        loop {
            let until = soon();
            // SAFETY: `pthread_mutex_timedlock` needs an initialised mutex and a time: `init` made the mutex, and `until` is on
            // this stack.
            let result = unsafe { libc::pthread_mutex_timedlock(self.raw(), &raw const until) };
            if result != libc::ETIMEDOUT {
                return self.outcome(result);
            }
        }
    }

    /// Takes the mutex if it is free.
    pub fn try_lock(&self) -> Taken {
        // SAFETY: `pthread_mutex_trylock` needs an initialised mutex: `init` made it.
        let result = unsafe { libc::pthread_mutex_trylock(self.raw()) };
        self.outcome(result)
    }

    /// Releases the mutex. Only the thread that took the mutex may call this.
    pub fn unlock(&self) {
        // SAFETY: `pthread_mutex_unlock` needs an initialised mutex: `init` made it. A thread that does not hold it gets an error
        // and changes nothing.
        unsafe { libc::pthread_mutex_unlock(self.raw()) };
    }
}

/// Returns the instant 0.1 s from now, on the clock that the C library uses for such a wait. If someone sets that clock during a
/// wait, only that wait becomes longer or shorter.
fn soon() -> libc::timespec {
    const TENTH: libc::c_long = 100_000_000;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock_gettime` needs room for a `timespec`: `time` is one.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    let nanoseconds = time.tv_nsec + TENTH;
    libc::timespec { tv_sec: time.tv_sec + nanoseconds / 1_000_000_000, tv_nsec: nanoseconds % 1_000_000_000 }
}
