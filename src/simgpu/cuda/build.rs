//! Gives the library the name by which the loader knows the real one, and links it as the real one is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Programs that link the library record this name. A later open by this name finds the library.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Calls between functions of this library do not leave it, as in the real library.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // The library starts threads, so its code must stay loaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
