//! Hooks of `dlsym` and `dlvsym`, by which a program looks symbols up.
//!
//! If the result of a look-up is an address in the real driver, the hook returns the library's entry of that name instead. Every
//! other look-up is a tail jump to the next `dlsym`, so that the next `dlsym` sees the program as its caller. `RTLD_NEXT` and
//! sanitizers depend on the caller.

use super::exports;
use crate::bypass;
use crate::os::reentrancy;
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use gpuslice_driver::Symbol;
use gpuslice_driver::elf::Image;
use gpuslice_driver::families;
use gpuslice_driver::resolve::{self, Dlsym, Dlvsym};
use gpuslice_driver::slot;
use once_cell::race::{OnceBox, OnceNonZeroUsize};

/// `void *dlsym(void *handle, const char *name)`.
///
/// It calls [`decide`] with null as the version and with its return address as the fourth argument. Then it jumps to the next
/// `dlsym` with the program's arguments, or returns the answer. After a jump the next `dlsym` returns to the program directly.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlsym() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "xor edx, edx",
        "mov rcx, [rsp + 24]",
        "call {decide}",
        "mov r11, rdx",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "je 2f",
        "jmp rax",
        "2:",
        "mov rax, r11",
        "ret",
        decide = sym decide,
    )
}

/// `void *dlvsym(void *handle, const char *name, const char *version)`. It does the same as `dlsym`, with the program's version.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlvsym() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "mov rcx, [rsp + 24]",
        "call {decide}",
        "mov r11, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "je 2f",
        "jmp rax",
        "2:",
        "mov rax, r11",
        "ret",
        decide = sym decide,
    )
}

/// Next step of an exported look-up.
#[repr(C)]
struct NextStep {
    /// Address to which the entry jumps with the caller's arguments. If it is null, the entry returns `answer`.
    jump: *const c_void,
    /// Value that the entry returns.
    answer: *const c_void,
}

impl NextStep {
    fn answer(answer: *const c_void) -> Self {
        Self { jump: ptr::null(), answer }
    }
}

/// A look-up of the program.
struct Request {
    handle: *mut c_void,
    name: *const c_char,
    /// Requested version; null for `dlsym`.
    version: *const c_char,
    /// Return address of the call.
    caller: *const c_void,
}

/// Decides whether the library answers a look-up. If it does not, the entry jumps to the next `dlsym` or `dlvsym`. That happens
/// also for a look-up within the library's own work on this thread.
extern "C" fn decide(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: *const c_void,
) -> NextStep {
    let request = Request { handle, name, version, caller };
    let pass = NextStep { jump: request.next(), answer: ptr::null() };
    let Some(symbol) = request.symbol() else {
        request.remark();
        return pass;
    };
    match reentrancy::enter_or(|| request.answer(symbol), None) {
        Some(answer) => NextStep::answer(answer),
        None => pass,
    }
}

/// First letter of the names of CUDA's functions.
const FIRST_OF_CUDA: u8 = b'c';
const FIRST_OF_NVML: u8 = b'n';

impl Request {
    /// Returns the requested symbol, if it is in the table. Most look-ups end at the first letter.
    #[inline]
    fn symbol(&self) -> Option<Symbol> {
        if self.name.is_null() {
            return None;
        }
        // SAFETY: a read requires a valid address: the caller passes a zero-terminated name, which has a first byte.
        let first = unsafe { *self.name.cast::<u8>() };
        if first != FIRST_OF_CUDA && first != FIRST_OF_NVML {
            return None;
        }
        // SAFETY: `CStr::from_ptr` requires a zero-terminated text: the caller passes one, and it is not null here.
        let name = unsafe { CStr::from_ptr(self.name) }.to_bytes();
        if name.starts_with(b"cu") || name.starts_with(b"nvml") { Symbol::find(name) } else { None }
    }

    /// Logs a name that is not in the table although it belongs to a family of the driver that takes memory or submits work.
    #[inline]
    fn remark(&self) {
        // SAFETY: a read requires a valid address: the caller passes a zero-terminated name, and null is excluded first.
        if self.name.is_null() || unsafe { *self.name.cast::<u8>() } != FIRST_OF_CUDA {
            return;
        }
        // SAFETY: `CStr::from_ptr` requires a zero-terminated text: the caller passes one, and it is not null here.
        let name = unsafe { CStr::from_ptr(self.name) };
        if families::is_of_family(name.to_bytes()) && !known_driver(self.caller) {
            reentrancy::enter_or(|| bypass::looked_up(name), ());
        }
    }

    /// Returns the library's answer. `None`: the next `dlsym` answers.
    ///
    /// The library asks the next `dlsym` itself, and decides by the address that it finds:
    /// - an address in the driver: the answer is the library's entry;
    /// - the library's entry, which exists without a driver too: the answer is that entry if a driver behind it has the symbol;
    /// - another address: the next `dlsym` answers.
    ///
    /// With `RTLD_NEXT` the search begins behind the caller. A call by the library would begin behind the library instead. So the
    /// program's own call has to do the search.
    fn answer(&self, symbol: Symbol) -> Option<*const c_void> {
        if known_driver(self.caller) {
            return None;
        }
        if self.handle == libc::RTLD_NEXT {
            // The one exception: if the library's entry is the only definition, the program's call could find nothing else.
            return stands_alone(symbol).then(|| self.near_caller(symbol));
        }
        let found = self.ask();
        if found == exports::entry(symbol) {
            // The next definition behind the library's entry decides whether a driver is loaded.
            let is_default = self.handle == libc::RTLD_DEFAULT;
            let behind = behind_us(symbol, found);
            return Some(if behind.is_null() && is_default { self.near_caller(symbol) } else { behind });
        }
        (known_driver(found) || record_driver(found, symbol)).then(|| exports::entry(symbol))
    }

    /// Returns the library's entry if the caller's own library, or one that it needs, is a driver library. Such a driver library
    /// may be visible only to the libraries that were opened with it. Otherwise the last look-up fails, so that `dlerror` reports
    /// the failure.
    #[cold]
    fn near_caller(&self, symbol: Symbol) -> *const c_void {
        if record_driver(self.found_near_caller(symbol), symbol) {
            return exports::entry(symbol);
        }
        in_scope(symbol, libc::RTLD_NEXT).cast_const()
    }

    /// Returns the address of this name in the caller's own library, or in a library that it needs.
    fn found_near_caller(&self, symbol: Symbol) -> *const c_void {
        // SAFETY: `zeroed` requires a type for which all zeroes is a valid value: `Dl_info` is plain data.
        let mut place: libc::Dl_info = unsafe { core::mem::zeroed() };
        // SAFETY: `dladdr` accepts any address, and requires a record that is valid for writes: the local `place`.
        if unsafe { libc::dladdr(self.caller, &raw mut place) } == 0 {
            return ptr::null();
        }
        // SAFETY: `dlopen` requires a zero-terminated name: `dladdr` gave one, of an object that is loaded because its code has
        // called this library. With `RTLD_NOLOAD` it loads no other object.
        let library = unsafe { libc::dlopen(place.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if library.is_null() {
            return ptr::null();
        }
        let found = in_scope(symbol, library);
        // SAFETY: `dlclose` requires an open handle: `library` was opened above and is not null.
        unsafe { libc::dlclose(library) };
        found
    }

    /// Returns the answer of the next `dlsym`.
    fn ask(&self) -> *const c_void {
        let next = self.next();
        if self.version.is_null() {
            // SAFETY: `transmute` requires a function of this type: `resolve::next` found `next` by the name `dlsym`. Otherwise
            // `next` is `nothing`, which reads no argument.
            let dlsym = unsafe { core::mem::transmute::<*const c_void, Dlsym>(next) };
            // SAFETY: `dlsym` requires valid arguments: the program passes these to the same function.
            return unsafe { dlsym(self.handle, self.name) };
        }
        // SAFETY: `transmute` requires a function of this type: `resolve::next` found `next` by the name `dlvsym`. Otherwise
        // `next` is `nothing`, which reads no argument.
        let dlvsym = unsafe { core::mem::transmute::<*const c_void, Dlvsym>(next) };
        // SAFETY: `dlvsym` requires valid arguments: the program passes these to the same function.
        unsafe { dlvsym(self.handle, self.name, self.version) }
    }

    /// Returns the next `dlsym` or `dlvsym` behind the library's own.
    fn next(&self) -> *const c_void {
        static NEXT: [OnceNonZeroUsize; 2] = [const { OnceNonZeroUsize::new() }; 2];
        let (slot, name) =
            if self.version.is_null() { (NEXT.first(), c"dlsym") } else { (NEXT.last(), c"dlvsym") };
        let find = || {
            let found = resolve::next(name)?;
            core::num::NonZeroUsize::new(found.expose_provenance())
        };
        let found = slot.and_then(|slot| {
            slot.get().or_else(|| {
                let found = find()?;
                Some(slot.get_or_init(|| found))
            })
        });
        found.map_or(nothing as *const c_void, |found| ptr::with_exposed_provenance(found.get()))
    }
}

/// Function to use if the system has no `dlsym` or `dlvsym`. Returns null.
extern "C" fn nothing() -> *const c_void {
    ptr::null()
}

/// Returns the library's entry if a driver in the global scope has the symbol too, and null otherwise.
fn behind_us(symbol: Symbol, entry: *const c_void) -> *const c_void {
    if in_scope(symbol, libc::RTLD_NEXT).is_null() { ptr::null() } else { entry }
}

/// Returns true if the library's entry is the only definition in the global scope.
fn stands_alone(symbol: Symbol) -> bool {
    in_scope(symbol, libc::RTLD_NEXT).is_null()
        && in_scope(symbol, libc::RTLD_DEFAULT).cast_const() == exports::entry(symbol)
}

/// Returns the address that the C library's `dlsym` finds when this library calls it.
fn in_scope(symbol: Symbol, handle: *mut c_void) -> *mut c_void {
    let Some(dlsym) = resolve::own_dlsym() else { return ptr::null_mut() };
    let mut name = [0; 128];
    if let Some(place) = name.get_mut(..symbol.name().len()) {
        place.copy_from_slice(symbol.name().as_bytes());
    }
    // SAFETY: `dlsym` requires a zero-terminated name: `name` was zeroed, and it is longer than every symbol's name.
    unsafe { dlsym(handle, name.as_ptr().cast()) }
}

/// Images of the driver's libraries that the library has found, by API.
static SEEN: [OnceBox<Image>; 2] = [const { OnceBox::new() }; 2];

/// Returns true if an address lies in a driver library that is in [`SEEN`].
pub(crate) fn known_driver(address: *const c_void) -> bool {
    SEEN.iter().filter_map(OnceBox::get).any(|image| image.contains(address))
}

/// Returns true if an address lies in a driver library. Records and pins the driver library when it is first found. From then on
/// entries call its functions, so it must not be unloaded. Two threads may find it at once. Each of the steps may run twice.
#[cold]
fn record_driver(address: *const c_void, symbol: Symbol) -> bool {
    if address.is_null() {
        return false;
    }
    let Some((api, image)) = slot::driver_at(address) else { return false };
    if let Some(seen) = SEEN.get(api as usize)
        && seen.get().is_none()
    {
        image.pin();
        if slot::address(symbol).is_none() {
            slot::remember(api, address);
        }
        let _already = seen.set(Box::new(image));
    }
    true
}
