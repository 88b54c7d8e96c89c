//! Makes the slices of the configuration, and keeps them as they were made.
//!
//! The agent writes the limits of a slice beside its operator's file. A limit that was changed while the agent ran therefore holds
//! after a restart, until the configuration of the slice changes.

use crate::config::Wanted;
use crate::gpus::{Gpu, bare};
use crate::snapshot::Slice;
use gpuslice_policy::config::{
    Config, CorePolicy, DeviceIdentity, DeviceName, PerDevice, Priority, Quota, Weight, parse_uuid_text,
};
use gpuslice_policy::units::{Bytes, Permille, Setting as _};
use gpuslice_region::{Limits, Monitor, Sharing, Trust};
use gpuslice_slices::discovery::FileId;
use gpuslice_slices::slot::{Name, Places, Problem, write_whole};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use tracing::{info, warn};

/// Bytes of a file of ours at the most.
const MOST_BYTES: u64 = 64 << 10;

/// The part of its GPU that a slice may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    /// The GPU's UUID.
    pub(crate) gpu: String,
    /// Bytes of memory; none: all.
    pub(crate) memory: Option<u64>,
    /// Thousandths of its time.
    pub(crate) share_permille: u16,
    /// As `GPU_CORE_POLICY` has it.
    pub(crate) policy: String,
    /// As `GPU_CORE_WEIGHT` has it.
    pub(crate) weight: u16,
    /// As `GPU_PRIORITY` has it.
    pub(crate) priority: String,
}

/// The file of a slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// The terms of the configuration.
    configured: Terms,
    /// The terms that hold.
    holds: Terms,
    /// Counts changes.
    generation: u64,
}

/// A slice of the configuration.
#[derive(Debug)]
pub(crate) struct Owned {
    /// Its entry of the configuration.
    pub(crate) wanted: Wanted,
    kept: Option<Kept>,
    /// The reason why it was not made, or is not as it should be.
    pub(crate) problem: Option<String>,
}

/// A change of limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Change {
    /// Bytes of memory.
    pub(crate) memory: Option<u64>,
    /// Thousandths of the GPU's time.
    pub(crate) share: Option<Permille>,
}

impl Terms {
    /// The terms of an entry, on the GPUs of the node.
    fn of(wanted: &Wanted, gpus: &[Gpu]) -> Result<Self, String> {
        let (gpu, total) = gpu_of(&wanted.gpu, gpus)?;
        let memory = match (wanted.memory, total) {
            (None, _) => None,
            (Some(Quota::Size(bytes)), None) => Some(bytes.get()),
            (Some(quota), Some(total)) => bytes_of(quota, total),
            (Some(_), None) => {
                return Err("its memory is a percentage, and NVML does not say how much the GPU has; write a size like 4GiB".to_owned());
            }
        };
        Ok(Self {
            gpu,
            memory,
            share_permille: wanted.cores.get(),
            policy: wanted.policy.setting(),
            weight: wanted.weight.get(),
            priority: wanted.priority.setting(),
        })
    }

    /// As the operator's file has them. By UUID: numbers mean another GPU in each container.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        let gpu = &self.gpu;
        let memory = self.memory.map(|bytes| ("GPU_MEM_LIMIT", format!("{gpu}={bytes}")));
        let share = Permille::new(self.share_permille).unwrap_or(Permille::FULL);
        // Always: a share of everything makes the program a member of the slice as well.
        let mut settings: Vec<_> = memory.into_iter().collect();
        settings.push(("GPU_CORE_PERCENT", format!("{gpu}={}", share.setting())));
        settings.push(("GPU_CORE_POLICY", self.policy.clone()));
        settings.push(("GPU_CORE_WEIGHT", self.weight.to_string()));
        settings.push(("GPU_PRIORITY", self.priority.clone()));
        settings
    }

    /// As a region has them; what a region alone knows stays.
    pub(crate) fn limits(&self, limits: Limits) -> Limits {
        Limits {
            memory: self.memory,
            cores_permille: self.share_permille.into(),
            sharing: Sharing {
                policy: self.policy.parse().unwrap_or_default(),
                weight: self.weight.into(),
                priority: self.priority.parse().unwrap_or_default(),
            },
            ..limits
        }
    }

    /// The limits of a region, where they grant more than this; a tenant may have lowered its own.
    fn lowered(&self, limits: Limits) -> Option<Limits> {
        let most = self.limits(limits);
        let memory = match (limits.memory, most.memory) {
            (Some(has), Some(may)) => Some(has.min(may)),
            (None, may) => may,
            (has, None) => has,
        };
        let cores_permille = limits.cores_permille.min(most.cores_permille);
        let bounded = Limits { memory, cores_permille, sharing: most.sharing, ..limits };
        (bounded != limits).then_some(bounded)
    }
}

/// The GPU that a name means, and the bytes that it has.
fn gpu_of(name: &DeviceName, gpus: &[Gpu]) -> Result<(String, Option<u64>), String> {
    let is_meant = |gpu: &&Gpu| {
        let (ordinal, total) = (Some(gpu.index), Bytes::new(gpu.memory_total.unwrap_or(0)));
        let identity = |uuid| DeviceIdentity { ordinal, bus: None, uuid, total };
        parse_uuid_text(&gpu.uuid).is_some_and(|uuid| name.matches(&identity(uuid)))
    };
    let meant: Vec<&Gpu> = gpus.iter().filter(is_meant).collect();
    let there = || {
        let names: Vec<String> = gpus.iter().map(|gpu| format!("{} ({})", gpu.index, gpu.uuid)).collect();
        if names.is_empty() {
            "NVML tells of none".to_owned()
        } else {
            format!("there are {}", names.join(", "))
        }
    };
    match (meant.as_slice(), parse_uuid_text(&name.to_string())) {
        ([gpu], _) => Ok((gpu.uuid.clone(), gpu.memory_total)),
        // Without NVML a whole UUID is enough; an instance (MIG) is in no list of GPUs.
        ([], Some(_)) if gpus.is_empty() || name.to_string().starts_with("MIG-") => {
            Ok((name.to_string(), None))
        }
        ([], _) => Err(format!("gpu = {name} is no GPU of this node; {}", there())),
        _ => Err(format!("gpu = {name} means several GPUs; write more of the UUID: {}", there())),
    }
}

/// A quota in bytes, no more than the GPU has.
fn bytes_of(quota: Quota, total: u64) -> Option<u64> {
    let mut config = Config::default();
    config.memory = PerDevice::everywhere(quota);
    let gpu = DeviceIdentity { ordinal: None, bus: None, uuid: [0; 16], total: Bytes::new(total) };
    config.limits_for(gpu).memory.map(Bytes::get)
}

impl Owned {
    /// A slice that is not made yet.
    pub(crate) fn new(wanted: Wanted) -> Self {
        Self { wanted, kept: None, problem: None }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &Name {
        &self.wanted.name
    }

    /// Its terms; none: it is not made.
    pub(crate) fn terms(&self) -> Option<&Terms> {
        self.kept.as_ref().map(|kept| &kept.holds)
    }

    /// The count of its changes; none: it is not made.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.kept.as_ref().map(|kept| kept.generation)
    }

    /// Makes it, or mends what is not as it was made. `is_used`: a container has its region's folder. Tells in
    /// [`problem`](Self::problem) what cannot be done, and is to be called again.
    pub(crate) fn make(
        &mut self,
        places: &Places,
        library: &Result<PathBuf, Problem>,
        gpus: &[Gpu],
        is_used: bool,
    ) {
        let made = self.try_make(places, library, gpus, is_used);
        let problem = made.err();
        if problem.is_some() && problem != self.problem {
            warn!(slice = %self.name(), "{}", problem.as_deref().unwrap_or_default());
        }
        self.problem = problem;
    }

    fn try_make(
        &mut self,
        places: &Places,
        library: &Result<PathBuf, Problem>,
        gpus: &[Gpu],
        is_used: bool,
    ) -> Result<(), String> {
        let name = self.wanted.name.clone();
        let library = library.as_ref().map_err(ToString::to_string)?;
        let kept = match &self.kept {
            Some(kept) => kept.clone(),
            None => {
                let configured = Terms::of(&self.wanted, gpus)?;
                match read(&places.owner_file(&name)) {
                    Some(before) if before.configured == configured => before,
                    before => Kept {
                        holds: configured.clone(),
                        configured,
                        generation: before.map_or(1, |before| before.generation.saturating_add(1)),
                    },
                }
            }
        };
        let settings = kept.holds.settings();
        let texts = |problem: Problem| problem.to_string();
        places.make(&name, &settings, is_used).map_err(texts)?;
        write(places, &name, &kept)?;
        places.announce(&name, places.device(&name, &settings, library)).map_err(texts)?;
        if self.kept.is_none() {
            info!(slice = %name, gpu = kept.holds.gpu, generation = kept.generation, "made");
        }
        self.kept = Some(kept);
        Ok(())
    }

    /// Changes what it may use: first what holds from its next start on, then the region that its processes share.
    pub(crate) fn change(&mut self, places: &Places, change: Change) -> Result<u64, String> {
        let name = self.wanted.name.clone();
        let Some(kept) = &self.kept else {
            return Err(format!(
                "the slice {name} is not made: {}",
                self.problem.as_deref().unwrap_or("see the log")
            ));
        };
        let mut holds = kept.holds.clone();
        holds.memory = change.memory.or(holds.memory);
        holds.share_permille = change.share.map_or(holds.share_permille, Permille::get);
        let kept = Kept {
            holds,
            configured: kept.configured.clone(),
            generation: kept.generation.saturating_add(1),
        };
        places.configure(&name, &kept.holds.settings()).map_err(|problem| problem.to_string())?;
        write(places, &name, &kept)?;
        self.kept = Some(kept);
        let generation = self.generation().unwrap_or_default();
        self.apply(places, |terms, limits| Some(terms.limits(limits)))?;
        Ok(generation)
    }

    /// Whether its region grants more than it may use.
    pub(crate) fn is_exceeded_by(&self, told: &Slice) -> bool {
        let Some(terms) = self.terms() else { return false };
        let on_it = told.devices.iter().filter(|device| device.uuid == terms.gpu);
        on_it.filter_map(|device| device.limits).any(|limits| terms.lowered(limits).is_some())
    }

    /// Takes back what a tenant has granted itself in the region. Returns whether there was anything.
    pub(crate) fn hold(&self, places: &Places) -> Result<bool, String> {
        self.apply(places, Terms::lowered)
    }

    /// Writes limits of its GPU into the region, where the region has the GPU already.
    fn apply(
        &self,
        places: &Places,
        limits: impl Fn(&Terms, Limits) -> Option<Limits>,
    ) -> Result<bool, String> {
        let Some(terms) = self.terms() else { return Ok(false) };
        let region = places.region(self.name());
        let Some(monitor) = Monitor::open(&region, Trust::AnyOwner).map_err(|error| error.to_string())?
        else {
            return Ok(false);
        };
        let changes = monitor.change_limits(|device| {
            let is_it = device.uuid.to_string() == bare(&terms.gpu);
            is_it.then(|| limits(terms, device.limits))?
        });
        Ok(!changes.map_err(|error| error.to_string())?.is_empty())
    }

    /// The folder of its region, as containers that have it see it too.
    pub(crate) fn folder(&self, places: &Places) -> Option<FileId> {
        FileId::of(places.region(self.name()).parent()?).ok()
    }
}

fn read(path: &Path) -> Option<Kept> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    let kept: Kept = serde_json::from_str(&text).ok()?;
    let is_right = |terms: &Terms| {
        terms.policy.parse::<CorePolicy>().is_ok()
            && terms.weight.to_string().parse::<Weight>().is_ok()
            && terms.priority.parse::<Priority>().is_ok()
            && Permille::new(terms.share_permille).is_some()
    };
    Some(kept).filter(|kept| is_right(&kept.holds))
}

fn write(places: &Places, name: &Name, kept: &Kept) -> Result<(), String> {
    let text = serde_json::to_string_pretty(kept).map_err(|error| error.to_string())?;
    write_whole(&places.owner_file(name), format!("{text}\n").as_bytes(), 0o644)
        .map_err(|problem| problem.to_string())
}

/// Slices that were made once and are not configured any more, by name.
pub(crate) fn left_behind(places: &Places, configured: &BTreeSet<Name>) -> Vec<Name> {
    let entries = fs::read_dir(places.slots()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<Name>().ok());
    // A folder is ours if it says so: others may have put theirs beside it.
    names.filter(|name| !configured.contains(name) && places.owner_file(name).exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_region::{DeviceRequest, Member, Uuid};

    const GIB: u64 = 1 << 30;

    fn gpus() -> Vec<Gpu> {
        let gpu = |index, uuid: &str| Gpu {
            uuid: uuid.to_owned(),
            index,
            healthy: true,
            memory_total: Some(16 * GIB),
            ..Gpu::default()
        };
        vec![
            gpu(0, "GPU-11111111-1111-1111-1111-111111111111"),
            gpu(1, "GPU-12222222-2222-2222-2222-222222222222"),
        ]
    }

    fn wanted(gpu: &str, memory: Option<&str>) -> Wanted {
        Wanted {
            name: "a".parse().unwrap(),
            gpu: gpu.parse().unwrap(),
            memory: memory.map(|text| text.parse().unwrap()),
            cores: "30".parse().unwrap(),
            policy: CorePolicy::Fixed,
            weight: Weight::default(),
            priority: Priority::Normal,
            line: 1,
        }
    }

    struct Place {
        _root: tempfile::TempDir,
        places: Places,
        library: Result<PathBuf, Problem>,
    }

    fn place() -> Place {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let at = |name: &str| root.path().join(name);
        let places = Places { state: at("state"), regions: at("regions"), cdi: at("cdi") };
        fs::write(at("built.so"), "library").unwrap();
        let library = places.install(&at("built.so"));
        Place { _root: root, places, library }
    }

    impl Place {
        fn make(&self, wanted: Wanted) -> Owned {
            let mut owned = Owned::new(wanted);
            owned.make(&self.places, &self.library, &gpus(), false);
            owned
        }

        fn config(&self) -> String {
            fs::read_to_string(self.places.config(&"a".parse().unwrap())).unwrap()
        }
    }

    #[test]
    fn limits_are_written_by_uuid_and_in_bytes() {
        let place = place();
        let owned = place.make(wanted("1", Some("25%")));
        assert_eq!(owned.problem, None);
        let text = place.config();
        assert!(
            text.contains(&format!("GPU_MEM_LIMIT=GPU-12222222-2222-2222-2222-222222222222={}\n", 4 * GIB)),
            "{text}"
        );
        assert!(text.contains("GPU_CORE_PERCENT=GPU-12222222-2222-2222-2222-222222222222=30\n"), "{text}");
    }

    #[test]
    fn a_gpu_that_is_not_there_or_not_clear_is_told_with_those_that_are() {
        let place = place();
        for (gpu, has) in [
            ("7", "gpu = 7 is no GPU of this node; there are 0 (GPU-1111"),
            ("GPU-1", "means several GPUs"),
            ("GPU-9", "is no GPU"),
        ] {
            let owned = place.make(wanted(gpu, None));
            assert!(
                owned.problem.as_ref().is_some_and(|text| text.contains(has)),
                "{gpu}: {:?}",
                owned.problem
            );
            assert!(!place.places.spec(owned.name()).exists(), "a container would get no limits");
        }
        let whole = wanted("GPU-99999999-9999-9999-9999-999999999999", Some("4GiB"));
        assert_eq!(Terms::of(&whole, &[]).unwrap().memory, Some(4 * GIB));
        assert!(
            Terms::of(&Wanted { memory: Some("50%".parse().unwrap()), ..whole }, &[])
                .unwrap_err()
                .contains("percentage")
        );
    }

    #[test]
    fn a_change_outlives_the_agent_until_the_configuration_says_something_else() {
        let place = place();
        let mut owned = place.make(wanted("0", Some("4GiB")));
        assert_eq!(owned.generation(), Some(1));
        let change = Change { memory: Some(GIB), share: "50".parse().ok() };
        assert_eq!(owned.change(&place.places, change), Ok(2));
        let again = place.make(wanted("0", Some("4GiB")));
        assert_eq!((again.generation(), again.terms().unwrap().memory), (Some(2), Some(GIB)));
        assert!(place.config().contains("=50\n"), "{}", place.config());
        let other = place.make(wanted("0", Some("8GiB")));
        assert_eq!((other.generation(), other.terms().unwrap().memory), (Some(3), Some(8 * GIB)));
    }

    #[test]
    fn a_change_reaches_the_region_and_a_tenant_cannot_raise_its_limits_for_long() {
        let place = place();
        let mut owned = place.make(wanted("0", Some("4GiB")));
        let region = place.places.region(owned.name());
        let limits = Limits { memory: Some(4 * GIB), cores_permille: 300, ..Limits::NONE };
        let wanted = [DeviceRequest { uuid: Uuid([0x11; 16]), total: 16 * GIB, limits }];
        let (member, _) = Member::join(&region, Trust::AnyOwner, &wanted).unwrap();
        let device = member.devices()[0].device;
        owned.change(&place.places, Change { memory: Some(GIB), share: None }).unwrap();
        assert_eq!((member.limits(device).memory, member.limits(device).cores_permille), (Some(GIB), 300));
        // Its own: raised, and then lowered.
        member.set_limits(device, Limits { memory: None, cores_permille: 1000, ..limits });
        assert_eq!(owned.hold(&place.places), Ok(true));
        assert_eq!((member.limits(device).memory, member.limits(device).cores_permille), (Some(GIB), 300));
        member.set_limits(device, Limits { memory: Some(5), cores_permille: 10, ..limits });
        assert_eq!(owned.hold(&place.places), Ok(false));
        assert_eq!((member.limits(device).memory, member.limits(device).cores_permille), (Some(5), 10));
    }

    #[test]
    fn what_stands_where_the_region_was_is_set_aside_once_no_container_has_it() {
        let place = place();
        let mut owned = place.make(wanted("0", None));
        let region = place.places.region(owned.name());
        fs::write(&region, "no region").unwrap();
        owned.make(&place.places, &place.library, &gpus(), true);
        assert!(
            owned.problem.as_ref().is_some_and(|text| text.contains("begins with")),
            "{:?}",
            owned.problem
        );
        owned.make(&place.places, &place.library, &gpus(), false);
        assert_eq!(owned.problem, None);
        assert!(Member::join(&region, Trust::AnyOwner, &[]).is_ok());
    }

    #[test]
    fn slices_that_are_not_configured_any_more_are_known() {
        let place = place();
        place.make(wanted("0", None));
        fs::create_dir(place.places.slots().join("not-ours")).unwrap();
        let name: Name = "a".parse().unwrap();
        assert_eq!(left_behind(&place.places, &BTreeSet::new()), std::slice::from_ref(&name));
        assert!(left_behind(&place.places, &BTreeSet::from([name])).is_empty());
    }
}
