//! Makes the slices of the configuration, and restores files that differ.
//!
//! The agent writes a record of the limits beside the operator's file of a slice. So limits that a client changed while the
//! agent ran survive its restart. They hold until the slice's entry in the configuration changes.

mod slice_record;
mod terms;

use crate::config::SliceConfig;
use crate::gpus::{Gpu, bare};
use crate::request::Change;
use crate::snapshot::SliceSnapshot;
use gpuslice_policy::units::Permille;
use gpuslice_region::Limits;
use gpuslice_slices::discovery::FileId;
use gpuslice_slices::slot::{Name, Places, Problem};
use slice_record::{SliceRecord, read, write};
use std::path::PathBuf;
use terms::Terms;
use tracing::{info, warn};

pub(crate) use slice_record::left_behind;

/// A slice of the configuration.
#[derive(Debug)]
pub(crate) struct Owned {
    /// The slice's entry in the configuration.
    pub(crate) wanted: SliceConfig,
    kept: Option<SliceRecord>,
    /// The reason why the slice is not made, or differs from its entry.
    pub(crate) problem: Option<String>,
}

impl Owned {
    /// Returns a slice whose files are not made yet.
    pub(crate) fn new(wanted: SliceConfig) -> Self {
        Self { wanted, kept: None, problem: None }
    }

    /// Returns the slice's name.
    pub(crate) fn name(&self) -> &Name {
        &self.wanted.name
    }

    /// Returns the slice's terms, or none if it is not made.
    pub(crate) fn terms(&self) -> Option<&Terms> {
        self.kept.as_ref().map(|kept| &kept.holds)
    }

    /// Returns the number of changes of the slice, or none if it is not made.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.kept.as_ref().map(|kept| kept.generation)
    }

    /// Makes the slice, or restores files that differ from its terms. `is_used` is true if a container has the folder of its
    /// region. If this fails, the function stores the reason in [`problem`](Self::problem), and the caller calls again later.
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
            None => self.begin(places, gpus)?,
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
        self.catch_up(places)
    }

    /// Returns the terms of a slice that this agent has not made yet. Terms that a client has changed hold until the slice's
    /// entry in the configuration changes.
    fn begin(&mut self, places: &Places, gpus: &[Gpu]) -> Result<SliceRecord, String> {
        let configured = Terms::of(&self.wanted, gpus)?;
        let before = read(&places.owner_file(self.name()));
        let generation = match before {
            Some(before) if before.configured == configured => {
                return Ok(SliceRecord { holds: before.holds.within(gpus), configured, ..before });
            }
            Some(before) => before.generation.saturating_add(1),
            None => 1,
        };
        Ok(SliceRecord { holds: configured.clone().within(gpus), configured, generation, applied: 0 })
    }

    /// Writes changed terms into the region that the processes share, and then records in the file that this is done.
    ///
    /// The agent may end between the change and this call. Then the file has a `generation` that is newer than `applied`, and
    /// the next agent writes the region. If the agent cannot write the region, the next [`make`](Self::make) tries again.
    fn catch_up(&mut self, places: &Places) -> Result<(), String> {
        let Some(kept) = self.kept.clone().filter(|kept| kept.applied != kept.generation) else {
            return Ok(());
        };
        self.apply(places, |terms, limits| Some(terms.limits(limits)))?;
        let kept = SliceRecord { applied: kept.generation, ..kept };
        write(places, self.name(), &kept)?;
        self.kept = Some(kept);
        Ok(())
    }

    /// Changes the limits of the slice, and returns the number of its changes so far.
    ///
    /// The agent writes the operator's file and the record first, and the region of the running processes last. So a new
    /// process never starts with the old limits after the change is recorded. If the region cannot be written, the change still
    /// holds for new processes, and the error says so.
    pub(crate) fn change(&mut self, places: &Places, gpus: &[Gpu], change: Change) -> Result<u64, String> {
        let name = self.wanted.name.clone();
        let Some(kept) = &self.kept else {
            return Err(format!(
                "the slice {name} is not made: {}",
                self.problem.as_deref().unwrap_or("see the log")
            ));
        };
        let gpu = gpus.iter().find(|gpu| gpu.uuid == kept.holds.gpu);
        if let Some(total) = gpu.and_then(|gpu| gpu.memory_total)
            && let Some(memory) = change.memory.filter(|memory| *memory > total)
        {
            let [memory, total] = [memory, total].map(|bytes| bytes >> 20);
            return Err(format!("memMiB = {memory} is more than the GPU has: {total} MiB"));
        }
        let mut holds = kept.holds.clone();
        holds.memory = change.memory.or(holds.memory);
        holds.share_permille = change.share.map_or(holds.share_permille, Permille::get);
        let kept = SliceRecord { holds, generation: kept.generation.saturating_add(1), ..kept.clone() };
        places.configure(&name, &kept.holds.settings()).map_err(|problem| problem.to_string())?;
        write(places, &name, &kept)?;
        let generation = kept.generation;
        self.kept = Some(kept);
        self.catch_up(places).map_err(|error| {
            format!("the change {generation} holds for new processes, and running ones follow once this is mended: {error}")
        })?;
        Ok(generation)
    }

    /// Returns true if the slice's region grants more than its terms.
    pub(crate) fn is_exceeded_by(&self, told: &SliceSnapshot) -> bool {
        let Some(terms) = self.terms() else { return false };
        let on_it = told.devices.iter().filter(|device| device.uuid == terms.gpu);
        on_it.filter_map(|device| device.limits).any(|limits| terms.lowered(limits).is_some())
    }

    /// Lowers limits that a tenant has raised in the region. Returns true if a limit was too high.
    pub(crate) fn hold(&self, places: &Places) -> Result<bool, String> {
        self.apply(places, Terms::lowered)
    }

    /// Writes limits of the slice's GPU into the region, if the region already has the GPU. Returns true if a limit changed.
    fn apply(
        &self,
        places: &Places,
        limits: impl Fn(&Terms, Limits) -> Option<Limits>,
    ) -> Result<bool, String> {
        let Some(terms) = self.terms() else { return Ok(false) };
        let changed = places.impose_limits(self.name(), |device| {
            let is_it = device.uuid.to_string() == bare(&terms.gpu);
            is_it.then(|| limits(terms, device.limits))?
        });
        changed.map_err(|error| error.to_string())
    }

    /// Returns the identity of the region's folder. The folder has the same identity in containers that have it.
    pub(crate) fn folder(&self, places: &Places) -> Option<FileId> {
        FileId::of(places.region(self.name()).parent()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_policy::config::{CorePolicy, Priority, Weight};
    use gpuslice_region::{DeviceRequest, Limits, Member, Trust, Uuid};
    use std::collections::BTreeSet;
    use std::fs;

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

    fn wanted(gpu: &str, memory: Option<&str>) -> SliceConfig {
        SliceConfig {
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
        fn make(&self, wanted: SliceConfig) -> Owned {
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
    fn a_weight_is_written_where_it_has_an_effect() {
        for (policy, is_written) in
            [(CorePolicy::Fixed, false), (CorePolicy::Equal, true), (CorePolicy::BestEffort, true)]
        {
            let place = place();
            place.make(SliceConfig { policy, ..wanted("0", None) });
            assert_eq!(place.config().contains("GPU_CORE_WEIGHT"), is_written, "{}", place.config());
        }
    }

    #[test]
    fn a_number_means_the_gpu_that_nvml_lists_beside_a_lost_one_that_had_it() {
        let [lost, listed] = gpus().try_into().unwrap();
        let gpus = [Gpu { healthy: false, ..lost.clone() }, Gpu { index: 0, ..listed.clone() }];
        let gpu = |gpus: &[Gpu]| Terms::of(&wanted("0", None), gpus).map(|terms| terms.gpu);
        assert_eq!(gpu(&gpus), Ok(listed.uuid));
        // While no other GPU has the number, it still means the lost one.
        assert_eq!(gpu(&gpus[..1]), Ok(lost.uuid));
    }

    #[test]
    fn a_missing_or_ambiguous_gpu_is_a_problem_that_lists_the_gpus() {
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
            Terms::of(&SliceConfig { memory: Some("50%".parse().unwrap()), ..whole }, &[])
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
        assert_eq!(owned.change(&place.places, &gpus(), change), Ok(2));
        let again = place.make(wanted("0", Some("4GiB")));
        assert_eq!((again.generation(), again.terms().unwrap().memory), (Some(2), Some(GIB)));
        assert!(place.config().contains("=50\n"), "{}", place.config());
        let other = place.make(wanted("0", Some("8GiB")));
        assert_eq!((other.generation(), other.terms().unwrap().memory), (Some(3), Some(8 * GIB)));
    }

    #[test]
    fn a_change_grants_no_more_memory_than_the_gpu_has() {
        let place = place();
        let mut owned = place.make(wanted("0", Some("4GiB")));
        let before = place.config();
        let more = |bytes| Change { memory: Some(bytes), share: "50".parse().ok() };
        let refused = owned.change(&place.places, &gpus(), more(160 * GIB));
        assert_eq!(refused, Err("memMiB = 163840 is more than the GPU has: 16384 MiB".to_owned()));
        assert_eq!((place.config(), owned.generation()), (before, Some(1)));
        assert_eq!(owned.change(&place.places, &gpus(), more(16 * GIB)), Ok(2));
        // Without NVML, the agent does not know the GPU's size, so it accepts more.
        assert_eq!(owned.change(&place.places, &[], more(160 * GIB)), Ok(3));
    }

    #[test]
    fn a_change_outlives_an_agent_that_starts_before_nvml() {
        let place = place();
        let wanted = || wanted("GPU-11111111-1111-1111-1111-111111111111", Some("20GiB"));
        let make = |gpus: &[Gpu]| {
            let mut owned = Owned::new(wanted());
            owned.make(&place.places, &place.library, gpus, false);
            let memory = owned.terms().unwrap().memory.unwrap();
            (owned, memory)
        };
        assert_eq!(make(&[]).1, 20 * GIB);
        // NVML tells that the GPU has 16 GiB, so the slice gets no more.
        let (mut owned, memory) = make(&gpus());
        assert_eq!((memory, owned.generation()), (16 * GIB, Some(1)));
        let change = Change { memory: Some(GIB), share: None };
        assert_eq!(owned.change(&place.places, &gpus(), change), Ok(2));
        for gpus in [gpus(), Vec::new(), gpus()] {
            let (owned, memory) = make(&gpus);
            assert_eq!((memory, owned.generation()), (GIB, Some(2)));
        }
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
        owned.change(&place.places, &gpus(), Change { memory: Some(GIB), share: None }).unwrap();
        assert_eq!((member.limits(device).memory, member.limits(device).cores_permille), (Some(GIB), 300));
        // The tenant raises its own limits, and then lowers them.
        member.set_limits(device, Limits { memory: None, cores_permille: 1000, ..limits });
        assert_eq!(owned.hold(&place.places), Ok(true));
        assert_eq!((member.limits(device).memory, member.limits(device).cores_permille), (Some(GIB), 300));
        member.set_limits(device, Limits { memory: Some(5), cores_permille: 10, ..limits });
        assert_eq!(owned.hold(&place.places), Ok(false));
        assert_eq!((member.limits(device).memory, member.limits(device).cores_permille), (Some(5), 10));
    }

    #[test]
    fn a_changed_configuration_reaches_processes_that_run() {
        let place = place();
        place.make(wanted("0", Some("4GiB")));
        let name: Name = "a".parse().unwrap();
        let limits = Limits { memory: Some(4 * GIB), cores_permille: 300, ..Limits::NONE };
        let request = [DeviceRequest { uuid: Uuid([0x11; 16]), total: 16 * GIB, limits }];
        let (member, _) = Member::join(&place.places.region(&name), Trust::AnyOwner, &request).unwrap();
        let device = member.devices()[0].device;
        place.make(wanted("0", Some("8GiB")));
        assert_eq!(member.limits(device).memory, Some(8 * GIB));
        // The configuration is the same, so the limits stay as the tenant has lowered them.
        member.set_limits(device, Limits { memory: Some(5), ..limits });
        place.make(wanted("0", Some("8GiB")));
        assert_eq!(member.limits(device).memory, Some(5));
    }

    #[test]
    fn a_change_that_did_not_reach_the_region_is_made_up_for_by_the_next_agent() {
        let place = place();
        let mut owned = place.make(wanted("0", Some("4GiB")));
        let region = place.places.region(owned.name());
        let limits = Limits { memory: Some(4 * GIB), cores_permille: 300, ..Limits::NONE };
        let request = [DeviceRequest { uuid: Uuid([0x11; 16]), total: 16 * GIB, limits }];
        let (member, _) = Member::join(&region, Trust::AnyOwner, &request).unwrap();
        let aside = region.with_extension("aside");
        fs::rename(&region, &aside).unwrap();
        fs::write(&region, "no region").unwrap();
        let change = Change { memory: Some(8 * GIB), share: None };
        assert!(
            owned
                .change(&place.places, &gpus(), change)
                .unwrap_err()
                .contains("the change 2 holds for new processes")
        );
        fs::rename(&aside, &region).unwrap();
        place.make(wanted("0", Some("4GiB")));
        assert_eq!(member.limits(member.devices()[0].device).memory, Some(8 * GIB));
    }

    #[test]
    fn a_file_that_is_no_region_is_set_aside_once_no_container_has_it() {
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
    fn slices_that_the_configuration_lacks_are_found() {
        let place = place();
        place.make(wanted("0", None));
        fs::create_dir(place.places.slots().join("not-ours")).unwrap();
        let name: Name = "a".parse().unwrap();
        assert_eq!(left_behind(&place.places, &BTreeSet::new()), std::slice::from_ref(&name));
        assert!(left_behind(&place.places, &BTreeSet::from([name])).is_empty());
    }
}
