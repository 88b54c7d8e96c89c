//! Gives the library the name under which the loader knows the real one, and the real one's manners.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Programs that are linked to it record this name; a later open by name finds it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    // Calls among its own functions stay inside, whatever else the process has loaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
