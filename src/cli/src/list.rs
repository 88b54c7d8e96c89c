//! Which slices are there, in one table?

use crate::failure::{self, Failure};
use crate::report::Slice;
use crate::{Ending, figures, slices};

/// `gpuslice list`.
pub(crate) fn list() -> Result<Ending, Failure> {
    let monitors = slices::open_all()?;
    let mut rows =
        vec![["NAME", "DEVICE", "HELD", "LIMIT", "SHARE", "PROCESSES"].map(str::to_owned).to_vec()];
    for slice in monitors.iter().map(|monitor| Slice::of(monitor, None, None)) {
        let row = |device: &str, figures: [String; 3]| {
            let names = [slice.name.clone(), device.to_owned()];
            names.into_iter().chain(figures).chain([slice.processes.to_string()]).collect()
        };
        for device in &slice.devices {
            let (held, limit) = (figures::size(device.held), figures::limit(device.limit));
            rows.push(row(&device.uuid, [held, limit, figures::percent(device.time.share_permille.into())]));
        }
        if slice.devices.is_empty() {
            rows.push(row("(none yet)", Default::default()));
        }
    }
    failure::print(&figures::table(&rows, &[2, 3, 4, 5]))?;
    Ok(Ending::Code(0))
}
