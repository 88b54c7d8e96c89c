//! Link options of the reader.

fn main() {
    // The number counts up when a program that was linked with the library before would not do with it any more.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgpuslice_read.so.1");
    // A handler for `SIGBUS` points into the library once a slice was opened: it must not be unloaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
