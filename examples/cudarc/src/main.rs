//! A program that uses cudarc's safe API, and the quota that it sees.
//!
//! The program knows nothing of gpuslice. It copies numbers to the device and back, fills the device until the driver says that
//! it is full, frees a part, and goes on.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what it does")]

use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError};
use std::process::ExitCode;
use std::sync::Arc;

const MIB: usize = 1 << 20;
/// Number of pieces into which the device is cut.
const PIECES: usize = 8;

fn main() -> ExitCode {
    match show() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn show() -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let (free, total) = context.mem_get_info()?;
    println!("device 0: {} MiB, {} MiB free", context.total_mem()? / MIB, free / MIB);

    copy(&stream)?;
    let mut pieces = fill(&stream, total / PIECES)?;
    println!("{} MiB free", free_mib(&context)?);

    drop(pieces.pop());
    stream.synchronize()?;
    println!("one piece freed: {} MiB free", free_mib(&context)?);
    pieces.push(stream.alloc_zeros(total / PIECES)?);
    println!("one more piece granted: {} MiB free", free_mib(&context)?);

    drop(pieces);
    stream.synchronize()?;
    println!("all freed: {} MiB free", free_mib(&context)?);
    Ok(())
}

/// Sends numbers to the device, and checks that the same numbers come back.
fn copy(stream: &Arc<CudaStream>) -> Result<(), DriverError> {
    let sent: Vec<u32> = (0..1024).collect();
    let received = stream.clone_dtoh(&stream.clone_htod(&sent)?)?;
    stream.synchronize()?;
    println!("1024 numbers there and back: {}", if sent == received { "the same" } else { "different" });
    Ok(())
}

/// Allocates pieces until the driver has no memory left, and returns them.
fn fill(stream: &Arc<CudaStream>, bytes: usize) -> Result<Vec<CudaSlice<u8>>, DriverError> {
    let mut pieces = Vec::new();
    loop {
        match stream.alloc_zeros(bytes) {
            Ok(piece) => pieces.push(piece),
            Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => break,
            Err(other) => return Err(other),
        }
    }
    println!("{} pieces of {} MiB granted, then CUDA_ERROR_OUT_OF_MEMORY", pieces.len(), bytes / MIB);
    Ok(pieces)
}

fn free_mib(context: &CudaContext) -> Result<usize, DriverError> {
    let (free, _total) = context.mem_get_info()?;
    Ok(free / MIB)
}
