//! Checks the figures of slices and GPUs against regions and the simulated GPU.

use crate::node::{Node, text};
use crate::openmetrics::Metrics;
use crate::support::bench::Bench;
use crate::support::container::{first_process, may_have_containers};
use crate::support::{compiler, neighbours};
use crate::{MIB, TWO, dies, witness};

#[test]
fn slices_are_reported_before_their_first_process_and_with_their_use_afterwards() {
    if !may_have_containers() {
        return;
    }
    let mut node = Node::start(TWO);
    assert_eq!(node.get("/healthz").body, "ok\n");
    assert_eq!(node.get("/readyz").status, 200);
    let metrics = node.scrape();
    let of = |slot: &'static str| [("slot", slot), ("container", "")];
    for (slot, limit, share) in [("a", 256 * MIB, 0.3), ("b", 256 * MIB, 0.7)] {
        assert_eq!(metrics.get("gpuslice_slice_memory_limit_bytes", &of(slot)), Some(limit as f64));
        assert_eq!(metrics.get("gpuslice_slice_core_limit_ratio", &of(slot)), Some(share));
        for name in ["memory_used_bytes", "processes", "memory_denied_total", "gpu_time_seconds_total"] {
            assert_eq!(metrics.get(&format!("gpuslice_slice_{name}"), &of(slot)), Some(0.0), "{name}");
        }
    }
    assert_eq!(
        metrics.get("gpuslice_slice_info", &[("slot", "a"), ("policy", "fixed"), ("priority", "high")]),
        Some(1.0)
    );
    assert_eq!(metrics.get("gpuslice_agent_slots", &[("state", "free")]), Some(2.0));
    assert_eq!(metrics.get("gpuslice_gpu_memory_bytes", &[("kind", "total")]), Some((1_u64 << 30) as f64));

    let mut a = witness(&node, "a", 64 * MIB);
    let b = witness(&node, "b", 32 * MIB);
    assert!(a.ask(&format!("keep {}", 512 * MIB)).starts_with("2 "), "it passes the quota");
    assert!(a.ask(&format!("keep {}", 16 * MIB)).starts_with("0 "));
    let metrics = node.scrape();
    let used = |slot| metrics.get("gpuslice_slice_memory_used_bytes", &of(slot)).unwrap();
    assert_eq!([used("a"), used("b")], [80.0, 32.0].map(|mib| mib * MIB as f64));
    assert_eq!(used("a") + used("b"), node.bench.truth(0).held as f64);
    assert_eq!(metrics.get("gpuslice_slice_memory_denied_total", &of("a")), Some(1.0));
    assert_eq!(metrics.get("gpuslice_slice_processes", &of("a")), Some(1.0));
    node.until("NVML's figure is the GPU's", |node| {
        let used = node.scrape().get("gpuslice_gpu_memory_bytes", &[("kind", "used")])?;
        (used == node.bench.truth(0).held as f64).then_some(())
    });
    let told = node.until("its process is seen", |node| {
        node.slice(|slice| slice["name"] == "a" && !slice["processes"][0]["host_pid"].is_null())
    });
    assert_eq!(node.scrape().get("gpuslice_agent_slots", &[("state", "allocated")]), Some(2.0));
    assert_eq!(told["processes"][0]["host_pid"].as_u64(), Some(first_process(&a)), "{told}");
    assert_eq!(told["processes"][0]["pid"].as_u64(), Some(1), "{told}");
    assert!(text(&told["processes"][0]["command"]).contains("witness"), "{told}");
    let last = [first_process(&a), first_process(&b)];
    drop((a, b));
    last.iter().for_each(|pid| dies(&mut node, *pid));
    // Until the agent has reaped the dead processes, the figure contains their bytes.
    node.until("the slice stays when its processes have ended, and holds nothing", |node| {
        let used = node.scrape().get("gpuslice_slice_memory_used_bytes", &of("a"))?;
        (used == 0.0).then_some(())
    });
}

#[test]
fn gpu_time_is_the_simulated_gpus() {
    if !may_have_containers() {
        return;
    }
    let mut node = Node::start(TWO);
    let mut load = node.in_slice("b", &compiler::plain("load"), &neighbours::BUSY);
    assert_eq!(load.hear().as_deref(), Some("ready"));
    load.order("");
    let seconds =
        |node: &Node| node.scrape().get("gpuslice_slice_gpu_time_seconds_total", &[("slot", "b")]).unwrap();
    let busy = |node: &Node| node.bench.figure("/devices/0/busy_ns") as f64 / 1e9;
    node.until("a second of GPU time", |node| (seconds(node) > 1.0).then_some(()));
    let (before, told, after) = (busy(&node), seconds(&node), busy(&node));
    // Work in flight is not charged yet.
    assert!(told > before * 0.9 - 0.1 && told < after * 1.1 + 0.1, "{before} {told} {after}");
    let source = |source: &'static str| {
        node.scrape().get("gpuslice_slice_time_source", &[("slot", "b"), ("source", source)])
    };
    let by_events = ["events", "events-and-slices", "events-and-others"].map(source);
    assert_eq!(by_events.into_iter().flatten().sum::<f64>(), 1.0, "it is measured by events");
    assert_eq!(source("none"), None);
    node.until("it is throttled", |node| {
        let metrics = node.scrape();
        let used = metrics.get("gpuslice_slice_core_used_ratio", &[("slot", "b")])?;
        let throttled = metrics.get("gpuslice_slice_throttled_seconds_total", &[("slot", "b")])?;
        (used > 0.05 && used <= 0.9 && throttled > 0.0).then_some(())
    });
}

#[test]
fn a_field_that_nvml_does_not_tell_costs_one_series() {
    let mut node = Node::start(TWO);
    let utilization = |node: &Node| node.scrape().get("gpuslice_gpu_utilization_ratio", &[]);
    node.until("it is reported", |node| utilization(node));
    node.bench.goes_wrong("nvmlDeviceGetUtilizationRates=3");
    node.until("it stops being reported", |node| utilization(node).is_none().then_some(()));
    let metrics = node.scrape();
    assert_eq!(metrics.get("gpuslice_gpu_healthy", &[]), Some(1.0));
    assert!(metrics.get("gpuslice_gpu_memory_bytes", &[("kind", "used")]).is_some());
    assert!(metrics.get("gpuslice_slice_memory_limit_bytes", &[("slot", "a")]).is_some());
    node.bench.goes_wrong("nvmlDeviceGetHandleByIndex_v2=15;nvmlDeviceGetHandleByUUID=15");
    node.until("the GPU is lost", |node| {
        (node.scrape().get("gpuslice_gpu_healthy", &[]) == Some(0.0)).then_some(())
    });
    node.bench.goes_wrong("");
    node.until("all is well", |node| utilization(node));
}

#[test]
fn memory_beyond_the_ledger_has_a_series_while_nvml_tells_the_processes() {
    const UNEXPLAINED: u64 = 3 * MIB;
    let bench =
        Bench::simulated_without_contexts().with("SIMGPU_UNEXPLAINED_BYTES", &UNEXPLAINED.to_string());
    let mut node = Node::start_on(bench, TWO);
    let told = |node: &Node, slot: &'static str| {
        node.scrape().get("gpuslice_slice_memory_unaccounted_bytes", &[("slot", slot)])
    };
    assert_eq!(["a", "b"].map(|slot| told(&node, slot)), [None, None], "no process lives there");
    let region = node.region("a").display().to_string();
    let bytes = (64 * MIB).to_string();
    let host = node.bench.host("witness", &[&bytes]).loaded();
    let member = host.set("GPUSLICE_REGION", &region).set("GPU_MEM_LIMIT", "256MiB").start();
    assert_eq!(member.hear().as_deref(), Some("ready"));
    let found = node.until("it is compared", |node| told(node, "a"));
    assert_eq!((found, told(&node, "b")), (UNEXPLAINED as f64, None));
    let slice = node.slice(|slice| slice["name"] == "a").unwrap();
    assert_eq!(slice["devices"][0]["memory_unaccounted"].as_u64(), Some(UNEXPLAINED), "{slice}");
    node.bench.goes_wrong("nvmlDeviceGetComputeRunningProcesses_v2=3");
    node.until("it is unknown", |node| told(node, "a").is_none().then_some(()));
    let used = node.scrape().get("gpuslice_slice_memory_used_bytes", &[("slot", "a")]);
    assert_eq!(used, Some((64 * MIB) as f64));
}

#[test]
fn a_lost_gpu_stays_the_gpu_that_it_was_and_the_others_work_on() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
    let lost = folder.path().join("lost");
    let bench = Bench::simulated_without_contexts()
        .with("SIMGPU_DEVICES", "2")
        .with("SIMGPU_NVML_LOST", lost.to_str().expect("it is text"));
    let mut node = Node::start_on(bench, TWO);
    let gpus = node.until("NVML tells both", |node| {
        let gpus = node.json("/api/v1/gpus")["gpus"].as_array().cloned()?;
        (gpus.len() == 2 && gpus.iter().all(|gpu| gpu["healthy"] == true)).then_some(gpus)
    });
    let [first, second] = [0, 1].map(|gpu| text(&gpus[gpu]["uuid"]).to_owned());
    std::fs::write(&lost, "0").expect("it can be written");
    let of = |metrics: &Metrics, name: &str, uuid: &str| metrics.get(name, &[("uuid", uuid)]);
    let metrics = node.until("the first is lost", |node| {
        let metrics = node.scrape();
        (of(&metrics, "gpuslice_gpu_healthy", &first) == Some(0.0)).then_some(metrics)
    });
    assert_eq!(of(&metrics, "gpuslice_gpu_healthy", &second), Some(1.0));
    let memory =
        |uuid: &str, kind: &str| metrics.get("gpuslice_gpu_memory_bytes", &[("uuid", uuid), ("kind", kind)]);
    assert!(memory(&second, "used").is_some() && memory(&first, "used").is_none());
    assert_eq!(memory(&first, "total"), memory(&second, "total"));
    let model = text(&gpus[0]["model"]);
    assert_eq!(metrics.get("gpuslice_gpu_info", &[("uuid", &first), ("model", model)]), Some(1.0));
    std::fs::remove_file(&lost).expect("it can be removed");
    node.until("it is back", |node| {
        (of(&node.scrape(), "gpuslice_gpu_healthy", &first) == Some(1.0)).then_some(())
    });
}

#[test]
fn a_slice_whose_gpu_is_not_there_is_told_and_the_others_are_made() {
    let node = Node::start_on(
        Bench::simulated_without_contexts(),
        &format!("{TWO}[[slices]]\nname = \"c\"\ngpu = 7\n"),
    );
    let ready = node.get("/readyz");
    assert!(ready.status == 503 && ready.body.contains("c: gpu = 7 is no GPU of this node"), "{ready:?}");
    assert!(
        node.at("/var/run/cdi/gpuslice-a.json").exists() && !node.at("/var/run/cdi/gpuslice-c.json").exists()
    );
    assert_eq!(node.scrape().get("gpuslice_slice_processes", &[("slot", "a")]), Some(0.0));
}
