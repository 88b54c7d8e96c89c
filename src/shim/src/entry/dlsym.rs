//! `dlsym` and `dlvsym`: look-ups by a program.
//!
//! A result that lies in the real driver is replaced by the library's entry of that name. Everything else is a tail jump to the
//! next `dlsym`, so that one sees the true caller: `RTLD_NEXT` and sanitizers depend on it.

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

/// `void *dlvsym(void *handle, const char *name, const char *version)`.
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

/// What an exported look-up does next.
#[repr(C)]
struct Decision {
    /// Where to jump with the caller's arguments; null: return `answer`.
    jump: *const c_void,
    /// What to return.
    answer: *const c_void,
}

impl Decision {
    fn answer(answer: *const c_void) -> Self {
        Self { jump: ptr::null(), answer }
    }
}

/// A look-up as the program made it.
struct Request {
    handle: *mut c_void,
    name: *const c_char,
    /// The version asked for; null for `dlsym`.
    version: *const c_char,
    /// Where the call comes from.
    caller: *const c_void,
}

extern "C" fn decide(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: *const c_void,
) -> Decision {
    let request = Request { handle, name, version, caller };
    let pass = Decision { jump: request.next(), answer: ptr::null() };
    let Some(symbol) = request.symbol() else {
        request.remark();
        return pass;
    };
    match reentrancy::quietly(|| request.answer(symbol), None) {
        Some(answer) => Decision::answer(answer),
        None => pass,
    }
}

/// With what the names of the two libraries begin.
const FIRST_OF_CUDA: u8 = b'c';
const FIRST_OF_NVML: u8 = b'n';

impl Request {
    /// The symbol that is asked for, if it is one of ours. Most look-ups end at the first letter.
    #[inline]
    fn symbol(&self) -> Option<Symbol> {
        if self.name.is_null() {
            return None;
        }
        // SAFETY: the caller passes a zero-terminated name, which has a first byte.
        let first = unsafe { *self.name.cast::<u8>() };
        if first != FIRST_OF_CUDA && first != FIRST_OF_NVML {
            return None;
        }
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(self.name) }.to_bytes();
        if name.starts_with(b"cu") || name.starts_with(b"nvml") { Symbol::find(name) } else { None }
    }

    /// Says where the name is none of ours and one of the driver's that takes memory or submits work.
    #[inline]
    fn remark(&self) {
        // SAFETY: the caller passes null or a zero-terminated name, which has a first byte.
        if self.name.is_null() || unsafe { *self.name.cast::<u8>() } != FIRST_OF_CUDA {
            return;
        }
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(self.name) };
        if families::is_of_family(name.to_bytes()) && !known_driver(self.caller) {
            reentrancy::quietly(|| bypass::looked_up(name), ());
        }
    }

    /// Our answer; `None` leaves the request to the next `dlsym`.
    fn answer(&self, symbol: Symbol) -> Option<*const c_void> {
        if known_driver(self.caller) {
            return None;
        }
        if self.handle == libc::RTLD_NEXT {
            // Only the caller's own request tells what comes next for it, unless it could find nothing but us.
            return stands_alone(symbol).then(|| self.near_caller(symbol));
        }
        let found = self.ask();
        if found == exports::entry(symbol) {
            // Ours stands in the global scope whether or not there is a driver; the truth is what stands behind.
            let is_default = self.handle == libc::RTLD_DEFAULT;
            let behind = behind_us(symbol, found);
            return Some(if behind.is_null() && is_default { self.near_caller(symbol) } else { behind });
        }
        (known_driver(found) || is_driver(found, symbol)).then(|| exports::entry(symbol))
    }

    /// Our entry where a driver library was opened together with the caller, for it and its companions alone. Where it was
    /// not, a look-up without success is the last: `dlerror` tells of it.
    #[cold]
    fn near_caller(&self, symbol: Symbol) -> *const c_void {
        if is_driver(self.found_near_caller(symbol), symbol) {
            return exports::entry(symbol);
        }
        in_scope(symbol, libc::RTLD_NEXT).cast_const()
    }

    /// The address of this name in the caller's own library or in one that it needs.
    fn found_near_caller(&self, symbol: Symbol) -> *const c_void {
        // SAFETY: an empty record is all zeroes.
        let mut place: libc::Dl_info = unsafe { core::mem::zeroed() };
        // SAFETY: any address may be asked for, and the record is ours.
        if unsafe { libc::dladdr(self.caller, &raw mut place) } == 0 {
            return ptr::null();
        }
        // SAFETY: the name of an object that is loaded, since code in it has called us. No other is loaded by this.
        let library = unsafe { libc::dlopen(place.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if library.is_null() {
            return ptr::null();
        }
        let found = in_scope(symbol, library);
        // SAFETY: what was opened above.
        unsafe { libc::dlclose(library) };
        found
    }

    /// What the next `dlsym` says.
    fn ask(&self) -> *const c_void {
        let next = self.next();
        if self.version.is_null() {
            // SAFETY: `next` is a `dlsym`, by the way it was found.
            let dlsym = unsafe { core::mem::transmute::<*const c_void, Dlsym>(next) };
            // SAFETY: the caller's own arguments.
            return unsafe { dlsym(self.handle, self.name) };
        }
        // SAFETY: `next` is a `dlvsym`, by the way it was found.
        let dlvsym = unsafe { core::mem::transmute::<*const c_void, Dlvsym>(next) };
        // SAFETY: the caller's own arguments.
        unsafe { dlvsym(self.handle, self.name, self.version) }
    }

    /// The `dlsym` or `dlvsym` behind ours.
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

/// Where a look-up goes on a system without the function.
extern "C" fn nothing() -> *const c_void {
    ptr::null()
}

/// Our entry where the global scope has the symbol from a driver too, else nothing.
fn behind_us(symbol: Symbol, entry: *const c_void) -> *const c_void {
    if in_scope(symbol, libc::RTLD_NEXT).is_null() { ptr::null() } else { entry }
}

/// Returns true if ours is the only definition in the global scope: without us there would be none.
fn stands_alone(symbol: Symbol) -> bool {
    in_scope(symbol, libc::RTLD_NEXT).is_null()
        && in_scope(symbol, libc::RTLD_DEFAULT).cast_const() == exports::entry(symbol)
}

/// What the C library's `dlsym` finds from where we stand.
fn in_scope(symbol: Symbol, handle: *mut c_void) -> *mut c_void {
    let Some(dlsym) = resolve::own_dlsym() else { return ptr::null_mut() };
    let mut name = [0; 128];
    if let Some(place) = name.get_mut(..symbol.name().len()) {
        place.copy_from_slice(symbol.name().as_bytes());
    }
    // SAFETY: the C library's `dlsym`; the name is zero-terminated, being shorter than its place.
    unsafe { dlsym(handle, name.as_ptr().cast()) }
}

/// Images of the driver's libraries that have been seen, by API.
static SEEN: [OnceBox<Image>; 2] = [const { OnceBox::new() }; 2];

/// Returns true if an address lies in a driver library that has been seen.
pub(crate) fn known_driver(address: *const c_void) -> bool {
    SEEN.iter().filter_map(OnceBox::get).any(|image| image.contains(address))
}

/// Returns true if an address lies in a driver library, of which note is taken at its first sight: its functions are
/// what entries lead to from now on, so it must not be unloaded.
#[cold]
fn is_driver(address: *const c_void, symbol: Symbol) -> bool {
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
