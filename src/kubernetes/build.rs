//! Generates the messages and services of `proto/`, without `protoc`.

use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    generate(&["deviceplugin.proto", "podresources.proto"], &out)?;
    // The folder separates packages of one name: both podresources.proto and drahealth-v1.proto are the package `v1`.
    generate(
        &["pluginregistration.proto", "dra.proto", "drahealth.proto", "drahealth-v1.proto"],
        &out.join("dra"),
    )
}

fn generate(files: &[&str], folder: &Path) -> Result<(), Box<dyn Error>> {
    for file in files {
        println!("cargo::rerun-if-changed=proto/{file}");
    }
    std::fs::create_dir_all(folder)?;
    let read = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure().out_dir(folder).compile_fds(read)?;
    Ok(())
}
