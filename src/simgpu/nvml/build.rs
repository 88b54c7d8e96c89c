//! Gives the library the name under which the loader knows the real one, and links it the way the real one is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Programs that link the library record this name; a later open by name finds it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    // Calls among the functions of this library stay inside, whatever else the process has loaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
