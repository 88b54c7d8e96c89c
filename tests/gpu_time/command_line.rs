//! Shares of GPU time at the command line: `status` shows them, and `set` changes them.

use crate::support::command::{GIB, OwnSlice, Running, ask, json, name};
use crate::support::machine;
use gpuslice_policy::compute::attribution::source::{Measured, Source, Why};
use gpuslice_policy::config::{CorePolicy, Priority};
use gpuslice_policy::time::{GpuTime, GpuTimeChange, WallTime};
use gpuslice_region::{Limits, Reader, Sharing, Trust};
use serde_json::Value;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

const SECOND: u64 = 1_000_000_000;

fn with_share(of: &str, permille: u32) -> OwnSlice {
    let slice = OwnSlice::join(of);
    let (device, member) = (slice.device(0x11), &slice.member);
    member.set_limits(device, Limits { cores_permille: permille, ..member.limits(device) });
    slice
}

#[test]
fn a_share_is_set_while_the_slice_lives_and_limits_not_mentioned_stay() {
    let slice = OwnSlice::join("share");
    ask(&["set", &slice.name, "--cores", "30"]).code(0).says("100% -> 30% of its time");
    assert_eq!((slice.share(0x11), slice.share(0x22)), (300, 300));
    ask(&["set", &slice.name, "--cores", "0=12.5"]).code(0).says("30% -> 12.5% of its time");
    assert_eq!((slice.share(0x11), slice.share(0x22)), (125, 300));
    ask(&["set", &slice.name, "--burst", "50ms"]).code(0).says("burst 20ms -> 50ms");
    let limits = slice.member.limits(slice.device(0x11));
    assert_eq!(
        limits,
        Limits {
            memory: Some(8 * GIB),
            cores_permille: 125,
            burst: GpuTime::from_millis(50),
            ..Limits::NONE
        }
    );
    ask(&["set", &slice.name, "--mem", "1=1GiB", "--cores", "GPU-22=100"]).code(0).says("none -> 1GiB");
    assert_eq!((slice.share(0x11), slice.share(0x22), slice.limit(0x22)), (125, 1000, Some(GIB)));
    let list = ask(&["list"]).code(0).out;
    let row = list.lines().find(|line| line.contains(&slice.name)).expect("it is listed");
    assert!(row.split_whitespace().collect::<Vec<_>>().join(" ").contains("8GiB 0% 12.5%"), "{list}");
}

#[test]
fn status_shows_the_used_part_of_a_devices_time() {
    let slice = with_share("time", 300);
    let (device, member) = (slice.device(0x11), &slice.member);
    member.count_used(device, GpuTime::from_millis(12_400));
    member.count_throttled(device, WallTime::from_millis(3_100));
    member.count_copied(device, GpuTime::from_nanos(7));
    member.count_launches(device, 42);
    member.set_queued(device, GpuTime::from_millis(12));
    member.set_measure_source(device, Measured::by(Source::Replayed).word());
    member.set_correction(device, 480_000);
    let report = json(&["status", &slice.name, "--json"]);
    assert_eq!(report.pointer("/version"), Some(&2.into()));
    let time = report.pointer("/slices/0/devices/0/time").expect("there is a device");
    for (pointer, value) in [
        ("/share_permille", Value::from(300)),
        ("/burst_ns", 20_000_000.into()),
        ("/used_ns", 12_400_000_000_u64.into()),
        ("/used_permille", Value::Null),
        ("/throttled_ns", 3_100_000_000_u64.into()),
        ("/copied_ns", 7.into()),
        ("/queued_ns", 12_000_000.into()),
        ("/launches", 42.into()),
        ("/meter", "events-and-slices".into()),
        ("/meter_why", Value::Null),
        ("/own_millionths", 480_000.into()),
    ] {
        assert_eq!(time.pointer(pointer), Some(&value), "{pointer} of {time}");
    }
    let process = report.pointer("/slices/0/devices/0/processes/0/time").expect("there is a process");
    assert_eq!(process.get("used_ns"), Some(&12_400_000_000_u64.into()), "{process}");
    let has = "    time    limit 30%, policy fixed, weight 100, priority normal, burst 20ms\n            used 12.40 s \
               in all, 0% over 1.00 s, 0% over 1 s, 0% over 10 s";
    let rest = "            throttled 3.10 s in all, 0 ns over 1 s, 0 ns over 10 s,\n            0 ns over 60 s\n            \
                12.00 ms queued, 0 ns debt,\n            measured by events, corrected by the slices' intervals:";
    ask(&["status", &slice.name, "--over", "1"]).code(0).says(has).says(rest).says("THROTTLED  COMMAND");
    member.set_correction(device, 1_000_000);
    member.set_measure_source(device, Measured { source: Source::Events, why: Some(Why::Mig) }.word());
    ask(&["status", &slice.name, "--over", "0"])
        .code(0)
        .says("measured by events (the device is a MIG instance)\n");
    let report = json(&["status", &slice.name, "--over", "0", "--json"]);
    let time = report.pointer("/slices/0/devices/0/time").expect("there is a device");
    assert_eq!(time.get("meter_why"), Some(&"the device is a MIG instance".into()), "{time}");
    ask(&["status", &slice.name, "--over", "0"])
        .code(0)
        .says("\n            used 12.40 s in all, 0% over 1 s");
    ask(&["status", &slice.name, "--over", "61"]).code(2).complains("a number of seconds from 0.1 to 60");
}

#[test]
fn status_shows_the_debt() {
    let slice = with_share("owed", 300);
    let device = slice.device(0x11);
    // This settlement is like the one at the end of a kernel of 30 s.
    slice.member.settle(
        device,
        GpuTimeChange::charge(GpuTime::from_millis(30_000)),
        slice.member.paid_until(device),
    );
    let report = json(&["status", &slice.name, "--over", "0", "--json"]);
    let owed =
        report.pointer("/slices/0/devices/0/time/owed_ns").and_then(Value::as_u64).expect("it is reported");
    println!("{owed}");
    assert!((25_000_000_000..=30_000_000_000).contains(&owed), "{report}");
}

#[test]
fn recent_use_is_the_charge_while_status_looked() {
    let slice = with_share("lately", 300);
    let device = slice.device(0x11);
    let (done, wanted) = mpsc::channel::<()>();
    let report = thread::scope(|scope| {
        let member = &slice.member;
        scope.spawn(move || {
            // The thread charges a quarter of the elapsed time.
            let (start, mut charged) = (Instant::now(), 0);
            while wanted.recv_timeout(Duration::from_millis(1)) == Err(RecvTimeoutError::Timeout) {
                let due = u64::try_from(start.elapsed().as_nanos()).expect("it is short") / 4;
                member.count_used(device, GpuTime::from_nanos(due - charged));
                charged = due;
            }
        });
        let report = json(&["status", &slice.name, "--json", "--over", "1"]);
        drop(done);
        report
    });
    for pointer in ["/slices/0/devices/0/time", "/slices/0/devices/0/processes/0/time"] {
        let time = report.pointer(pointer).expect("there is a device");
        let used = time.get("used_permille").and_then(Value::as_u64).expect("it was looked at");
        // The thread may be late by a tenth of a second if other programs have the processor.
        assert!((150..=350).contains(&used), "{time}");
    }
    // The slice has no share of the other device.
    assert_eq!(report.pointer("/slices/0/devices/1/time/used_permille"), Some(&Value::Null), "{report}");
}

#[test]
fn the_use_of_the_last_seconds_is_reported_without_a_wait() {
    let slice = with_share("history", 300);
    let (device, member) = (slice.device(0x11), &slice.member);
    // The slice used time from 61 s ago on, and nothing in the last 2 s.
    let now = gpuslice_region::now();
    for ago in (3..=61).rev() {
        member.note_second(device, now - WallTime::from_nanos(ago * SECOND));
        member.count_used(device, GpuTime::from_nanos(SECOND / 4));
        member.count_throttled(device, WallTime::from_nanos(SECOND / 2));
    }
    let report = json(&["status", &slice.name, "--json"]);
    let lately = report.pointer("/slices/0/devices/0/time/lately").and_then(Value::as_array);
    let lately = lately.expect("it is reported");
    println!("{report}");
    for (told, seconds, at_most) in [(0, 1, 0), (1, 10, 8), (2, 60, 58)] {
        let figure = |name: &str| lately[told].get(name).and_then(Value::as_u64).expect("it is a number");
        assert_eq!(figure("seconds"), seconds);
        // The figure may have a second more or less, because time has passed since.
        let used = figure("used_ns") / (SECOND / 4);
        assert!(used <= at_most + 1 && used + 8 >= at_most, "{used} quarters of a second in {seconds} s");
        assert_eq!(figure("throttled_ns"), 2 * figure("used_ns"));
        assert!((SECOND * seconds..=SECOND * (seconds + 1)).contains(&figure("span_ns")));
        assert_eq!(figure("used_permille"), figure("used_ns") * 1000 / figure("span_ns"));
    }
    let last = lately[2].get("used_permille").and_then(Value::as_u64).expect("it is a number");
    assert!((200..=250).contains(&last), "{last}");
}

/// Measures for `long`. Returns the part of the simulated GPU's time that a program used, in thousandths, at least.
fn used_over(running: &Running, long: Duration) -> u128 {
    let ([began, _], before) = running.busy();
    thread::sleep(long);
    let ([_, ended], after) = running.busy();
    u128::from(after - before) * 1000 / ended.duration_since(began).as_nanos()
}

#[test]
fn a_share_that_is_set_holds_in_a_running_program_within_300_ms() {
    let _alone = machine();
    let name = name("running");
    let running = Running::computing(&["run", "--cores", "20", "--name", &name]);
    for (share, permille) in [("60", 600), ("12.5", 125), ("100", 1000), ("30", 300)] {
        ask(&["set", &name, "--cores", share]).code(0).says(&format!("-> {share}% of its time"));
        thread::sleep(Duration::from_millis(300));
        let used = used_over(&running, Duration::from_secs(1));
        // The program uses less than the share if other programs have the processor, and it never uses more.
        assert!((permille / 2..=permille + 50).contains(&used), "{used} thousandths at {share} %");
    }
    let report = json(&["status", &name, "--json", "--over", "1"]);
    let time = report.pointer("/slices/0/devices/0/time").expect("there is a device");
    let used = time.get("used_permille").and_then(Value::as_u64).expect("it was looked at");
    assert!((150..=350).contains(&used) && time.get("throttled_ns") != Some(&0.into()), "{time}");
    // The library has noted the seconds in which the GPU was used.
    let noted = time.pointer("/lately/0/used_permille").and_then(Value::as_u64).expect("it is a number");
    assert!((100..=400).contains(&noted), "{time}");
    let all = time.pointer("/lately/2/used_ns").and_then(Value::as_u64).expect("it is a number");
    // The program runs on between the two reads.
    let used = time.get("used_ns").and_then(Value::as_u64).expect("it is a number");
    assert!(used.abs_diff(all) < used / 100, "{time}");
    running.finish().code(0);
}

#[test]
fn policy_weight_and_priority_are_set_at_once_and_limits_not_mentioned_stay() {
    let slice = OwnSlice::join("policy");
    let sharing = || [0x11, 0x22].map(|number| slice.member.limits(slice.device(number)).sharing);
    let all = ["set", &slice.name, "--policy", "equal", "--weight", "300", "--priority", "high"];
    ask(&all).code(0).says("policy fixed -> equal").says("weight 100 -> 300").says("priority normal -> high");
    let high = Sharing { policy: CorePolicy::Equal, priority: Priority::High, weight: 300 };
    assert_eq!(sharing(), [high; 2]);
    ask(&["set", &slice.name, "--cores", "0=40", "--priority", "low"]).code(0).says("priority high -> low");
    assert_eq!(sharing(), [Sharing { priority: Priority::Low, ..high }; 2]);
    assert_eq!((slice.share(0x11), slice.share(0x22), slice.limit(0x11)), (400, 1000, Some(8 * GIB)));
    let report = json(&["status", &slice.name, "--json"]);
    let time = report.pointer("/slices/0/devices/1/time").expect("there are two devices");
    let told = ["policy", "weight", "priority"].map(|name| time.get(name).cloned().expect("it is reported"));
    assert_eq!(told, [Value::from("equal"), 300.into(), "low".into()]);
    ask(&["status", &slice.name]).code(0).says("time    limit 40%, policy equal, weight 300, priority low");
    // If one part of a change is refused, nothing is changed.
    ask(&["set", &slice.name, "--policy", "fixed", "--cores", "9=5"])
        .code(1)
        .complains("names 9, which is no device");
    assert_eq!(sharing(), [Sharing { priority: Priority::Low, ..high }; 2]);
}

#[test]
fn a_slice_that_began_without_a_share_can_be_given_one() {
    let _alone = machine();
    let name = name("given");
    let running = Running::computing(&["run", "--mem", "1GiB", "--name", &name]);
    ask(&["set", &name, "--cores", "30"]).code(0).says("100% -> 30% of its time");
    thread::sleep(Duration::from_millis(300));
    let used = used_over(&running, Duration::from_secs(1));
    assert!((150..=350).contains(&used), "{used} thousandths");
    running.finish().code(0);
}

#[test]
fn the_debt_of_a_slice_is_reported_under_every_policy_that_paces() {
    for sharing in [
        Sharing { policy: CorePolicy::Equal, ..Sharing::FIXED },
        Sharing { policy: CorePolicy::BestEffort, ..Sharing::FIXED },
        Sharing { priority: Priority::Low, ..Sharing::FIXED },
    ] {
        let slice = OwnSlice::join("owes");
        let (device, member) = (slice.device(0x11), &slice.member);
        member.set_limits(device, Limits { sharing, ..Limits::NONE });
        let reader = Reader::open(&slice.region.0, Trust::OwnerOnly).unwrap().expect("it is there");
        let now = reader.device(device.index()).unwrap().expect("it is there").read_at;
        member.settle(device, GpuTimeChange::charge(GpuTime::from_millis(50_000)), now);
        let report = json(&["status", &slice.name, "--json", "--over", "0.2"]);
        let time = report.pointer("/slices/0/devices/0/time").expect("there is a device");
        let figure = |name: &str| time.get(name).and_then(Value::as_u64).expect("it is a number");
        assert!((1..=50 * SECOND).contains(&figure("owed_ns")), "{sharing:?}: {time}");
        assert!((SECOND / 5..SECOND).contains(&figure("used_over_ns")), "{time}");
        ask(&["status", &slice.name]).code(0).says("    time    no limit, policy ").says(" debt, ");
    }
}

#[test]
fn a_slice_that_nothing_is_limited_or_counted_of_is_not_waited_for() {
    let slice = OwnSlice::join("unlimited");
    let report = json(&["status", &slice.name, "--json", "--over", "60"]);
    assert_eq!(report.pointer("/slices/0/devices/0/time/used_permille"), Some(&Value::Null), "{report}");
    assert_eq!(report.pointer("/slices/0/devices/0/time/meter"), Some(&"none".into()), "{report}");
    let text = ask(&["status", &slice.name]).code(0).out;
    assert!(!text.contains("    time  "), "{text}");
}
