//! The files that make parts of GPUs a slice of a container.

use crate::objects::Part;
use gpuslice_policy::config::Ceiling;
use gpuslice_policy::units::{Bytes, Permille};
use gpuslice_region::Limits;
use gpuslice_slices::cdi::CdiDevice;
use gpuslice_slices::slot::{Name, Places, Problem, remove_folder};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// Bytes in a mebibyte.
pub(crate) const MIB: u64 = 1 << 20;

/// Time between two looks for limits that tenants have raised.
const HOLD_EVERY: Duration = Duration::from_secs(2);

/// Makes all files of a slice except for its specification, and returns the device for the specification. `library` is the path
/// that [`Places::install`] returned. `is_used` is the flag of [`Places::make`].
pub(crate) fn make(
    places: &Places,
    library: &Path,
    name: &Name,
    parts: &[Part],
    is_used: bool,
) -> Result<CdiDevice, Problem> {
    places.make(name, &settings(parts), is_used)?;
    Ok(device(places, library, name, parts))
}

/// Returns the device for the specification of a slice.
pub(crate) fn device(places: &Places, library: &Path, name: &Name, parts: &[Part]) -> CdiDevice {
    let mut device = places.device(name, &settings(parts), library);
    let gpus: Vec<&str> = parts.iter().map(|part| part.uuid.as_str()).collect();
    // NVIDIA's container runtime gives a container the GPUs in this variable. Images of CUDA set it to all GPUs.
    device.container_edits.env.push(format!("NVIDIA_VISIBLE_DEVICES={}", gpus.join(",")));
    device
}

/// Returns the settings of a slice. They name GPUs by UUID, and sizes in bytes.
pub(crate) fn settings(parts: &[Part]) -> Vec<(&'static str, String)> {
    let list = |value: &dyn Fn(&Part) -> Option<String>| {
        let items: Vec<String> =
            parts.iter().filter_map(|part| Some(format!("{}={}", part.uuid, value(part)?))).collect();
        items.join(",")
    };
    let memory = list(&|part| Some(part.mem_mib.saturating_mul(MIB).to_string()));
    let core = list(&|part| (part.core > 0).then(|| part.core.to_string()));
    let named = [("GPU_MEM_LIMIT", memory), ("GPU_CORE_PERCENT", core)];
    named.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// Returns the names of all slices that have a specification, a folder or a region.
pub(crate) fn names(places: &Places) -> BTreeSet<Name> {
    let spec = |file: &str| file.strip_prefix("gpuslice-")?.strip_suffix(".json")?.parse().ok();
    let specs = fs::read_dir(&places.cdi).into_iter().flatten().flatten();
    let specs = specs.filter_map(|entry| spec(entry.file_name().to_str()?));
    specs.chain(Name::all_in(&places.slots())).chain(Name::all_in(&places.regions)).collect()
}

/// Lowers the limits of a region that a tenant has raised above those of its parts. Limits that a tenant has lowered stay.
pub(crate) fn hold(places: &Places, name: &Name, parts: &[Part]) -> Result<(), String> {
    limit(places, name, parts, |has, may| {
        let cores = u16::try_from(may.cores_permille).ok().and_then(Permille::new);
        has.lowered(&Ceiling { memory: may.memory.map(Bytes::new), cores, ..Ceiling::default() })
    })
}

/// Writes limits into a region, for the GPUs that the region has. `of` gets the present limits and those of the parts.
pub(crate) fn limit(
    places: &Places,
    name: &Name,
    parts: &[Part],
    of: impl Fn(Limits, Limits) -> Option<Limits>,
) -> Result<(), String> {
    let changed = places.impose_limits(name, |device| {
        let part = parts.iter().find(|part| part.uuid.ends_with(&device.uuid.to_string()))?;
        of(device.limits, part.limits(device.limits))
    });
    changed.map(|_| ()).map_err(|error| error.to_string())
}

/// Calls `hold` every two seconds, and logs new failures, until the future is dropped. `hold` lowers limits that tenants have
/// raised, and returns its failures.
pub(crate) async fn hold_limits<F: Future<Output = Result<Vec<String>, String>>>(hold: impl Fn() -> F) {
    let mut told = Vec::new();
    loop {
        let failures = hold().await.unwrap_or_else(|error| vec![error]);
        for failure in failures.iter().filter(|failure| !told.contains(*failure)) {
            tracing::warn!("a region may have more than its limits: {failure}");
        }
        told = failures;
        tokio::time::sleep(HOLD_EVERY).await;
    }
}

/// Removes the specification of a slice. After that, no container can start with the slice.
///
/// # Errors
/// The specification exists and cannot be removed.
pub(crate) fn withdraw(places: &Places, name: &Name) -> Result<(), Problem> {
    remove_file(&places.spec(name))
}

/// Removes the files of a slice, its specification first and its folder last.
///
/// # Errors
/// A file exists and cannot be removed. The function still removes the other files.
pub(crate) fn remove(places: &Places, name: &Name) -> Result<(), Problem> {
    let region = places.region(name);
    let removed = [
        withdraw(places, name),
        remove_folder(region.parent().unwrap_or(&region), &places.regions),
        remove_folder(&places.slot(name), &places.slots()),
    ];
    removed.into_iter().collect()
}

/// Removes a file. A missing file is no failure.
pub(crate) fn remove_file(path: &Path) -> Result<(), Problem> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Problem { path: path.to_owned(), what: format!("cannot be removed: {error}") })
        }
        _ => Ok(()),
    }
}
