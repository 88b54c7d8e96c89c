//! Tests that the sums in the file are exact, whichever process dies and whenever it does.

use std::path::PathBuf;

use super::file::{Locked, Shared};
use super::layout::{MemoryKind, life};
use super::ledger::Full;
use super::roster::NewProcess;
use super::settings::Settings;

/// With these settings, a device has the memory of dead processes back at once. So the tests know the sums.
const SETTINGS: Settings =
    Settings { devices: 2, memory: [1000; super::sizes::DEVICES], teardown_ms: 0, ..Settings::DEFAULT };

struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("simgpu-test-{}-{name}", std::process::id())))
    }

    fn open(&self) -> Shared {
        Shared::open(&self.0, &SETTINGS).unwrap()
    }

    /// Opens the file with a device that has the memory of dead processes back after the usual time.
    fn open_with_teardown(&self) -> Shared {
        let settings = Settings { teardown_ms: Settings::DEFAULT.teardown_ms, ..SETTINGS };
        Shared::open(&self.0, &settings).unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Makes a process that has no life lock. It counts as alive until the next search for dead processes.
fn join(state: &mut Locked<'_>, group: &str) -> usize {
    let new_process = NewProcess { pid: 1, pid_namespace: 0, name: b"test", group: group.as_bytes() };
    let slot = state.claim(&new_process).unwrap();
    state.processes[slot].life = life::LIVE;
    slot
}

#[test]
fn a_charge_that_does_not_fit_is_refused_and_changes_nothing() {
    let file = File::new("refused");
    let shared = file.open();
    let mut state = shared.lock();
    let slot = join(&mut state, "");
    assert_eq!(state.charge(slot, 0, MemoryKind::Linear, 600), Ok(()));
    assert_eq!(state.charge(slot, 0, MemoryKind::Vmm, 401), Err(Full));
    assert_eq!((state.levels[0].held, state.levels[0].peak, state.free(0)), (600, 600, 400));
    assert_eq!(state.charge(slot, 0, MemoryKind::Vmm, 400), Ok(()));
    assert_eq!(state.charge(slot, 1, MemoryKind::Vmm, 1000), Ok(()));
    assert_eq!(state.charge(slot, 2, MemoryKind::Vmm, 1), Err(Full), "there is no such device");
}

#[test]
fn the_turn_of_one_that_died_with_it_is_the_next_ones() {
    let file = File::new("turn");
    let shared = file.open();
    std::thread::scope(|scope| scope.spawn(|| core::mem::forget(shared.lock_manager())).join()).unwrap();
    for _ in 0..2 {
        drop(shared.lock_manager());
    }
}

#[test]
fn a_refund_never_gives_back_more_than_is_held() {
    let file = File::new("refund");
    let shared = file.open();
    let mut state = shared.lock();
    let (one, other) = (join(&mut state, ""), join(&mut state, ""));
    assert_eq!(state.charge(one, 0, MemoryKind::Pool, 100), Ok(()));
    assert_eq!(state.charge(other, 0, MemoryKind::Pool, 50), Ok(()));
    state.refund(one, 0, MemoryKind::Pool, 500);
    assert_eq!(state.levels[0].held, 50);
}

#[test]
fn the_peak_of_a_group_is_of_the_sum_at_one_instant() {
    let file = File::new("peak");
    let shared = file.open();
    let mut state = shared.lock();
    let (one, other, foreign) = (join(&mut state, "a"), join(&mut state, "a"), join(&mut state, "b"));
    for (slot, bytes) in [(one, 300), (foreign, 100), (other, 200)] {
        assert_eq!(state.charge(slot, 0, MemoryKind::Linear, bytes), Ok(()));
    }
    state.refund(one, 0, MemoryKind::Linear, 300);
    assert_eq!(state.charge(other, 0, MemoryKind::Linear, 250), Ok(()));
    let group = state.processes[one].group as usize;
    assert_eq!((state.groups[group].levels[0].held, state.groups[group].levels[0].peak), (450, 500));
}

#[test]
fn a_death_that_holds_the_lock_is_repaired_by_the_next_process() {
    let file = File::new("takeover");
    let shared = file.open();
    let slot = join(&mut shared.lock(), "a");
    assert_eq!(shared.lock().charge(slot, 0, MemoryKind::Linear, 100), Ok(()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = shared.lock();
            // This is a half-finished charge: the figures of the process are changed, the totals are wrong.
            state.processes[slot].usage[0].held[0] += 50;
            state.levels[0].held += 7;
            core::mem::forget(state);
        });
    });
    let state = shared.lock();
    assert_eq!(state.takeovers, 1);
    let group = state.processes[slot].group as usize;
    assert_eq!((state.levels[0].held, state.groups[group].levels[0].held), (150, 150));
}

#[test]
fn the_dead_hold_nothing_and_are_remembered_until_their_place_is_needed() {
    let file = File::new("dead");
    let shared = file.open();
    let mut state = shared.lock();
    let first = join(&mut state, "");
    assert_eq!(state.charge(first, 0, MemoryKind::Array, 100), Ok(()));
    state.reap_dead(None);
    assert_eq!((state.processes[first].life, state.levels[0].held), (life::DEAD, 0));
    assert_eq!(state.processes[first].usage[0].peak, 100);
    for _ in 1..super::sizes::PROCESSES {
        let slot = join(&mut state, "");
        assert_ne!(slot, first);
    }
    assert_eq!(join(&mut state, ""), first, "the place of the first that died is taken again");
    assert_eq!(state.processes[first].usage[0].peak, 0);
}

#[test]
fn memory_of_the_dead_is_back_after_300_ms_unless_the_settings_say_otherwise() {
    let file = File::new("leaving");
    let shared = file.open_with_teardown();
    let mut state = shared.lock();
    let first = join(&mut state, "a");
    assert_eq!(state.charge(first, 0, MemoryKind::Linear, 700), Ok(()));
    let began = crate::os::clock::now();
    state.reap_dead(None);
    let due = state.leaving[0].until_ns;
    assert!((began..=crate::os::clock::now()).contains(&(due - 300_000_000)), "{} ns", due - began);
    let group = state.processes[first].group as usize;
    let held =
        |state: &Locked<'_>| (state.levels[0].held, state.groups[group].levels[0].held, state.leaving(0));
    assert_eq!((state.processes[first].life, held(&state)), (life::DEAD, (700, 700, 700)));
    assert_eq!((state.leaving(1), state.free(0)), (0, 300));
    state.leaving[0].until_ns = crate::os::clock::now();
    state.reap_dead(None);
    assert_eq!(held(&state), (0, 0, 0));
}

#[test]
fn memory_of_the_dead_leaves_once_if_the_process_that_reaps_them_dies() {
    let file = File::new("leaving-once");
    let shared = file.open_with_teardown();
    let mut state = shared.lock();
    let first = join(&mut state, "");
    assert_eq!(state.charge(first, 0, MemoryKind::Linear, 700), Ok(()));
    // The process that reaps dies after this.
    state.begin_leaving(first);
    state.reap_dead(None);
    assert_eq!((state.leaving(0), state.levels[0].held), (700, 700));
}

#[test]
fn shared_memory_of_the_dead_is_back_later_unless_another_process_uses_it() {
    let file = File::new("leaving-shared");
    let shared = file.open_with_teardown();
    let mut state = shared.lock();
    let (maker, user) = (join(&mut state, ""), join(&mut state, ""));
    assert_eq!(state.charge(maker, 0, MemoryKind::Vmm, 300), Ok(()));
    let (alone, used) =
        (state.export(maker, 0, MemoryKind::Vmm, 100), state.export(maker, 0, MemoryKind::Vmm, 200));
    assert!(state.import(user, used.unwrap()));
    state.reap_dead(Some(user));
    let held = [maker, user].map(|slot| state.processes[slot].usage[0].total());
    assert_eq!((held, state.leaving(0), state.levels[0].held), ([0, 200], 100, 300));
    assert!(!state.import(user, alone.unwrap()), "it is gone");
}

#[test]
fn shared_memory_is_charged_to_one_of_its_users_until_the_last_is_gone() {
    let file = File::new("shared");
    let shared = file.open();
    let mut state = shared.lock();
    let (maker, user) = (join(&mut state, ""), join(&mut state, ""));
    assert_eq!(state.charge(maker, 0, MemoryKind::Vmm, 100), Ok(()));
    let number = state.export(maker, 0, MemoryKind::Vmm, 100).unwrap();
    assert!(state.import(user, number));
    state.leave(maker, number);
    let held = |state: &Locked<'_>| [maker, user].map(|slot| state.processes[slot].usage[0].total());
    assert_eq!((held(&state), state.levels[0].held, state.levels[0].peak), ([0, 100], 100, 100));
    state.leave(user, number);
    assert_eq!((held(&state), state.levels[0].held), ([0, 0], 0));
    assert!(!state.import(maker, number), "it is gone");
}

#[test]
fn a_user_that_leaves_changes_nothing_for_the_payer() {
    let file = File::new("users");
    let shared = file.open();
    let mut state = shared.lock();
    let (first, maker, last) = (join(&mut state, ""), join(&mut state, ""), join(&mut state, ""));
    assert_eq!(state.charge(maker, 0, MemoryKind::Linear, 100), Ok(()));
    let number = state.export(maker, 0, MemoryKind::Linear, 100).unwrap();
    assert!(state.import(first, number) && state.import(last, number));
    state.leave(last, number);
    state.leave(first, number);
    state.leave(first, number);
    let held = |state: &Locked<'_>| [first, maker, last].map(|slot| state.processes[slot].usage[0].total());
    assert_eq!((held(&state), state.levels[0].held), ([0, 100, 0], 100));
    assert!(state.import(last, number));
    state.leave_all(maker);
    assert_eq!((held(&state), state.levels[0].held), ([0, 0, 100], 100));
    assert_eq!(state.processes[last].usage[0].held[MemoryKind::Linear as usize], 100);
}

#[test]
fn a_file_of_another_version_is_made_anew() {
    let file = File::new("version");
    std::fs::write(&file.0, b"something else").unwrap();
    assert!(Shared::open_existing(&file.0).is_err());
    assert_eq!(file.open().lock().settings, SETTINGS);
    file.open().lock().version += 1;
    assert_eq!(file.open().lock().version, super::layout::LAYOUT_VERSION);
}
