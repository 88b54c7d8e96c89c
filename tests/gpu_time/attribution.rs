//! Attribution of a shared GPU's time: a slice finds its own part, and says so if it cannot.
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test: it ends where something is wrong, and waits for what must come"
)]

use super::hosts;
use crate::support::bench::{Bench, Host, driver_copy};
use crate::support::living::Living;
use crate::support::neighbours::{BUSY, IN_A_CONTAINER, begin, neighbour};
use crate::support::{compiler, skip_without_rights, timed};
use gpuslice_policy::compute::attribution::correction::WHOLE_FACTOR;
use gpuslice_policy::compute::attribution::source::{Measured, Source, Why};
use gpuslice_region::{Monitor, Trust};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Faults of an NVML that lacks the older or the newer function for the use by process.
const NO_SAMPLES: &str = "nvmlDeviceGetProcessUtilization=3";
const NO_LIST: &str = "nvmlDeviceGetProcessesUtilizationInfo=3";

const EVENTS: Measured = Measured::by(Source::Events);
const WHOLE: Measured = Measured::by(Source::Whole);

fn untold(why: Why) -> Measured {
    Measured { source: Source::Events, why: Some(why) }
}

/// Starts a process of the slice that is always busy.
fn member(bench: &Bench) -> Living {
    member_that(bench, &BUSY)
}

/// Starts a process of the slice.
fn member_that(bench: &Bench, does: &[&str]) -> Living {
    begin(host(bench, does).start())
}

fn host<'bench>(bench: &'bench Bench, does: &[&str]) -> Host<'bench> {
    bench.host("load", does).loaded().set("GPU_CORE_PERCENT", "40").set("SIMGPU_GROUP", "home")
}

/// Returns how the slice's time is measured, and the part of it that is the slice's own.
fn told(bench: &Bench) -> (Measured, u32) {
    let monitor = monitor(&bench.region());
    let device = monitor.devices()[0].device;
    (Measured::of_word(monitor.measure_source(device)), monitor.correction(device))
}

fn monitor(region: &Path) -> Monitor {
    Monitor::open(region, Trust::AnyOwner).unwrap().expect("there is a region")
}

/// Returns how the time of the slice with this region is measured.
fn source_of(region: &Path) -> Source {
    let monitor = monitor(region);
    Measured::of_word(monitor.measure_source(monitor.devices()[0].device)).source
}

/// Waits until the time of all these slices is measured as `expected`.
#[track_caller]
fn until_all_have(regions: &[PathBuf], expected: Source) {
    let sources = || regions.iter().map(|region| source_of(region)).collect::<Vec<_>>();
    hosts::until(sources, |sources| sources.iter().all(|source| *source == expected));
}

/// Waits until `is_so` accepts the measurement and the correction.
#[track_caller]
fn until(bench: &Bench, is_so: impl Fn(Measured, u32) -> bool) {
    hosts::until(|| told(bench), |(measured, factor)| is_so(*measured, *factor));
}

/// Returns the condition that nothing is taken off the measured time, and that it is measured as `expected`.
fn is(expected: Measured) -> impl Fn(Measured, u32) -> bool {
    move |measured, factor| measured == expected && factor == WHOLE_FACTOR
}

/// Asserts that for eight seconds the slice reports no other program on the GPU.
#[track_caller]
fn is_alone_for_long(bench: &Bench) {
    until(bench, is(EVENTS));
    let end = Instant::now() + Duration::from_secs(8);
    while Instant::now() < end {
        sleep(Duration::from_millis(20));
        assert_eq!(told(bench), (EVENTS, WHOLE_FACTOR));
    }
}

#[test]
fn turns_of_a_program_that_publishes_nothing_count_and_that_is_said_until_it_has_gone() {
    let bench = Bench::simulated();
    let log = bench.region().with_file_name("share.log");
    let _member = begin(host(&bench, &BUSY).set("GPUSLICE_LOG", &format!("warn:{}", log.display())).start());
    until(&bench, is(EVENTS));
    let mut first = neighbour(&bench);
    until(&bench, is(WHOLE));
    until_warned(&log);
    first.kill();
    until(&bench, is(EVENTS));
    // The warning is not repeated for the next program.
    let _second = neighbour(&bench);
    until(&bench, is(WHOLE));
    let text = fs::read_to_string(&log).unwrap();
    assert_eq!(text.matches("a program uses this GPU that is in no slice of").count(), 1, "{text}");
    for said in ["less beside several such programs", "GPUSLICE_REGION", "gpuslice-agent"] {
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn such_a_program_is_noticed_by_a_program_that_pauses_after_each_request() {
    let bench = Bench::simulated();
    let requests = ["300", "1000000", "every=400000000", "launches=10"];
    let (_neighbour, _member) = (neighbour(&bench), member_that(&bench, &requests));
    until(&bench, is(WHOLE));
}

#[test]
fn such_a_program_is_noticed_whatever_numbers_the_driver_uses() {
    for pids in ["foreign", "offset", "mixed"] {
        let bench = Bench::simulated().with("SIMGPU_NVML_PIDS", pids).with("SIMGPU_CUDA_VERSION", "12040");
        let (_neighbour, _member) = (neighbour(&bench), member(&bench));
        until(&bench, is(WHOLE));
    }
}

#[test]
fn a_slice_does_not_pass_its_share_beside_such_a_program() {
    let bench = Bench::simulated();
    let (_neighbour, member) = (neighbour(&bench), member(&bench));
    until(&bench, is(WHOLE));
    let share = share(&bench, member.pid());
    assert!((15..=41).contains(&share), "{share} % of 40");
}

#[test]
fn several_processes_of_a_slice_are_no_such_program() {
    let bench = Bench::simulated().with("SIMGPU_NVML_PIDS", "offset").with("SIMGPU_CUDA_VERSION", "12040");
    let _members = [member(&bench), member(&bench)];
    is_alone_for_long(&bench);
}

/// Returns true if this process may make containers.
fn may_be_elsewhere() -> bool {
    let tried = Command::new("unshare").args(IN_A_CONTAINER).arg("true").stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// Starts a process of the slice that is always busy, in a container.
fn member_elsewhere(bench: &Bench) -> Living {
    let load = compiler::plain("load").display().to_string();
    // A program that a shell starts in the background would read nothing without this descriptor.
    let go = "exec 3<&0; shift; \"$@\" <&3 & wait";
    let words = [IN_A_CONTAINER.as_slice(), &[go, "sh", "1", &load], &BUSY].concat();
    let host = bench.program(Path::new("/usr/bin/unshare"), &words).loaded();
    begin(host.set("GPU_CORE_PERCENT", "40").set("SIMGPU_GROUP", "home").start())
}

#[test]
fn a_process_of_the_slice_in_another_container_is_no_such_program() {
    if !may_be_elsewhere() {
        return skip_without_rights("members elsewhere");
    }
    let bench = Bench::simulated();
    let _members = [member(&bench), member_elsewhere(&bench)];
    is_alone_for_long(&bench);
}

#[test]
fn whatever_question_the_driver_answers_is_asked() {
    for faults in [NO_SAMPLES, NO_LIST] {
        let bench = Bench::simulated().with("SIMGPU_FAULTS", faults);
        let (_neighbour, _member) = (neighbour(&bench), member(&bench));
        until(&bench, is(WHOLE));
    }
}

#[test]
fn a_slow_nvml_delays_reports_and_nothing_else() {
    let bench = Bench::simulated().with("SIMGPU_FAULTS", "nvmlDeviceGetProcessesUtilizationInfo=delay:30ms");
    let (_neighbour, _member) = (neighbour(&bench), member(&bench));
    until(&bench, is(WHOLE));
}

#[test]
fn the_reason_why_such_programs_stay_unknown_is_reported() {
    let both = format!("{NO_SAMPLES};{NO_LIST}");
    let cases = [
        (("SIMGPU_NVML_PIDS", "none"), Why::NotSupported),
        (("SIMGPU_FAULTS", both.as_str()), Why::NotSupported),
        (("SIMGPU_FAULTS", "nvmlInit_v2=999"), Why::NoNvml),
        (("SIMGPU_FAULTS", "nvmlDeviceGetHandleByUUID=6"), Why::NoDevice),
        (("SIMGPU_MIG", "2"), Why::Mig),
    ];
    for ((name, value), why) in cases {
        let bench = Bench::simulated().with(name, value);
        let (_neighbour, _member) = (neighbour(&bench), member(&bench));
        until(&bench, is(untold(why)));
    }
}

#[test]
fn nvml_is_not_asked_where_events_alone_are_wanted() {
    let bench = Bench::simulated().with("GPU_CORE_METER", "events");
    let (_neighbour, _member) = (neighbour(&bench), member(&bench));
    until(&bench, is(EVENTS));
    for _ in 0..250 {
        sleep(Duration::from_millis(20));
        assert_eq!(told(&bench), (EVENTS, WHOLE_FACTOR));
    }
}

/// Measures for four seconds. Returns the percentage of the time for which a process was busy.
fn share(bench: &Bench, pid: u32) -> u64 {
    let [share] = shares(bench, [pid]);
    share
}

/// Measures several processes in the same four seconds.
fn shares<const COUNT: usize>(bench: &Bench, pids: [u32; COUNT]) -> [u64; COUNT] {
    let busy = || {
        let truth: Value = serde_json::from_str(&bench.report()).unwrap();
        let processes = truth["processes"].as_array().unwrap();
        pids.map(|pid| {
            let process = processes.iter().find(|process| process["pid"] == pid).unwrap();
            process["devices"][0]["busy_ns"].as_u64().unwrap()
        })
    };
    let (began, before) = (Instant::now(), busy());
    sleep(Duration::from_secs(4));
    let (after, passed) = (busy(), began.elapsed().as_millis() as u64 * 10_000);
    core::array::from_fn(|at| (after[at] - before[at]) / passed)
}

#[test]
fn slices_that_publish_beside_each_other_hold_their_shares_without_nvml() {
    let bench = Bench::simulated().with("SIMGPU_NVML_PIDS", "none");
    let log = bench.region().with_file_name("log");
    let told = format!("info:{}", log.display());
    let member = begin(host(&bench, &BUSY).set("GPUSLICE_LOG", &told).start());
    let mut other = begin(host(&bench, &BUSY).in_slice("other").set("SIMGPU_GROUP", "away").start());
    let is_replayed = |measured, factor| {
        measured == Measured::by(Source::Replayed)
            && (WHOLE_FACTOR / 10..WHOLE_FACTOR * 9 / 10).contains(&factor)
    };
    until(&bench, is_replayed);
    let shares = [member.pid(), other.pid()].map(|pid| share(&bench, pid));
    assert!(shares.iter().all(|share| (33..=45).contains(share)), "{shares:?} %");
    other.kill();
    until(&bench, is(untold(Why::NotSupported)));
    let said = fs::read_to_string(log).unwrap();
    let line = "GPU time is measured by events, corrected by the slices' intervals.";
    assert_eq!(said.matches(line).count(), 1, "{said}");
}

#[test]
fn slices_whose_gpu_is_shared_by_mps_replay_no_turns() {
    let bench = Bench::simulated();
    let pipes = bench.region().with_file_name("pipes");
    fs::create_dir_all(&pipes).unwrap();
    fs::write(pipes.join("control"), "").unwrap();
    let bench = bench.with("CUDA_MPS_PIPE_DIRECTORY", &pipes.display().to_string());
    let regions = ["first", "second"].map(|slice| region_in(&bench, "here", slice));
    let _slices = [0, 1].map(|at| begin(host_of(&bench, &regions[at], &at.to_string()).start()));
    let sources = || [0, 1].map(|at| source_of(&regions[at]));
    hosts::until(sources, |sources| !sources.contains(&Source::Unknown));
    // Without MPS each slice replays within a fraction of this time.
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        sleep(Duration::from_millis(20));
        let sources = sources();
        assert!(
            !sources.contains(&Source::Replayed) && !sources.contains(&Source::ReplayedWhole),
            "{sources:?}"
        );
    }
    for region in &regions {
        let monitor = monitor(region);
        assert_eq!(monitor.correction(monitor.devices()[0].device), WHOLE_FACTOR);
    }
}

/// Returns the region of a slice in a folder, and makes the folder.
fn region_in(bench: &Bench, folder: &str, slice: &str) -> PathBuf {
    let folder = bench.region().with_file_name(folder);
    fs::create_dir_all(&folder).unwrap();
    folder.join(slice)
}

/// Prepares a busy process of a slice with a share and this region.
fn host_of<'bench>(bench: &'bench Bench, region: &Path, group: &str) -> Host<'bench> {
    host(bench, &BUSY).set("SIMGPU_GROUP", group).set("GPUSLICE_REGION", &region.display().to_string())
}

/// Prepares a busy process of a slice with a share, whose region lies in a folder of its own.
fn apart<'bench>(bench: &'bench Bench, folder: &str) -> Host<'bench> {
    let region = if folder == "here" { bench.region() } else { region_in(bench, folder, "region") };
    host_of(bench, &region, folder)
}

#[test]
fn slices_of_different_folders_find_each_other_by_the_drivers_file() {
    let bench = Bench::simulated().with("SIMGPU_NVML_PIDS", "none");
    let here = begin(apart(&bench, "here").start());
    let mut there = begin(apart(&bench, "there").start());
    until(&bench, |measured, factor| {
        measured == Measured::by(Source::Replayed)
            && (WHOLE_FACTOR / 10..WHOLE_FACTOR * 9 / 10).contains(&factor)
    });
    let shares = [here.pid(), there.pid()].map(|pid| share(&bench, pid));
    assert!(shares.iter().all(|share| (33..=45).contains(share)), "{shares:?} %");
    there.kill();
    until(&bench, is(untold(Why::NotSupported)));
}

/// Starts a busy process in each of two slices that see each other. The slice that calls NVML gets answers, and the other one
/// would get none. Returns the regions, too. `places` are the regions' folders.
fn one_asks(bench: &Bench, places: [&str; 2]) -> ([Living; 2], [PathBuf; 2]) {
    let start = |folder: &str, number: usize, faults: &str| {
        let slice = number.to_string();
        let region = region_in(bench, folder, &slice);
        (begin(host_of(bench, &region, &slice).set("SIMGPU_FAULTS", faults).start()), region)
    };
    let blind = format!("{NO_SAMPLES};{NO_LIST}");
    let (asker, of_asker) = start(places[0], 0, "");
    // The slice whose region has the smaller file number calls NVML. The system chooses the numbers, so the test tries several.
    for number in 1..30 {
        let (listener, of_listener) = start(places[1], number, &blind);
        until_all_have(std::slice::from_ref(&of_listener), Source::Replayed);
        if monitor(&of_asker).file_number() < monitor(&of_listener).file_number() {
            return ([asker, listener], [of_asker, of_listener]);
        }
    }
    panic!("no region has a larger number");
}

#[test]
fn slices_that_see_each_other_notice_a_program_that_publishes_nothing() {
    for places in [["here", "here"], ["here", "there"]] {
        let bench = Bench::simulated();
        let ([mut asker, _listener], regions) = one_asks(&bench, places);
        let mut neighbour = neighbour(&bench);
        until_all_have(&regions, Source::ReplayedWhole);
        neighbour.kill();
        until_all_have(&regions, Source::Replayed);
        asker.kill();
        // The other slice is alone, and calls NVML itself.
        until_all_have(&regions[1..], Source::Events);
    }
}

#[test]
fn processes_of_slices_that_see_each_other_are_no_such_programs() {
    for folders in [["here", "here"], ["here", "there"]] {
        let bench = Bench::simulated();
        let slices = ["first", "second"];
        let regions = [0, 1].map(|place| region_in(&bench, folders[place], slices[place]));
        let member = |place: usize| begin(host_of(&bench, &regions[place], slices[place]).start());
        let _members = [0, 0, 1, 1].map(member);
        until_all_have(&regions, Source::Replayed);
        let end = Instant::now() + Duration::from_secs(8);
        while Instant::now() < end {
            sleep(Duration::from_millis(20));
            assert!(regions.iter().all(|region| source_of(region) == Source::Replayed));
        }
    }
}

#[test]
fn the_factor_of_a_process_that_dies_with_its_co_tenant_ends() {
    let bench = Bench::simulated().with("SIMGPU_NVML_PIDS", "none");
    let mut elected = begin(apart(&bench, "here").start());
    let mut cotenant = begin(apart(&bench, "there").start());
    until(&bench, |measured, factor| {
        measured == Measured::by(Source::Replayed)
            && (WHOLE_FACTOR / 10..WHOLE_FACTOR * 9 / 10).contains(&factor)
    });
    let _successor = begin(apart(&bench, "here").start());
    cotenant.kill();
    elected.kill();
    until(&bench, is(untold(Why::NotSupported)));
}

#[test]
fn the_factor_of_a_process_that_stops_ends_soon_after_its_co_tenant() {
    let take_over = || {
        let bench = Bench::simulated();
        let elected = begin(apart(&bench, "here").start());
        let mut cotenant = begin(apart(&bench, "there").start());
        until(&bench, |_, factor| (WHOLE_FACTOR / 10..WHOLE_FACTOR * 9 / 10).contains(&factor));
        let _successor = begin(apart(&bench, "here").start());
        elected.suspend();
        cotenant.kill();
        let began = Instant::now();
        until(&bench, |_, factor| factor == WHOLE_FACTOR);
        began.elapsed()
    };
    // An idle machine takes 1.6 s: the silence of the elected process, and some steps of its successor.
    timed::holds(Duration::from_millis(900), take_over, |took| *took < Duration::from_millis(2_500));
}

#[test]
fn slices_whose_driver_is_a_file_of_their_image_do_not_find_each_other() {
    let (bench, image) = (Bench::simulated(), driver_copy());
    let _here = begin(apart(&bench, "here").start());
    let elsewhere = apart(&bench, "there").set("LD_LIBRARY_PATH", &image.path().display().to_string());
    let _there = begin(elsewhere.start());
    until(&bench, is(WHOLE));
}

#[test]
fn slices_whose_image_brings_a_cuda_library_find_each_other_by_that_of_nvml() {
    let (bench, image) = (Bench::simulated(), driver_copy());
    for name in ["libnvidia-ml.so.1", "libnvidia-ml.so"] {
        fs::remove_file(image.path().join(name)).unwrap();
    }
    let own_cuda = format!("{}:{}", image.path().display(), bench.driver().display());
    let slices = [("first", bench.driver().display().to_string()), ("second", own_cuda)];
    let regions = [0, 1].map(|place: usize| region_in(&bench, slices[place].0, slices[place].0));
    let _members = [0, 1].map(|place: usize| {
        let (name, libraries) = &slices[place];
        begin(host_of(&bench, &regions[place], name).set("LD_LIBRARY_PATH", libraries).start())
    });
    until_all_have(&regions, Source::Replayed);
}

/// Makes a folder of libraries that has the bench's CUDA library and no NVML, as in a container without NVIDIA's `utility`.
fn without_nvml(bench: &Bench) -> String {
    let folder = bench.region().with_file_name("without-nvml");
    fs::create_dir_all(&folder).unwrap();
    symlink(bench.absolute("libcuda.so.1"), folder.join("libcuda.so.1")).unwrap();
    folder.display().to_string()
}

#[test]
fn slices_of_which_one_lacks_nvml_find_each_other_by_the_cuda_library() {
    let bench = Bench::simulated().with("SIMGPU_NVML_PIDS", "none");
    let whole = bench.driver().display().to_string();
    let slices = [("first", &whole), ("second", &without_nvml(&bench)), ("third", &whole)];
    let regions = slices.map(|(name, _)| region_in(&bench, name, name));
    let start = |place: usize| {
        let (name, libraries) = slices[place];
        let host = host_of(&bench, &regions[place], name).set("GPU_CORE_PERCENT", "30");
        begin(host.set("LD_LIBRARY_PATH", libraries).start())
    };
    let members = [0, 1, 2].map(start);
    until_all_have(&regions, Source::Replayed);
    let factors = || {
        regions.each_ref().map(|region| {
            let monitor = monitor(region);
            monitor.correction(monitor.devices()[0].device)
        })
    };
    // A slice that does not see both of the others gets less than its share. One that counts them twice gets more.
    hosts::until(factors, |factors| factors.iter().all(|factor| *factor < WHOLE_FACTOR * 2 / 3));
    let shares = shares(&bench, members.each_ref().map(|member| member.pid()));
    assert!(shares.iter().all(|share| (25..=34).contains(share)), "{shares:?} %");
}

#[test]
fn a_slice_that_lacks_nvml_hears_of_programs_that_publish_nothing() {
    for lacks_first in [true, false] {
        let bench = Bench::simulated();
        let libraries = [bench.driver().display().to_string(), without_nvml(&bench)];
        let start = |number: usize| {
            let has_nvml = (number == 0) != lacks_first;
            let slice = number.to_string();
            let region = region_in(&bench, &slice, &slice);
            let host = host_of(&bench, &region, &slice);
            (begin(host.set("LD_LIBRARY_PATH", &libraries[usize::from(!has_nvml)]).start()), region)
        };
        let (_first, of_first) = start(0);
        // The slice whose region has the smaller file number calls NVML, if it has NVML. The system chooses the numbers, so the
        // test tries several.
        let mut others = (1..30).map(start);
        let is_second = |region: &PathBuf| monitor(&of_first).file_number() < monitor(region).file_number();
        let (_second, of_second) = others.find(|(_, region)| is_second(region)).expect("a larger number");
        let regions = [of_first, of_second];
        until_all_have(&regions, Source::Replayed);
        let mut neighbour = neighbour(&bench);
        until_all_have(&regions, Source::ReplayedWhole);
        neighbour.kill();
        until_all_have(&regions, Source::Replayed);
    }
}

#[test]
fn nvml_alone_holds_the_share() {
    let bench = Bench::simulated().with("GPU_CORE_METER", "nvml");
    // The kernel is longer than the first cost of a launch: without learning, the slice would use four times its share.
    let member = member_that(&bench, &["300", "8000000"]);
    until(&bench, |measured, _| measured == Measured::by(Source::Nvml));
    // The slice works off the launches that were too many at first.
    sleep(Duration::from_secs(6));
    let share = share(&bench, member.pid());
    assert!((34..=46).contains(&share), "{share} %");
}

#[test]
fn nvml_alone_holds_the_share_of_two_processes_together() {
    let bench = Bench::simulated().with("GPU_CORE_METER", "nvml");
    let members = [(); 2].map(|()| member_that(&bench, &["300", "4000000"]));
    until(&bench, |measured, _| measured == Measured::by(Source::Nvml));
    sleep(Duration::from_secs(6));
    let shares = shares(&bench, members.each_ref().map(|member| member.pid()));
    // Each sample of NVML names one process with the use of both. If each settled its own samples at once, the slice would lose
    // a quarter of its share.
    let sum: u64 = shares.iter().sum();
    assert!((34..=46).contains(&sum), "{shares:?}");
}

#[test]
fn nvml_alone_says_where_it_does_not_know_the_process() {
    let bench = Bench::simulated().with("GPU_CORE_METER", "nvml").with("SIMGPU_NVML_PIDS", "offset");
    let _member = member(&bench);
    let unknown = Measured { source: Source::Nvml, why: Some(Why::Numbers) };
    until(&bench, |measured, _| measured == unknown);
}

#[test]
fn one_process_of_a_slice_asks_nvml_and_the_next_one_after_its_death() {
    let bench = Bench::simulated();
    let mut first = member(&bench);
    until(&bench, is(EVENTS));
    // NVML gives this process no figures.
    let blind = format!("{NO_SAMPLES};{NO_LIST}");
    let _second = begin(host(&bench, &BUSY).set("SIMGPU_FAULTS", &blind).start());
    is_alone_for_long(&bench);
    first.kill();
    until(&bench, is(untold(Why::NotSupported)));
}

/// Starts a busy process of a slice under policy equal, whose region lies in a folder. Its warnings go to a file.
fn dividing(bench: &Bench, folder: &str, group: &str) -> (Living, PathBuf) {
    let log = bench.region().with_file_name(format!("{folder}-{group}.log"));
    let region = region_in(bench, folder, group);
    let host = bench.host("load", &BUSY).loaded().set("GPU_CORE_POLICY", "equal").set("SIMGPU_GROUP", group);
    let host = host.set("GPUSLICE_REGION", &region.display().to_string());
    let host = host.set("GPUSLICE_LOG", &format!("warn:{}", log.display()));
    (begin(host.start()), log)
}

/// Returns how often a log says that the policy does not reach a program.
fn warnings(log: &Path) -> usize {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.matches("a program uses this GPU that is in no slice of").count()
}

/// Waits until a log says that the policy does not reach a program.
#[track_caller]
fn until_warned(log: &Path) {
    hosts::until(|| (log, warnings(log)), |(_, count)| *count > 0);
}

#[test]
fn a_policy_that_does_not_reach_a_program_on_its_gpu_says_so_once() {
    // The warning must come for each way in which NVML numbers processes and for each number of processes in a sample.
    for (pids, samples) in [("host", "each"), ("mixed", "one"), ("host", "one")] {
        let bench = Bench::simulated().with("SIMGPU_NVML_PIDS", pids).with("SIMGPU_NVML_SAMPLES", samples);
        let bench = bench.with("SIMGPU_CUDA_VERSION", "12040");
        let (_first, log) = dividing(&bench, "here", "first");
        let (_second, other) = dividing(&bench, "there", "second");
        until_warned(&log);
        until_warned(&other);
        // Neither slice sees the third one, and the first does not repeat its warning.
        let (_third, third) = dividing(&bench, "yonder", "third");
        until_warned(&third);
        assert_eq!((warnings(&log), warnings(&other)), (1, 1), "{pids} {samples}");
    }
}

#[test]
fn a_policy_that_reaches_its_neighbours_says_nothing() {
    let bench = Bench::simulated();
    let (_first, log) = dividing(&bench, "here", "first");
    let (_second, other) = dividing(&bench, "here", "second");
    // A program outside of slices takes time as well. But the policy has a slice to divide the GPU with, so no slice warns.
    let _neighbour = neighbour(&bench);
    for _ in 0..150 {
        sleep(Duration::from_millis(20));
        assert_eq!((warnings(&log), warnings(&other)), (0, 0));
    }
}
