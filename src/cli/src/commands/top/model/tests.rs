//! Tests the figures that several looks give together.

use super::*;
use gpuslice_region::Limits;

/// Returns a slice that holds `held` bytes and used `used` milliseconds of one GPU.
pub(crate) fn slice(name: &str, held: u64, used: u64) -> ObservedSlice {
    let device = Device {
        number: 0,
        uuid: Uuid([0x11; 16]),
        total: 16 << 30,
        limits: Limits { memory: Some(8 << 30), cores_permille: 300, ..Limits::NONE },
        held,
        contexts: held / 4,
        peak: held,
        used: used * 1_000_000,
        throttled: 0,
        queued: 0,
        refused: 0,
        unmet: 0,
        spilled: 0,
    };
    let process = Process {
        id: ProcessId { pid: 7, start: 1, slot: 0 },
        number: Some(7),
        command: Some("python train.py".to_owned()),
        held: vec![held],
        refused: vec![0],
        used: vec![used * 1_000_000],
        throttled: vec![0],
    };
    ObservedSlice {
        path: Path::new("/dev/shm").join(name),
        name: name.to_owned(),
        life: SliceIdentity { inode: 1, epoch: 1 },
        is_removable: false,
        devices: vec![device],
        processes: vec![process],
    }
}

pub(crate) fn seen(slices: &[ObservedSlice]) -> Observation {
    Observation { slices: slices.to_vec(), ..Observation::default() }
}

fn names(model: &Model, sort: Sort, reversed: bool) -> Vec<String> {
    let groups = model.groups(sort, reversed);
    groups.iter().flat_map(|group| &group.rows).map(|row| row.slice.name.clone()).collect()
}

fn only<'a>(groups: &'a [Group<'a>]) -> &'a Row<'a> {
    assert_eq!((groups.len(), groups[0].rows.len()), (1, 1));
    &groups[0].rows[0]
}

#[test]
fn recent_use_is_the_charge_of_the_last_second_at_any_refresh_interval() {
    for step in [100, 1000, 2500] {
        let (mut model, start) = (Model::default(), Instant::now());
        for look in 0..200_u64 {
            let at = look * step;
            // In the first ten seconds, the slice uses a tenth of the time. After that, it uses a half.
            let used = at.min(10_000) / 10 + at.saturating_sub(10_000) / 2;
            model.take(seen(&[slice("a", 0, used)]), start + Duration::from_millis(at));
            let groups = model.groups(Sort::Name, false);
            match at {
                0 => assert_eq!(only(&groups).used, None),
                1..=10_000 => assert_eq!(only(&groups).used, Some(100), "{at} by {step}"),
                12_500.. => assert_eq!(only(&groups).used, Some(500), "{at} by {step}"),
                _ => {}
            }
            let second = usize::try_from(at / 1000).unwrap().min(MINUTE);
            assert_eq!(only(&groups).seconds.len(), second, "{at} by {step}");
        }
        let groups = model.groups(Sort::Name, false);
        let processes = model.processes_of(only(&groups), Sort::Name, false);
        assert_eq!(processes[0].used, only(&groups).used);
    }
}

#[test]
fn a_slice_that_is_made_anew_has_no_past() {
    let (mut model, start) = (Model::default(), Instant::now());
    model.take(seen(&[slice("a", 0, 0)]), start);
    model.take(seen(&[slice("a", 0, 900)]), start + Duration::from_secs(1));
    assert_eq!(only(&model.groups(Sort::Name, false)).used, Some(900));
    let mut anew = slice("a", 0, 950);
    anew.life.epoch = 2;
    model.take(seen(&[anew.clone()]), start + Duration::from_secs(2));
    let groups = model.groups(Sort::Name, false);
    assert_eq!((only(&groups).used, only(&groups).seconds.as_slice()), (None, &[][..]));
    drop(groups);
    anew.life.inode = 2;
    model.take(seen(&[anew]), start + Duration::from_secs(3));
    assert_eq!(only(&model.groups(Sort::Name, false)).used, None);
    model.take(Observation::default(), start + Duration::from_secs(4));
    assert!(model.groups(Sort::Name, false).is_empty() && model.tracks.is_empty());
}

#[test]
fn counters_that_fall_use_nothing() {
    let (mut model, start) = (Model::default(), Instant::now());
    model.take(seen(&[slice("a", 0, 900)]), start);
    model.take(seen(&[slice("a", 0, 0)]), start + Duration::from_secs(1));
    assert_eq!(only(&model.groups(Sort::Name, false)).used, Some(0));
    model.take(seen(&[slice("a", 0, 5)]), start + Duration::from_secs(1));
    assert_eq!(only(&model.groups(Sort::Name, false)).used, Some(0));
}

#[test]
fn slices_are_sorted_by_name_memory_and_time_and_turned_round() {
    let (mut model, start) = (Model::default(), Instant::now());
    model.take(seen(&[slice("b", 1, 0), slice("a", 3, 0), slice("c", 2, 0)]), start);
    let later = start + Duration::from_secs(1);
    model.take(seen(&[slice("b", 1, 20), slice("a", 3, 10), slice("c", 2, 30)]), later);
    assert_eq!(names(&model, Sort::Name, false), ["a", "b", "c"]);
    assert_eq!(names(&model, Sort::Name, true), ["c", "b", "a"]);
    assert_eq!(names(&model, Sort::Memory, false), ["a", "c", "b"]);
    assert_eq!(names(&model, Sort::Time, false), ["c", "b", "a"]);
    assert_eq!(names(&model, Sort::Time, true), ["a", "b", "c"]);
    assert_eq!(Sort::Name.next().next().next(), Sort::Name);
}

#[test]
fn slices_stand_with_their_gpus_and_those_without_one_last() {
    let (mut model, mut two, mut none) = (Model::default(), slice("two", 5, 0), slice("none", 0, 0));
    let other = Device { number: 1, uuid: Uuid([0x01; 16]), held: 7, ..two.devices[0].clone() };
    two.devices.push(other);
    none.devices.clear();
    model.take(seen(&[none, two, slice("one", 2, 0)]), Instant::now());
    let groups = model.groups(Sort::Name, false);
    let shape: Vec<_> = groups.iter().map(|group| (group.uuid, group.held, group.rows.len())).collect();
    assert_eq!(shape, [(Some(Uuid([1; 16])), 7, 1), (Some(Uuid([0x11; 16])), 7, 2), (None, 0, 1)]);
    assert_eq!(model.processes(), 3);
}

/// Returns the use outside of slices on the only GPU. NVML saw the GPU busy for 98 % of the time.
fn outside_time(model: &mut Model) -> Option<u64> {
    let gpu = nvml::NvmlDevice { utilization: Some(98), ..nvml::NvmlDevice::default() };
    model.gpus = vec![(Uuid([0x11; 16]), gpu)];
    model.groups(Sort::Name, false)[0].outside_time()
}

#[test]
fn time_outside_of_slices_is_known_only_if_the_use_of_each_slice_is() {
    let (mut model, start) = (Model::default(), Instant::now());
    let mut unlimited = slice("b", 0, 0);
    unlimited.devices[0].limits.cores_permille = 1000;
    model.take(seen(&[slice("a", 0, 0)]), start);
    assert_eq!(outside_time(&mut model), None, "a first look tells no use");
    let later = |seconds| start + Duration::from_secs(seconds);
    model.take(seen(&[slice("a", 0, 300)]), later(1));
    assert_eq!(outside_time(&mut model), Some(680));
    for second in [2, 3] {
        model.take(seen(&[slice("a", 0, 300 * second), unlimited.clone()]), later(second));
        assert_eq!(outside_time(&mut model), None);
    }
    let groups = model.groups(Sort::Name, false);
    let [paced, not] = groups[0].rows.as_slice() else { panic!("{groups:?}") };
    assert_eq!((groups[0].used, paced.used, not.used), (Some(300), Some(300), None));
    let used = |row| model.processes_of(row, Sort::Name, false)[0].used;
    assert_eq!((used(paced), used(not)), (Some(300), None));
    drop(groups);
    // A slice without a process uses nothing.
    unlimited.processes.clear();
    model.take(seen(&[slice("a", 0, 1200), unlimited]), later(4));
    assert_eq!(outside_time(&mut model), Some(680));
}
