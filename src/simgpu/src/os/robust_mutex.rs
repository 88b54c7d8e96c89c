//! A mutex between processes that survives the death of its owner.
//!
//! It is a robust mutex of the C library: the kernel hands it on when the thread that holds it ends, in whatever way.
//! It needs no descriptor that a program could close, and no process number that could be reused.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

/// A mutex in shared memory.
#[repr(C, align(8))]
pub struct RobustMutex {
    /// The structure of the C library, with room to spare.
    bytes: UnsafeCell<[u8; 64]>,
}

const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= 64);
const _: () = assert!(align_of::<libc::pthread_mutex_t>() <= 8);

impl core::fmt::Debug for RobustMutex {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("RobustMutex")
    }
}

// SAFETY: the C library's mutex is made to be used by several threads, and processes.
unsafe impl Sync for RobustMutex {}

/// The result of an attempt to take a mutex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// This thread has it.
    Ours,
    /// This thread has it, and the previous owner died with it.
    Inherited,
    /// Another thread has it.
    Busy,
}

impl RobustMutex {
    fn raw(&self) -> *mut libc::pthread_mutex_t {
        self.bytes.get().cast()
    }

    /// Makes the mutex ready for use. No other thread may know of it yet.
    pub fn init(&self) {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: `pthread_mutexattr_init` needs room for attributes, which `attributes` is.
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

    /// Takes the mutex, and waits for it if necessary.
    ///
    /// It waits 0.1 s at a time. If waiters are killed as well as owners, a wake-up may be lost with a killed waiter.
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

    /// Releases the mutex. Only the thread that took it may do so.
    pub fn unlock(&self) {
        // SAFETY: `pthread_mutex_unlock` needs an initialised mutex: `init` made it. A thread that does not hold it gets an error
        // and changes nothing.
        unsafe { libc::pthread_mutex_unlock(self.raw()) };
    }
}

/// Returns the instant 0.1 s from now, by the clock that the C library wants. If that clock is set meanwhile, only the length of
/// one wait changes.
fn soon() -> libc::timespec {
    const TENTH: libc::c_long = 100_000_000;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock_gettime` needs room for a `timespec`, which `time` is.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    let nanoseconds = time.tv_nsec + TENTH;
    libc::timespec { tv_sec: time.tv_sec + nanoseconds / 1_000_000_000, tv_nsec: nanoseconds % 1_000_000_000 }
}
