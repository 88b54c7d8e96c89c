//! The operator's file that bounds the limits of a slice.
//!
//! In a container, this is the file in the fixed place. On the host, this is the file of a slice that `gpuslice cdi` or
//! gpuslice-agent made; the slice's processes see it in the fixed place. Before they set back limits above the file, they read
//! the file again. So a command that raises limits writes the file first.

use super::typed_limits::TypedLimits;
use crate::output::failure::Failure;
use crate::system;
use gpuslice_policy::config::{Ceilings, FIXED_FILE};
use gpuslice_region::operator::Contents;
use gpuslice_slices::discovery::FoundRegion;
use gpuslice_slices::slot::{self, Name, Places};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The operator's file that bounds the limits of a slice, and the change that the command will write.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// The file's path.
    path: PathBuf,
    /// The file's contents after the change.
    contents: Contents,
    /// A text that says how to raise the limits.
    raise: String,
    /// The name of the slice, if gpuslice-agent has made it for its configuration.
    agent_slice: Option<Name>,
    change: Option<FileChange>,
}

/// A change of the file of a slice on this host.
#[derive(Debug)]
struct FileChange {
    places: Places,
    name: Name,
    settings: Vec<(String, String)>,
    /// While this lock is held, other commands that change the slice wait. It is held until this
    /// command has changed the region too.
    _lock: File,
}

/// The program that made a slice of this host, and that sets its limits.
enum Maker {
    /// The agent, for a pod.
    Kubelet,
    /// The agent, for its configuration.
    Agent,
    /// `gpuslice cdi`.
    Command,
}

/// Returns the slice of this host with this region, and the program that made it. None: the region belongs to another slice.
fn made(places: &Places, region: &FoundRegion) -> Option<(Name, Maker)> {
    // If only a container has the region, its path means another file on this host.
    let region = Some(region).filter(|region| region.private_to().is_none())?;
    let name = places.name_of(&region.path).filter(|name| places.config(name).exists())?;
    let maker = if name.is_of_kubelet() {
        Maker::Kubelet
    } else if places.owner_file(&name).exists() {
        Maker::Agent
    } else {
        Maker::Command
    };
    Some((name, maker))
}

impl Bounds {
    /// Returns the bounds of the slice with this region, for a change to the typed limits.
    pub(crate) fn of(region: &FoundRegion, typed: TypedLimits<'_>) -> Result<Self, Failure> {
        let places = Places::usual(Path::new("/"));
        let Some((name, maker)) = made(&places, region) else {
            return Ok(Self::of_processes(region));
        };
        let raise = match maker {
            Maker::Kubelet => "the request of the slice's pod sets them".to_owned(),
            Maker::Agent => agent(&name),
            Maker::Command if system::user() != 0 => "root raises them".to_owned(),
            Maker::Command => return Self::of_command(places, name, typed),
        };
        let path = places.config(&name);
        let agent_slice = Some(name).filter(|_| matches!(maker, Maker::Agent));
        Ok(Self { contents: Contents::of(&path), path, raise, agent_slice, change: None })
    }

    /// Returns the bounds in the file that the region's processes see, in their container or else on this host.
    fn of_processes(region: &FoundRegion) -> Self {
        let contents = region.operators_file(FIXED_FILE);
        let contents = contents.unwrap_or_else(|| Contents::of(Path::new(FIXED_FILE)));
        let raise = "only the operator of the node raises them".to_owned();
        Self { path: FIXED_FILE.into(), contents, raise, agent_slice: None, change: None }
    }

    /// Returns the bounds of a slice of `gpuslice cdi`. This user may change their file.
    fn of_command(places: Places, name: Name, typed: TypedLimits<'_>) -> Result<Self, Failure> {
        let lock = places.lock(&name)?;
        let before = places.settings(&name)?;
        let settings = slot::changed(&before, typed.settings());
        let text: String = settings.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        let settings = settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let raise = format!("`gpuslice cdi {name}` raises limits by a list, which names GPUs by their UUIDs");
        let path = places.config(&name);
        let change = Some(FileChange { places, name, settings, _lock: lock });
        Ok(Self { path, contents: Contents::Read(text.into_bytes()), raise, agent_slice: None, change })
    }

    /// Returns the name of the slice, if gpuslice-agent has made it for its configuration.
    pub(crate) fn agent_slice(&self) -> Option<&Name> {
        self.agent_slice.as_ref()
    }

    /// Returns the limits in the file, or none if there is no file.
    pub(crate) fn ceilings(&self) -> Option<Ceilings> {
        Ceilings::read(self.contents.as_read())
    }

    /// Returns the refusal of limits above these bounds. `most` is the text of the bounds on a GPU.
    pub(crate) fn refusal(&self, most: &str, gpu: &str) -> Failure {
        Failure::new(format!(
            "that is above the limits of {}: {most} at the most on {gpu}; {}",
            self.path.display(),
            self.raise
        ))
    }

    /// Writes the change of the file, if the bounds have one.
    pub(crate) fn write(&self) -> Result<(), Failure> {
        let Some(FileChange { places, name, settings, .. }) = &self.change else { return Ok(()) };
        let settings: Vec<(&str, String)> =
            settings.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        Ok(places.change(name, &settings)?)
    }
}

/// Returns the refusal to change a slice of `gpuslice cdi` that has no living process. None: the region belongs to another slice.
pub(crate) fn unused(region: &FoundRegion) -> Option<Failure> {
    let (name, maker) = made(&Places::usual(Path::new("/")), region)?;
    matches!(maker, Maker::Command).then(|| {
        Failure::new(format!(
            "no process lives in the slice {name}; `gpuslice cdi {name}` changes the limits of its next start"
        ))
    })
}

/// Returns the refusal to remove the region of a slice of this host. Containers with the slice need the region's file, because
/// their users may not be able to make a new one. None: the region belongs to another slice.
pub(crate) fn kept(region: &FoundRegion) -> Option<Failure> {
    let places = Places::usual(Path::new("/"));
    let (name, maker) = made(&places, region)?;
    let way = match maker {
        Maker::Kubelet => "gpuslice-agent removes it with the slice".to_owned(),
        Maker::Agent => "take it out of /etc/gpuslice/agent.toml, and send the agent SIGHUP".to_owned(),
        Maker::Command => {
            let files = [places.spec(&name), places.regions.join(name.as_str()), places.slot(&name)];
            let files = files.map(|file| file.display().to_string()).join(" ");
            format!("once none has, remove the slice with: rm -r {files}")
        }
    };
    Some(Failure::new(format!("a container may have the region of the slice {name}; {way}")))
}

/// Returns a text that says how to raise the limits of a slice of gpuslice-agent. The agent sets back limits
/// that are raised in another way.
fn agent(name: &Name) -> String {
    format!(
        "the slice {name} is gpuslice-agent's: only a running agent raises its quota, in whole MiB, and its share, for root and the \
         agent's group; or change /etc/gpuslice/agent.toml and send the agent SIGHUP"
    )
}
