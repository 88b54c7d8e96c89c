//! A tenant's view of the GPU: the size that programs see if they know nothing of gpuslice.

use super::slice::DemoSlice;
use super::stage::Stage;
use crate::output::failure::Failure;
use crate::preload::preload_list;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A Python program that asks the driver for the size of the device.
pub(super) const SCRIPT: &str = "\
from ctypes import *
cu, it, free, size = CDLL(\"libcuda.so.1\"), c_void_p(), c_size_t(), c_size_t()
cu.cuInit(0); cu.cuDevicePrimaryCtxRetain(byref(it), 0); cu.cuCtxSetCurrent(it)
cu.cuMemGetInfo_v2(byref(free), byref(size)); print(size.value >> 20, \"MiB\")";
/// Arguments that ask `nvidia-smi` for the size of the device.
pub(super) const QUERY: [&str; 2] = ["--query-gpu=memory.total", "--format=csv,noheader"];

/// The answers of one program, without gpuslice and in a slice.
#[derive(Debug)]
pub(super) struct ShownMemory {
    /// The question: `cuMemGetInfo` or `nvidia-smi`.
    pub(super) what: &'static str,
    /// The program's answer without gpuslice.
    pub(super) bare: String,
    /// The program's answer in the slice.
    pub(super) inside: String,
}

impl ShownMemory {
    /// Returns true if the program sees the slice's quota as the size of the device. `nvidia-smi` and the script show whole MiB.
    pub(super) fn is_of(&self, limit: u64) -> bool {
        self.inside == format!("{} MiB", limit >> 20) && self.bare != self.inside
    }
}

/// Returns the views of Python and of `nvidia-smi`, if these programs are installed.
pub(super) fn views(stage: &Stage, slice: &DemoSlice) -> Result<Vec<ShownMemory>, Failure> {
    let mut views = Vec::new();
    let python = || {
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT]);
        command
    };
    views.extend(view("cuMemGetInfo", python, (stage, slice))?);
    for monitor in monitors() {
        let smi = || {
            let mut command = Command::new(&monitor);
            command.args(QUERY);
            command
        };
        if let Some(view) = view("nvidia-smi", smi, (stage, slice))? {
            views.push(view);
            break;
        }
    }
    Ok(views)
}

/// Starts a program without gpuslice and in the slice, and returns both answers. Returns `None` if the program is missing, or
/// does not work with this driver.
fn view(
    what: &'static str,
    program: impl Fn() -> Command,
    (stage, slice): (&Stage, &DemoSlice),
) -> Result<Option<ShownMemory>, Failure> {
    let answer = |command: &mut Command| {
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        output.status.success().then(|| text.lines().next().unwrap_or_default().trim().to_owned())
    };
    let Some(bare) = answer(stage.context(&mut program(), "")) else { return Ok(None) };
    let mut command = program();
    stage.context(&mut command, slice.account.name);
    let inside = answer(command.env("LD_PRELOAD", preload_list(&stage.library)?).envs(slice.settings()));
    Ok(inside.map(|inside| ShownMemory { what, bare, inside }))
}

/// Returns possible paths of `nvidia-smi`: the machine's own, and the ones that ci/drivers.sh has put into a source checkout.
fn monitors() -> Vec<PathBuf> {
    let program = std::env::current_exe().and_then(|path| path.canonicalize()).unwrap_or_default();
    let fetched = program.ancestors().nth(3).map(|root| root.join("build/drivers"));
    let series = fetched.and_then(|folder| folder.read_dir().ok()).into_iter().flatten().flatten();
    let mut fetched: Vec<PathBuf> = series.map(|entry| entry.path().join("nvidia-smi")).collect();
    fetched.sort();
    [PathBuf::from("nvidia-smi")].into_iter().chain(fetched.into_iter().rev()).collect()
}
