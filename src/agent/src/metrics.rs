//! Writes the metrics.
//!
//! A collector writes the snapshot of one moment and keeps no state. So a slice that has ended has no series. A figure that
//! NVML does not tell has none either.
#![allow(
    clippy::float_arithmetic,
    reason = "metrics have seconds and ratios where the rest of the program counts"
)]

use crate::gpus::Gpu;
use crate::snapshot::{Device, Pod, SliceSnapshot, Snapshot};
use gpuslice_kubernetes::metrics::PreStartMetrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// Returns the metrics of the moment `now` as text. `plugin` has the metrics of the device plugin, if the agent serves one.
pub(crate) fn text(now: Snapshot, plugin: Option<&PreStartMetrics>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    if let Some(plugin) = plugin {
        plugin.register(&mut registry);
    }
    registry.register_collector(Box::new(SnapshotCollector(now)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct SnapshotCollector(Snapshot);

/// Description of a metric.
struct Metric<'a> {
    name: &'a str,
    help: &'a str,
    unit: Option<Unit>,
}

const fn metric<'a>(name: &'a str, help: &'a str) -> Metric<'a> {
    Metric { name, help, unit: None }
}

fn in_unit<'a>(name: &'a str, unit: Unit, help: &'a str) -> Metric<'a> {
    Metric { name, help, unit: Some(unit) }
}

/// Writes a metric, if it has any series. `write` writes the value of a series.
fn family<'a, const LABELS: usize, V>(
    encoder: &mut DescriptorEncoder<'_>,
    (metric, kind): (&Metric<'_>, MetricType),
    series: impl Iterator<Item = ([(&'a str, &'a str); LABELS], V)>,
    write: impl Fn(MetricEncoder<'_>, &V) -> fmt::Result,
) -> fmt::Result {
    let mut series = series.peekable();
    if series.peek().is_none() {
        return Ok(());
    }
    let mut written = encoder.encode_descriptor(metric.name, metric.help, metric.unit.as_ref(), kind)?;
    series.try_for_each(|(labels, value)| write(written.encode_family(&labels)?, &value))
}

/// Writes a gauge, if it has any series.
fn gauges<'a, const LABELS: usize, V: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    metric: &Metric<'_>,
    series: impl Iterator<Item = ([(&'a str, &'a str); LABELS], V)>,
) -> fmt::Result {
    family(encoder, (metric, MetricType::Gauge), series, |mut one, value| one.encode_gauge(value))
}

/// Writes a counter, if it has any series.
fn counters<'a, const LABELS: usize, V: EncodeCounterValue>(
    encoder: &mut DescriptorEncoder<'_>,
    metric: &Metric<'_>,
    series: impl Iterator<Item = ([(&'a str, &'a str); LABELS], V)>,
) -> fmt::Result {
    family(encoder, (metric, MetricType::Counter), series, |mut one, value| {
        one.encode_counter::<NoLabelSet, _, f64>(value, None)
    })
}

impl Collector for SnapshotCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        gpus(&mut encoder, &self.0)?;
        slices(&mut encoder, &self.0)?;
        agent(&mut encoder, &self.0)
    }
}

fn gpus(encoder: &mut DescriptorEncoder<'_>, now: &Snapshot) -> fmt::Result {
    let driver = now.driver.as_deref().unwrap_or_default();
    let info = |gpu: &'_ Gpu| -> [(&'static str, String); 3] {
        [
            ("uuid", gpu.uuid.clone()),
            ("model", gpu.model.clone().unwrap_or_default()),
            ("driver", driver.to_owned()),
        ]
    };
    let infos: Vec<_> = now.gpus.iter().map(info).collect();
    gauges(
        encoder,
        &metric("gpuslice_gpu_info", "A GPU of the node, its product and its driver; 1"),
        infos.iter().map(|labels| (labels.each_ref().map(|(key, value)| (*key, value.as_str())), 1_i64)),
    )?;
    let of = |gpu: &'_ Gpu| -> String { gpu.uuid.clone() };
    let uuids: Vec<(String, &Gpu)> = now.gpus.iter().map(|gpu| (of(gpu), gpu)).collect();
    gauges(
        encoder,
        &metric("gpuslice_gpu_healthy", "Whether NVML answers for the GPU: 1, or 0"),
        uuids.iter().map(|(uuid, gpu)| ([("uuid", uuid.as_str())], i64::from(gpu.healthy))),
    )?;
    gauges(
        encoder,
        &metric(
            "gpuslice_gpu_utilization_ratio",
            "Part of NVML's last sample period in which a kernel of any process ran, 0 to 1",
        ),
        uuids.iter().filter_map(|(uuid, gpu)| {
            Some(([("uuid", uuid.as_str())], ratio(gpu.utilization_percent?.into(), 100.0)))
        }),
    )?;
    let unlimited: Vec<(&str, String, usize)> = uuids
        .iter()
        .flat_map(|(uuid, gpu)| now.unlimited_on(gpu).into_iter().map(move |one| (uuid.as_str(), one)))
        .map(|(uuid, (container, (_, count)))| (uuid, container, count))
        .collect();
    gauges(
        encoder,
        &metric(
            "gpuslice_gpu_unlimited_processes",
            "Processes that use the GPU without libgpuslice.so, so that no limit holds for them; without a container: of the host",
        ),
        unlimited.iter().map(|(uuid, container, count)| {
            ([("uuid", *uuid), ("container", container)], whole((*count).try_into().unwrap_or(u64::MAX)))
        }),
    )?;
    let memory = uuids.iter().flat_map(|(uuid, gpu)| {
        let kinds =
            [("total", gpu.memory_total), ("used", gpu.memory_used), ("reserved", gpu.memory_reserved)];
        kinds
            .into_iter()
            .filter_map(move |(kind, bytes)| Some(([("uuid", uuid.as_str()), ("kind", kind)], whole(bytes?))))
    });
    gauges(
        encoder,
        &in_unit(
            "gpuslice_gpu_memory",
            Unit::Bytes,
            "Memory that the GPU has, that all processes use, and that the driver keeps for itself",
        ),
        memory,
    )
}

/// Returns each slice on each of its GPUs, with the labels that identify it.
fn on_gpus(now: &Snapshot) -> impl Iterator<Item = (&SliceSnapshot, &Device, [(&'static str, &str); 5])> {
    now.slices
        .iter()
        .flat_map(|slice| slice.devices.iter().map(move |device| (slice, device, labels(slice, device))))
}

/// Returns the labels of a slice on a GPU. Outside of Kubernetes, the namespace and the pod are empty, and the container's
/// label is the number that its engine gave to it.
fn labels<'a>(slice: &'a SliceSnapshot, device: &'a Device) -> [(&'static str, &'a str); 5] {
    let [namespace, pod, container] = match &slice.pod {
        Some(Pod { namespace, name, container, .. }) => [namespace.as_str(), name, container],
        None => ["", "", slice.place()],
    };
    [
        ("namespace", namespace),
        ("pod", pod),
        ("container", container),
        ("uuid", &device.uuid),
        ("slot", &slice.name),
    ]
}

fn pod_uid(slice: &SliceSnapshot) -> &str {
    slice.pod.as_ref().map_or("", |pod| pod.uid.as_str())
}

fn slices(encoder: &mut DescriptorEncoder<'_>, now: &Snapshot) -> fmt::Result {
    let info = on_gpus(now).map(|(slice, device, [namespace, pod, container, uuid, slot])| {
        let more = [
            ("pod_uid", pod_uid(slice)),
            ("policy", device.policy.as_str()),
            ("priority", device.priority.as_str()),
        ];
        let [pod_uid, policy, priority] = more;
        ([namespace, pod, container, uuid, slot, pod_uid, policy, priority], 1_i64)
    });
    gauges(encoder, &metric("gpuslice_slice_info", "A slice, with its policy and priority; 1"), info)?;
    gauges(
        encoder,
        &in_unit(
            "gpuslice_slice_memory_limit",
            Unit::Bytes,
            "Memory that the slice may hold; no series where it has no limit",
        ),
        on_gpus(now).filter_map(|(_, device, labels)| Some((labels, whole(device.memory_limit?)))),
    )?;
    gauges(
        encoder,
        &in_unit("gpuslice_slice_memory_used", Unit::Bytes, "Memory that the slice's processes hold"),
        on_gpus(now).map(|(_, device, labels)| (labels, whole(device.memory_used))),
    )?;
    gauges(
        encoder,
        &in_unit(
            "gpuslice_slice_memory_leaving",
            Unit::Bytes,
            "Memory of dead processes of the slice that the GPU may not have back yet",
        ),
        on_gpus(now).map(|(_, device, labels)| (labels, whole(device.memory_leaving))),
    )?;
    gauges(
        encoder,
        &in_unit(
            "gpuslice_slice_memory_unaccounted",
            Unit::Bytes,
            "Memory that NVML attributes to the slice's processes beyond their charges; no series where that is not known",
        ),
        on_gpus(now).filter_map(|(_, device, labels)| Some((labels, device.memory_unaccounted?))),
    )?;
    gauges(
        encoder,
        &metric(
            "gpuslice_slice_core_limit_ratio",
            "The slice's share of the GPU's time, 0 to 1; 1 is no limit",
        ),
        on_gpus(now).map(|(_, device, labels)| (labels, ratio(device.share_permille.into(), 1000.0))),
    )?;
    gauges(
        encoder,
        &metric(
            "gpuslice_slice_core_used_ratio",
            "Part of the GPU's time that the slice used over the last 10 s; no series where it is not measured",
        ),
        on_gpus(now)
            .filter_map(|(_, device, labels)| Some((labels, ratio(device.used_permille_10s?, 1000.0)))),
    )?;
    gauges(
        encoder,
        &metric("gpuslice_slice_processes", "Processes that live in the slice"),
        on_gpus(now)
            .map(|(slice, _, labels)| (labels, whole(slice.process_count.try_into().unwrap_or(u64::MAX)))),
    )?;
    let sources = on_gpus(now).map(|(_, device, [namespace, pod, container, uuid, slot])| {
        ([namespace, pod, container, uuid, slot, ("source", device.meter.name())], 1_i64)
    });
    gauges(encoder, &metric("gpuslice_slice_time_source", "The source of the slice's GPU time; 1"), sources)?;
    counters(
        encoder,
        &metric("gpuslice_slice_memory_denied", "Allocations that were refused because of the slice's limit"),
        on_gpus(now).map(|(_, device, labels)| (labels, device.denied)),
    )?;
    counters(
        encoder,
        &in_unit(
            "gpuslice_slice_gpu_time",
            Unit::Seconds,
            "GPU time that the slice was charged; no series if it was never charged",
        ),
        on_gpus(now).filter_map(|(_, device, labels)| Some((labels, seconds(device.charged()?)))),
    )?;
    counters(
        encoder,
        &in_unit(
            "gpuslice_slice_throttled",
            Unit::Seconds,
            "Time that launches waited for the slice's share, summed over threads",
        ),
        on_gpus(now).map(|(_, device, labels)| (labels, seconds(device.throttled_ns))),
    )
}

fn agent(encoder: &mut DescriptorEncoder<'_>, now: &Snapshot) -> fmt::Result {
    let made = now.slices.iter().filter(|slice| slice.made).count();
    let free = now.free.saturating_add(now.kubelet.free);
    let allocated = made.saturating_sub(now.free).saturating_add(now.kubelet.owned);
    gauges(
        encoder,
        &metric(
            "gpuslice_agent_slots",
            "Slices of the configuration and slots of the kubelet, with and without a user; stale: used, but removed from the configuration",
        ),
        [("free", free), ("allocated", allocated), ("stale", now.left_behind)]
            .into_iter()
            .map(|(state, count)| ([("state", state)], whole(count.try_into().unwrap_or(u64::MAX)))),
    )?;
    gauges(
        encoder,
        &metric("gpuslice_agent_build_info", "Version of the agent; 1"),
        [([("version", env!("CARGO_PKG_VERSION"))], 1_i64)].into_iter(),
    )
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn ratio(part: u64, whole: f64) -> f64 {
    // Both numbers are far below 2^53.
    f64::from(u32::try_from(part).unwrap_or(u32::MAX)) / whole
}

fn seconds(nanoseconds: u64) -> f64 {
    std::time::Duration::from_nanos(nanoseconds).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::KubeletSlots;
    use gpuslice_region::Limits;
    use gpuslice_slices::discovery::ContainerIdentity;
    use gpuslice_slices::unlimited::UnlimitedProcess;
    use std::collections::BTreeSet;

    fn slice(name: &str, container: Option<&str>) -> SliceSnapshot {
        let limits = Limits { memory: Some(4 << 30), cores_permille: 300, ..Limits::NONE };
        let device = Device {
            uuid: "GPU-a".to_owned(),
            memory_used: 7,
            memory_unaccounted: (name == "a").then_some(-5),
            denied: 3,
            used_ns: 1_500_000_000,
            used_permille_10s: Some(298),
            ..Device::limited(limits)
        };
        SliceSnapshot {
            name: name.to_owned(),
            container: container.map(str::to_owned),
            container_name: None,
            pod: None,
            made: container.is_none(),
            region: String::new(),
            problem: None,
            generation: None,
            process_count: 2,
            processes: Vec::new(),
            devices: vec![device],
        }
    }

    #[test]
    fn series_have_the_names_and_labels_that_dashboards_ask_for() {
        let gpu = Gpu {
            uuid: "GPU-a".to_owned(),
            healthy: true,
            memory_total: Some(9),
            utilization_percent: Some(50),
            users: Some(BTreeSet::new()),
            ..Gpu::default()
        };
        let [namespace, name, uid, container] = ["ns", "p", "u", "main"].map(str::to_owned);
        let pod = Some(Pod { namespace, name, uid, container });
        let in_pod = SliceSnapshot { pod, ..slice("slot-3", Some("c1")) };
        let now = Snapshot {
            driver: Some("580".to_owned()),
            gpus: vec![gpu],
            slices: vec![slice("a", None), slice("idle", None), slice("b", Some("c0")), in_pod],
            unlimited: Vec::new(),
            free: 1,
            left_behind: 0,
            kubelet: KubeletSlots { owned: 2, free: 14 },
        };
        let text = text(now, None).unwrap();
        let a = "namespace=\"\",pod=\"\",container=\"\",uuid=\"GPU-a\",slot=\"a\"";
        for line in [
            "gpuslice_gpu_info{uuid=\"GPU-a\",model=\"\",driver=\"580\"} 1",
            "gpuslice_gpu_unlimited_processes{uuid=\"GPU-a\",container=\"\"} 0",
            "gpuslice_gpu_healthy{uuid=\"GPU-a\"} 1",
            "gpuslice_gpu_utilization_ratio{uuid=\"GPU-a\"} 0.5",
            "gpuslice_gpu_memory_bytes{uuid=\"GPU-a\",kind=\"total\"} 9",
            &format!("gpuslice_slice_info{{{a},pod_uid=\"\",policy=\"fixed\",priority=\"normal\"}} 1"),
            &format!("gpuslice_slice_memory_limit_bytes{{{a}}} 4294967296"),
            &format!("gpuslice_slice_memory_used_bytes{{{a}}} 7"),
            &format!("gpuslice_slice_memory_leaving_bytes{{{a}}} 0"),
            &format!("gpuslice_slice_memory_unaccounted_bytes{{{a}}} -5"),
            &format!("gpuslice_slice_core_limit_ratio{{{a}}} 0.3"),
            &format!("gpuslice_slice_core_used_ratio{{{a}}} 0.298"),
            &format!("gpuslice_slice_processes{{{a}}} 2"),
            &format!("gpuslice_slice_time_source{{{a},source=\"none\"}} 1"),
            &format!("gpuslice_slice_memory_denied_total{{{a}}} 3"),
            &format!("gpuslice_slice_gpu_time_seconds_total{{{a}}} 1.5"),
            &format!("gpuslice_slice_throttled_seconds_total{{{a}}} 0.0"),
            "gpuslice_slice_info{namespace=\"ns\",pod=\"p\",container=\"main\",uuid=\"GPU-a\",slot=\"slot-3\",pod_uid=\"u\",policy=\"fixed\",priority=\"normal\"} 1",
            "gpuslice_slice_processes{namespace=\"ns\",pod=\"p\",container=\"main\",uuid=\"GPU-a\",slot=\"slot-3\"} 2",
            "gpuslice_slice_processes{namespace=\"\",pod=\"\",container=\"c0\",uuid=\"GPU-a\",slot=\"b\"} 2",
            "gpuslice_agent_slots{state=\"free\"} 15",
            "gpuslice_agent_slots{state=\"allocated\"} 3",
            "gpuslice_agent_slots{state=\"stale\"} 0",
            concat!("gpuslice_agent_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        let unaccounted =
            text.lines().filter(|line| line.starts_with("gpuslice_slice_memory_unaccounted_bytes{"));
        assert_eq!(unaccounted.count(), 1, "it is known of one slice\n{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn a_field_that_nvml_does_not_tell_costs_its_own_series_and_no_other() {
        let known = Gpu {
            uuid: "GPU-a".to_owned(),
            healthy: true,
            memory_total: Some(9),
            memory_used: Some(1),
            ..Gpu::default()
        };
        let text = text(Snapshot { gpus: vec![known], ..Snapshot::default() }, None).unwrap();
        assert!(
            text.contains("kind=\"used\"} 1\n")
                && !text.contains("reserved\"")
                && !text.contains("gpuslice_gpu_utilization_ratio"),
            "{text}"
        );
    }

    #[test]
    fn unlimited_processes_are_counted_by_container_if_nvml_tells_the_processes() {
        // A program of the container has made the second mount namespace.
        let process = |pid, mounts| {
            let identity = ContainerIdentity { mounts, id: Some("c".to_owned()), name: None };
            UnlimitedProcess { container: Some(identity), pid }
        };
        let now = |users| Snapshot {
            gpus: vec![Gpu { uuid: "GPU-a".to_owned(), users, ..Gpu::default() }],
            unlimited: vec![process(1, 7), process(2, 8), process(3, 8), process(4, 8)],
            ..Snapshot::default()
        };
        let series = |now| {
            let text = text(now, None).unwrap();
            let is_it = |line: &&str| line.starts_with("gpuslice_gpu_unlimited_processes{");
            text.lines().filter(is_it).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            series(now(Some(BTreeSet::from([1, 2, 3])))),
            [
                "gpuslice_gpu_unlimited_processes{uuid=\"GPU-a\",container=\"\"} 0",
                "gpuslice_gpu_unlimited_processes{uuid=\"GPU-a\",container=\"c\"} 3",
            ]
        );
        assert_eq!(series(now(None)), Vec::<String>::new());
    }

    #[test]
    fn time_that_is_not_measured_has_no_series() {
        let with = |limits, used_ns| {
            let device = Device { used_ns, ..Device::limited(limits) };
            let slice = SliceSnapshot { devices: vec![device], ..slice("a", None) };
            text(Snapshot { slices: vec![slice], ..Snapshot::default() }, None).unwrap()
        };
        let has = |text: &str, name: &str| text.lines().any(|line| line.starts_with(name));
        let [ratio, time] = ["gpuslice_slice_core_used_ratio{", "gpuslice_slice_gpu_time_seconds_total{"];
        let unlimited = with(Limits::NONE, 0);
        assert!(!has(&unlimited, ratio) && !has(&unlimited, time), "{unlimited}");
        assert!(has(&unlimited, "gpuslice_slice_core_limit_ratio{"), "{unlimited}");
        // The counter keeps the time that the slice used while it had a share.
        let before = with(Limits::NONE, 7);
        assert!(!has(&before, ratio) && has(&before, time), "{before}");
        let idle = with(Limits { cores_permille: 999, ..Limits::NONE }, 0);
        assert!(has(&idle, ratio) && has(&idle, time), "{idle}");
    }

    #[test]
    fn a_slice_name_with_quotes_and_line_breaks_is_escaped() {
        let text =
            text(Snapshot { slices: vec![slice("a\"} 1\nb \\", Some("c"))], ..Snapshot::default() }, None)
                .unwrap();
        assert!(text.contains("slot=\"a\\\"} 1\\nb \\\\\"} 7\n"), "{text}");
    }
}
