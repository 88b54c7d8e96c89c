//! Tests that the simulated GPU behaves like a real one, with small C programs on machines of their own.

use std::os::unix::process::ExitStatusExt;

use crate::support::Machine;

macro_rules! programs {
    ($($test:ident: $program:literal, $settings:expr;)*) => { $(
        #[test]
        fn $test() {
            if let Some(machine) = Machine::with_easy_sums($settings) {
                machine.passes($program);
                assert_eq!(machine.held_at_rest(), 0, "nothing is held when the program is gone");
            }
        }
    )* };
}

programs! {
    ordinary_memory_is_charged_to_the_byte_and_runs_out: "memory", &[];
    small_memory_shares_blocks_of_the_device: "blocks", &[("LINEAR_GRANULE", "blocks")];
    a_context_costs_memory_and_takes_all_that_lived_in_it_with_it: "contexts", &[];
    the_reserve_of_a_pool_counts: "pools", &[];
    memory_lives_until_its_last_handle_and_mapping_are_gone: "vmm", &[];
    arrays_count_bytes_levels_and_layers: "arrays", &[];
    streams_take_time_and_keep_order: "streams", &[];
    variables_of_code_are_device_memory: "code", &[];
    green_contexts_share_the_primary_one: "greens", &[];
    clusters_fit_into_groups_of_multiprocessors: "clusters", &[];
    captured_work_does_not_run_and_graph_memory_stays_until_trimmed: "graphs", &[];
    a_forked_child_has_no_driver: "fork", &[];
    threads_can_do_everything_at_once: "threads", &[];
    an_event_is_seen_by_every_process_that_opened_it: "events", &[];
    // The program has two processes. After one of them has ended, the other checks how much memory is held.
    shared_memory_is_paid_for_once_and_outlives_its_maker: "share", &[("TEARDOWN_MS", "0")];
}

#[test]
fn a_look_up_returns_the_exported_function_and_touches_nothing() {
    let Some(machine) = Machine::new(&[]) else { return };
    machine.passes("lookup");
    assert!(!machine.is_there());
}

#[test]
fn code_comes_to_the_device_when_it_is_wanted_or_at_once() {
    for loading in ["LAZY", "EAGER"] {
        let settings = [("MODULE_BYTES", "3000000"), ("MODULE_GRANULE", "2MiB")];
        let Some(machine) = Machine::with_easy_sums(&settings) else { return };
        let output = machine.command("lazy").arg(loading).output().unwrap();
        assert!(output.status.success(), "{loading}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn code_that_comes_late_holds_its_context_until_all_is_done_unless_it_is_free() {
    for loading in ["", "free"] {
        let Some(machine) = Machine::with_easy_sums(&[]) else { return };
        let output = machine.command("loads").arg(loading).output().unwrap();
        assert!(output.status.success(), "{loading}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn each_device_has_its_own_memory() {
    let Some(machine) = Machine::with_easy_sums(&[("DEVICES", "2"), ("MEMORY", "1GiB,2GiB")]) else { return };
    let mut command = machine.command("devices");
    let output = command.env("CUDA_VISIBLE_DEVICES", "1,0").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_program_on_the_cuda_runtime_is_told_once_why_it_stops() {
    let Some(machine) = Machine::new(&[]) else { return };
    let said = |argument: &str| {
        let output = machine.command("tables").arg(argument).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    };
    assert_eq!(said("other"), "");
    let said = said("runtime");
    assert!(said.lines().count() == 1 && said.contains("docs/internals/simgpu.md"), "{said}");
}

#[test]
fn a_machine_without_devices_says_so() {
    let Some(machine) = Machine::new(&[("DEVICES", "0")]) else { return };
    let output = machine.command("churn").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_device_pointer_is_no_pointer_of_the_host() {
    let Some(machine) = Machine::new(&[]) else { return };
    let output = machine.command("device_pointer").output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV));
}

#[test]
fn a_fault_of_the_environment_happens_on_the_call_it_names() {
    let Some(machine) = Machine::with_easy_sums(&[]) else { return };
    let output = machine.command("churn").arg("10").env("SIMGPU_FAULTS", "cuInit=100").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let output = machine.command("memory").env("SIMGPU_FAULTS", "cuMemFree_v2=700@2").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("returned 700"));
}

#[test]
fn a_fault_of_the_state_file_strikes_processes_that_run() {
    let Some(machine) = Machine::with_easy_sums(&[]) else { return };
    assert!(machine.command("churn").arg("10").output().unwrap().status.success());
    machine.truth(&["--faults", "cuMemAlloc_v2=kill@3"]);
    let output = machine.command("churn").arg("100").output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGKILL));
    machine.truth(&["--faults", ""]);
    assert!(machine.command("churn").arg("100").output().unwrap().status.success());
    assert_eq!(machine.held_at_rest(), 0);
}
