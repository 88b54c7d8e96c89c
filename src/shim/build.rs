//! Arguments of the linker for the preload library.

fn main() {
    // Our own references to what we export stay ours, whichever library comes first in the process.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rerun-if-changed=build.rs");
}
