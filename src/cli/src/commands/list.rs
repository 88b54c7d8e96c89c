//! `gpuslice list`: a table of slices. It has a row for each GPU of each slice.

use crate::arguments::List;
use crate::commands::status::STATUS_VERSION;
use crate::output::ending::Ending;
use crate::output::failure::{self, Failure};
use crate::slices::{self, OpenRegion, Survey, too_many};
use gpuslice_slices::figures;
use gpuslice_slices::nvml::{Nvml, NvmlTimeout};
use gpuslice_slices::report::{self, Beside, Device, Gpu, Slice};
use gpuslice_slices::time::Lately;
use serde::Serialize;

/// The object that `list --json` prints. It has the form of `status --json` with fewer fields;
/// `docs/reference/status-json.md` describes it.
#[derive(Debug, Serialize)]
struct Listing<'a> {
    version: u32,
    slices: Vec<Listed<'a>>,
    gpus: Vec<Gpu>,
}

#[derive(Debug, Serialize)]
struct Listed<'a> {
    name: &'a str,
    container: Option<&'a str>,
    container_name: Option<&'a str>,
    region: &'a str,
    uid: Option<u32>,
    user: Option<&'a str>,
    started: Option<u64>,
    processes: usize,
    devices: Vec<ListedDevice<'a>>,
}

#[derive(Debug, Serialize)]
struct ListedDevice<'a> {
    number: usize,
    uuid: &'a str,
    index: Option<u32>,
    instance: Option<u32>,
    product: Option<&'a str>,
    total: u64,
    limit: Option<u64>,
    held: u64,
    share_permille: u32,
    policy: &'a str,
    used_ns: u64,
    lately: [Lately; 3],
}

/// Prints the table of slices, or its JSON: `gpuslice list`.
pub(crate) fn list(wish: &List) -> Result<Ending, Failure> {
    let (survey, open) = if wish.slices.is_empty() {
        slices::look_at_all()?
    } else {
        let survey = Survey::now()?;
        let open = wish.slices.iter().map(|slice| survey.look(slice)).collect::<Result<_, _>>()?;
        (survey, open)
    };
    let has_devices = |open: &OpenRegion| open.reader.device_count().is_ok_and(|count| count > 0);
    let nvml = open.iter().any(has_devices).then(|| Nvml::open(NvmlTimeout::Quick, failure::note)).flatten();
    let beside = Beside { machine: &survey.machine, nvml: nvml.as_ref(), compares: false, look: None };
    let mut slices = Vec::new();
    for OpenRegion { region, reader } in &open {
        match Slice::of(&survey.label(region), region, reader, beside) {
            Ok(slice) => slices.push(slice),
            Err(error) => failure::note(&slices::lost(region, &error)),
        }
    }
    too_many::note(&open);
    report::unused_last(&mut slices);
    let gpus = report::gpus(&slices);
    let warnings = report::warnings(&gpus);
    if wish.json {
        let listing =
            Listing { version: STATUS_VERSION, slices: slices.iter().map(Listed::of).collect(), gpus };
        failure::print_json(&listing)?;
    } else {
        // A program that reads the JSON can leave out unused slices itself. A person sees them only on request.
        let shows = |slice: &&Slice| wish.all || !wish.slices.is_empty() || !slice.is_unused();
        failure::print(&table(&slices.iter().filter(shows).collect::<Vec<_>>()))?;
    }
    warnings.iter().for_each(|warning| failure::note(warning));
    Ok(Ending::Code(0))
}

impl<'a> Listed<'a> {
    fn of(slice: &'a Slice) -> Self {
        let device = |device: &'a Device| ListedDevice {
            number: device.number,
            uuid: &device.uuid,
            index: device.index,
            instance: device.instance,
            product: device.product.as_deref(),
            total: device.total,
            limit: device.limit,
            held: device.held,
            share_permille: device.time.share_permille,
            policy: &device.time.policy,
            used_ns: device.time.used_ns,
            lately: device.time.lately,
        };
        Self {
            name: &slice.name,
            container: slice.container.as_deref(),
            container_name: slice.container_name.as_deref(),
            region: &slice.region,
            uid: slice.uid,
            user: slice.user.as_deref(),
            started: slice.started,
            processes: slice.processes,
            devices: slice.devices.iter().map(device).collect(),
        }
    }
}

/// Columns of the table. The columns in [`NUMBERS`] are aligned to the right. The column [`CONTAINER`] is left out
/// if no slice is in a container.
const TABLE_COLUMNS: [&str; 12] =
    ["NAME", "GPU", "UUID", "USED", "LIMIT", "TIME", "SHARE", "PROCS", "USER", "AGE", "CONTAINER", "PRODUCT"];
const NUMBERS: [usize; 5] = [3, 4, 5, 6, 7];
const CONTAINER: usize = 10;

fn table(slices: &[&Slice]) -> String {
    let mut rows = vec![TABLE_COLUMNS.map(str::to_owned).to_vec()];
    for slice in slices {
        let dash = || "-".to_owned();
        let user = slice.user.clone().or_else(|| slice.uid.map(|uid| uid.to_string())).unwrap_or_else(dash);
        let age = if slice.is_unused() {
            "unused".to_owned()
        } else {
            slice.started.map_or_else(dash, figures::age_since)
        };
        let container = slice.container_words().unwrap_or_else(dash);
        let row = |[number, uuid]: [String; 2], figures: [String; 4], product: String| {
            let (name, processes) = (slice.name.clone(), slice.processes.to_string());
            let end = [processes, user.clone(), age.clone(), container.clone(), product];
            [name, number, uuid].into_iter().chain(figures).chain(end).collect()
        };
        for device in &slice.devices {
            let number = report::number(device.index, device.instance).unwrap_or_else(dash);
            let product = device.product.clone().unwrap_or_default();
            rows.push(row([number, report::short(&device.uuid)], used(device), product));
        }
        if slice.devices.is_empty() {
            rows.push(row([dash(), "(none yet)".to_owned()], Default::default(), String::new()));
        }
    }
    if slices.iter().all(|slice| slice.container_words().is_none()) {
        rows.iter_mut().for_each(|row| {
            row.remove(CONTAINER);
        });
    }
    figures::table(&rows, &NUMBERS)
}

/// Returns the used memory, its limit, the use of time in the last second, and the share.
fn used(device: &Device) -> [String; 4] {
    let [lately, _, _] = &device.time.lately;
    let time = device.time.used(lately);
    [figures::size(device.held), figures::limit(device.limit), time, device.time.share()]
}
