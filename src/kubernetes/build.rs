//! Generates the messages and services of `proto/`, without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["proto/deviceplugin.proto", "proto/podresources.proto"];
    for file in files {
        println!("cargo::rerun-if-changed={file}");
    }
    tonic_prost_build::configure().compile_fds(protox::compile(files, ["proto"])?)?;
    Ok(())
}
