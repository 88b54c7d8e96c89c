//! Arguments of the linker for the preload library.

fn main() {
    // The library's references to its own exports are bound to the library, whichever library comes first in the process.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rerun-if-changed=build.rs");
}
