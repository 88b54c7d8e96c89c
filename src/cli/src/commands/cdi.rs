//! `gpuslice cdi`: makes a slice that containers get as a device.

use crate::arguments::Cdi;
use crate::output::ending::Ending;
use crate::output::failure::{self, Failure};
use crate::slices::typed_limits::TypedLimits;
use gpuslice_slices::cdi::{KIND, Spec};
use gpuslice_slices::installed;
use gpuslice_slices::slot::{self, Places};

/// Makes a slice that containers get as a device: `gpuslice cdi`.
pub(crate) fn cdi(wish: &Cdi) -> Result<Ending, Failure> {
    let mut places = Places::usual(&wish.root);
    if let Some(folder) = &wish.dir {
        places.cdi.clone_from(folder);
    }
    let library = installed::library()?;
    if wish.print {
        let before = places.settings(&wish.name)?;
        let settings = slot::changed(&before, TypedLimits::from(wish).settings());
        let device = places.device(&wish.name, &settings, &places.library(&library)?);
        failure::print_json(&Spec::of(vec![device]))?;
        return Ok(Ending::Code(0));
    }
    let (name, owner) = (&wish.name, places.owner_file(&wish.name));
    if name.is_of_kubelet() {
        return Err(Failure::new(format!(
            "{name}: the kubelet's slots and claims have such names, and gpuslice-agent removes those that no pod has; choose another name"
        )));
    }
    if owner.exists() {
        return Err(Failure::new(format!(
            "the slice {name} is gpuslice-agent's, by {}; set its limits in /etc/gpuslice/agent.toml, or choose another name",
            owner.display()
        )));
    }
    let library = places.install(&library)?;
    let _lock = places.lock(name)?;
    let before = places.settings(name)?;
    let settings = slot::changed(&before, TypedLimits::from(wish).settings());
    // This command cannot know whether a container has the region. So if a file that is no region has the region's place, the
    // command reports the file, and leaves it.
    places.make(name, &settings, true)?;
    places.announce(name, places.device(name, &settings, &library))?;
    wish.mem.iter().for_each(failure::remark);
    failure::print(&format!(
        "{}: a container is the slice {name} with --device {KIND}={name}, beside its GPU, such as --device nvidia.com/gpu=0\n",
        places.spec(name).display()
    ))?;
    Ok(Ending::Code(0))
}
