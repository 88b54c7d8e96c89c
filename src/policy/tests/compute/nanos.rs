//! The border between the world, which counts all times in nanoseconds, and the types of the library.

use gpuslice_policy::time::Nanos;

/// Returns a time of so many nanoseconds.
pub fn ns<T: Nanos>(nanoseconds: u64) -> T {
    T::from_nanos(nanoseconds)
}
