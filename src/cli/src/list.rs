//! Which slices are there, in one table?

use crate::arguments::List;
use crate::failure::{self, Failure};
use crate::report::Slice;
use crate::status::VERSION;
use crate::{Ending, crowd, figures, slices};
use serde::Serialize;

/// What `--json` prints: of the form of `status --json`, but less; `docs/status.md` describes it.
#[derive(Debug, Serialize)]
struct Listing<'a> {
    version: u32,
    slices: Vec<Listed<'a>>,
}

#[derive(Debug, Serialize)]
struct Listed<'a> {
    name: &'a str,
    region: &'a str,
    processes: usize,
    devices: Vec<ListedDevice<'a>>,
}

#[derive(Debug, Serialize)]
struct ListedDevice<'a> {
    number: usize,
    uuid: &'a str,
    total: u64,
    limit: Option<u64>,
    held: u64,
    share_permille: u32,
    policy: &'a str,
}

/// `gpuslice list`.
pub(crate) fn list(wish: &List) -> Result<Ending, Failure> {
    let readers = slices::look_at_all()?;
    let mut slices = Vec::new();
    for reader in &readers {
        match Slice::of(reader, None, None) {
            Ok(slice) => slices.push(slice),
            Err(error) => failure::note(&slices::lost(&error)),
        }
    }
    crowd::note(&readers);
    if wish.json {
        let listing = Listing { version: VERSION, slices: slices.iter().map(Listed::of).collect() };
        failure::print_json(&listing)?;
    } else {
        failure::print(&table(&slices))?;
    }
    Ok(Ending::Code(0))
}

impl<'a> Listed<'a> {
    fn of(slice: &'a Slice) -> Self {
        let Slice { name, region, processes, devices } = slice;
        let devices = devices.iter().map(|device| ListedDevice {
            number: device.number,
            uuid: &device.uuid,
            total: device.total,
            limit: device.limit,
            held: device.held,
            share_permille: device.time.share_permille,
            policy: &device.time.policy,
        });
        Self { name, region, processes: *processes, devices: devices.collect() }
    }
}

fn table(slices: &[Slice]) -> String {
    let mut rows =
        vec![["NAME", "DEVICE", "HELD", "LIMIT", "SHARE", "PROCESSES"].map(str::to_owned).to_vec()];
    for slice in slices {
        let row = |device: &str, figures: [String; 3]| {
            let names = [slice.name.clone(), device.to_owned()];
            names.into_iter().chain(figures).chain([slice.processes.to_string()]).collect()
        };
        for device in &slice.devices {
            let (held, limit) = (figures::size(device.held), figures::limit(device.limit));
            rows.push(row(&device.uuid, [held, limit, device.time.share()]));
        }
        if slice.devices.is_empty() {
            rows.push(row("(none yet)", Default::default()));
        }
    }
    figures::table(&rows, &[2, 3, 4, 5])
}
