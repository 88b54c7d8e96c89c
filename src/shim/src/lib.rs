//! The preload library, `libgpuslice.so`: it stands between a CUDA program and the driver.
//!
//! A call comes in through [`entry::exports`], one entry for each row of the driver crate's table. A row without a hook jumps on
//! to the real function. A row with a hook runs a function in [`hooks`]: decide, call the driver, settle. Programs that look
//! entries up come through [`entry::dlsym`] and [`entry::lookup`].
//!
//! Folders, lowest first. A module imports from its own folder and from folders earlier in this list;
//! `tests/repository/dependencies` checks that.
//!
//! 1. `os`: the process, its threads and the kernel.
//! 2. `driver_calls`: calls of the library's own into the driver and NVML.
//! 3. `slice`: membership in a slice: its handle, its devices and the settings.
//! 4. `memory`: device memory that this process holds.
//! 5. `bypass`: calls that could reach the driver past the entries.
//! 6. `compute`: GPU time that this process uses.
//! 7. `process`: the state of this process, and how it joins its slice.
//! 8. `hooks`: code around each function of the driver.
//! 9. `entry`: how a program reaches the hooks.
//!
//! Rules. The library is a guest in the program:
//!
//! 1. Nothing runs at load time: no constructor, no thread, no file, no change of the environment.
//! 2. Any entry may be called before `cuInit`, from another library's constructor, in a forked child, or after `exit`.
//! 3. A call that is only forwarded takes no lock, allocates nothing, and makes no system call. No lock is held across a call of
//!    the driver, but for the turn of a primary context (`slice::primary_contexts`).
//! 4. The library's own driver calls use the real functions. A second entry on the same thread, while the library decides or
//!    settles, passes straight through.
//! 5. `errno` stays the driver's, and a pending `dlerror` stays the caller's. The library never calls setenv, exit, abort or
//!    umask. It has a signal handler only for `SIGBUS`, only with a limit, and in front of the program's
//!    (`region::file::sigbus_guard`).
//! 6. A forked child is a new process without a place in the slice. It joins before its first charge.
//! 7. At exit nothing is given back: the kernel releases the life lock, and the next member reclaims.
//! 8. Only the symbols of the table are exported, and `dlsym`, `dlvsym` and `dlopen`. The library never loads the driver.
//! 9. No panic leaves the library: [`os::reentrancy::enter`] is the boundary.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("the entries are written for Linux on x86-64");

mod bypass;
mod compute;
mod driver_calls;
mod entry;
mod hooks;
mod memory;
mod os;
mod process;
mod slice;

#[global_allocator]
static ALLOCATOR: os::allocator::LibraryAllocator = os::allocator::LibraryAllocator;
