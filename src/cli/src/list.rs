//! Which slices are there, in one table?

use crate::failure::{self, Failure};
use crate::report::Slice;
use crate::{Ending, figures, slices};

/// `gpuslice list`.
pub(crate) fn list() -> Result<Ending, Failure> {
    let monitors = slices::open_all()?;
    let mut rows = vec![["NAME", "DEVICE", "HELD", "LIMIT", "PROCESSES"].map(str::to_owned).to_vec()];
    for slice in monitors.iter().map(|monitor| Slice::of(monitor, None)) {
        let row = |device: &str, held: String, limit: String| {
            vec![slice.name.clone(), device.to_owned(), held, limit, slice.processes.to_string()]
        };
        for device in &slice.devices {
            rows.push(row(&device.uuid, figures::size(device.held), figures::limit(device.limit)));
        }
        if slice.devices.is_empty() {
            rows.push(row("(none yet)", String::new(), String::new()));
        }
    }
    failure::print(&figures::table(&rows, &[2, 3, 4]))?;
    Ok(Ending::Code(0))
}
