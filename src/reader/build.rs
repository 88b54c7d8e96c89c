//! Link options of the reader.

fn main() {
    // The number must increase when a program that is linked with the present library could not use the next one.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgpuslice_read.so.1");
    // After a program has opened a slice, a handler for `SIGBUS` points into the library. So the library must not be
    // unloaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
