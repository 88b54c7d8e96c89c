//! Tests that no change is lost when several processes change limits at once.

use std::path::Path;
use std::time::{Duration, Instant};

use gpuslice_region::{Limits, Monitor, Sharing, Trust};

use crate::puppet::{Puppet, directory, join};

/// Number of changes that each process makes.
const CHANGES: u64 = 30_000;

fn open(path: &Path) -> Monitor {
    Monitor::open(path, Trust::OwnerOnly).unwrap().unwrap()
}

/// Returns the limits with one field changed; each process changes its own field.
fn with(limits: Limits, field: &str, number: u64) -> Limits {
    let small = u32::try_from(number % 1000 + 1).unwrap();
    match field {
        "memory" => Limits { memory: Some(number), ..limits },
        "cores" => Limits { cores_permille: small, ..limits },
        "weight" => Limits { sharing: Sharing { weight: small, ..limits.sharing }, ..limits },
        other => panic!("no field: {other}"),
    }
}

/// Changes one field again and again, as soon as another field is set. Returns how often the field did not have the value
/// of the last change.
pub(crate) fn change(path: &Path, field: &str) -> String {
    let monitor = open(path);
    while !monitor.devices()[0].limits.oversubscribe {
        std::thread::yield_now();
    }
    let mut lost = 0;
    for number in 1..=CHANGES {
        monitor
            .change_limits(|view| {
                let is_kept = number == 1 || with(view.limits, field, number - 1) == view.limits;
                lost += u64::from(!is_kept);
                Some(with(view.limits, field, number))
            })
            .unwrap();
    }
    format!("lost {lost}")
}

/// Begins to change limits, and never finishes.
pub(crate) fn begin(path: &Path, begun: fn(&str)) {
    let forever = |_: &_| {
        begun("begun");
        loop {
            std::thread::park();
        }
    };
    open(path).change_limits(forever).unwrap();
}

#[test]
fn of_limits_that_several_processes_change_none_is_lost() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, 0);
    let fields = ["memory", "cores", "weight"];
    let mut puppets = fields.map(|_| Puppet::start());
    for (puppet, field) in puppets.iter_mut().zip(fields) {
        assert_eq!(puppet.ask("ping"), "pong");
        puppet.tell(&format!("limits {} {field}", path.display()));
    }
    member.set_limits(device, Limits { oversubscribe: true, ..member.limits(device) });
    for (puppet, field) in puppets.iter_mut().zip(fields) {
        assert_eq!(puppet.hear(), "lost 0", "{field}");
    }
    let limits = member.limits(device);
    assert_eq!(fields.iter().fold(limits, |limits, field| with(limits, field, CHANGES)), limits);
}

#[test]
fn an_unfinished_change_of_a_living_process_blocks_others_and_of_a_dead_one_does_not() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, 100);
    let mut puppet = Puppet::start();
    assert_eq!(puppet.ask(&format!("begin {}", path.display())), "begun");
    let double = || member.change_limits(|view| Some(with(view.limits, "memory", 200)));
    let told = double().unwrap_err().to_string();
    assert!(told.contains("has been changing its limits for more than 2"), "{told}");
    assert_eq!(member.limits(device).memory, Some(100));
    // An agent does not wait for the process, which may belong to a tenant.
    let begun = Instant::now();
    assert!(member.impose_limits(|_| None).unwrap().is_empty());
    assert_eq!(member.impose_limits(|view| Some(with(view.limits, "memory", 50))).unwrap().len(), 1);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(member.limits(device).memory, Some(50));
    puppet.kill();
    let changes = double().unwrap();
    let [change] = changes.as_slice() else { panic!("{changes:?}") };
    assert_eq!((change.before.limits.memory, change.after.memory), (Some(50), Some(200)));
    assert_eq!(member.limits(device), change.after);
    assert!(member.change_limits(|_| None).unwrap().is_empty());
}
