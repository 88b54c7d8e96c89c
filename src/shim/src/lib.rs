//! The preload library, `libgpuslice.so`: it stands between a CUDA program and the driver.
//!
//! A call enters through [`entry::exports`], which has one entry for each row of the driver crate's table. The entry of a row
//! without a hook jumps to the real function. The entry of a row with a hook runs a function in [`hooks`]: decide, call the
//! driver, settle. Programs that look functions up get the entries through [`entry::dlsym`] and [`entry::lookup`].
//!
//! Folders, lowest first. A module imports from its own folder and from folders earlier in this list;
//! `tests/repository/dependencies` checks that.
//!
//! 1. `os`: the process, its threads and the kernel.
//! 2. `driver_calls`: the library's own calls of the driver and NVML.
//! 3. `slice`: membership in a slice: its handle, its devices and the settings.
//! 4. `memory`: device memory that this process holds.
//! 5. `bypass`: calls that could reach the driver without the entries.
//! 6. `compute`: GPU time that this process uses.
//! 7. `process`: the state of this process, and how it joins its slice.
//! 8. `hooks`: code around each function of the driver.
//! 9. `entry`: how a program reaches the hooks.
//!
//! Rules, because the library runs in a process that belongs to the program:
//!
//! 1. Nothing runs at load time: no constructor, no thread, no file, no change of the environment.
//! 2. Any entry may be called before `cuInit`, from another library's constructor, in a forked child, or after `exit`.
//! 3. A call that is only forwarded takes no lock, allocates nothing, and makes no system call. No thread holds a lock across a
//!    call of the driver. The one exception is the lock of a primary context (`slice::primary_contexts`).
//! 4. The library's own driver calls use the real functions. While the library decides or settles on a thread, calls of that
//!    thread go to the driver unchanged.
//! 5. The library preserves the driver's `errno` and the caller's pending `dlerror`. It never calls setenv, exit, abort or umask.
//!    It has a signal handler only for `SIGBUS`, and only if there is a limit. That handler runs before the program's
//!    (`region::file::sigbus_guard`).
//! 6. A forked child is a new process that is no member of the slice. It joins before its first charge.
//! 7. The process gives nothing back at its exit: the kernel releases the life lock, and the next member reclaims.
//! 8. The library exports only the symbols of the table, and `dlsym`, `dlvsym` and `dlopen`. It never loads the driver.
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
