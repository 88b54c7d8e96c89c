//! Metrics of the calls of kubelets and schedulers, and of the extender's ledger.

use crate::files::MIB;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};
use std::fmt;
use std::iter;
use std::time::Duration;

/// Content type of the metrics. Prometheus refuses the text under another type.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Buckets of durations. The first ends at 1 ms, the last at 16 s, and each is twice as long as the one before. The scheduler's
/// own histograms have the same buckets.
const SHORTEST: Duration = Duration::from_millis(1);
const GROWTH: u32 = 2;
const BUCKETS: usize = 15;

/// One label. The code lists all its values, so tenants cannot add series.
type Label = [(&'static str, &'static str); 1];

fn histogram() -> Histogram {
    // The power function of floats would need the C library's mathematics, which the portable agent does not load.
    let bounds = iter::successors(Some(SHORTEST), |bound| bound.checked_mul(GROWTH));
    Histogram::new(bounds.take(BUCKETS).map(|bound| bound.as_secs_f64()))
}

/// Adds durations and failures to a registry. Each comes with its name and its help text.
fn register(
    registry: &mut Registry,
    (durations, failures): (impl Metric, impl Metric),
    [(name, help), (failures_name, failures_help)]: [(&str, &str); 2],
) {
    registry.register_with_unit(name, help, Unit::Seconds, durations);
    registry.register(failures_name, failures_help, failures);
}

/// The reason why a container has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The kubelet does not tell which container has the slot.
    Kubelet,
    /// The apiserver does not answer.
    Apiserver,
    /// No extender has placed the pod.
    Unplaced,
    /// The pod's annotation or request is refused, or a GPU has no room.
    Refused,
    /// The files cannot be written.
    Files,
}

impl Cause {
    const ALL: [Self; 5] = [Self::Kubelet, Self::Apiserver, Self::Unplaced, Self::Refused, Self::Files];

    const fn label(self) -> Label {
        let reason = match self {
            Self::Kubelet => "kubelet",
            Self::Apiserver => "apiserver",
            Self::Unplaced => "unplaced",
            Self::Refused => "refused",
            Self::Files => "files",
        };
        [("reason", reason)]
    }
}

/// Figures of the call `PreStartContainer`. Clones share them.
#[derive(Debug, Clone)]
pub struct PreStartMetrics {
    durations: Histogram,
    failures: Family<Label, Counter>,
}

impl Default for PreStartMetrics {
    fn default() -> Self {
        let failures = Family::default();
        // A query of the rate needs the series before the first failure.
        for cause in Cause::ALL {
            drop(failures.get_or_create(&cause.label()));
        }
        Self { durations: histogram(), failures }
    }
}

impl PreStartMetrics {
    /// Adds the figures to a registry.
    pub fn register(&self, registry: &mut Registry) {
        let texts = [
            ("gpuslice_agent_prestart_duration", "Time that the kubelet waits for a container's files"),
            ("gpuslice_agent_prestart_failures", "Starts of containers that were delayed"),
        ];
        register(registry, (self.durations.clone(), self.failures.clone()), texts);
    }

    /// Counts a call.
    pub(crate) fn count(&self, took: Duration, failure: Option<Cause>) {
        self.durations.observe(took.as_secs_f64());
        if let Some(cause) = failure {
            self.failures.get_or_create(&cause.label()).inc();
        }
    }
}

/// Request of a scheduler to its extender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Filter,
    Prioritize,
    Preempt,
    Bind,
}

impl Verb {
    const ALL: [Self; 4] = [Self::Filter, Self::Prioritize, Self::Preempt, Self::Bind];

    const fn label(self) -> Label {
        let verb = match self {
            Self::Filter => "filter",
            Self::Prioritize => "prioritize",
            Self::Preempt => "preempt",
            Self::Bind => "bind",
        };
        [("verb", verb)]
    }
}

/// Reason why *filter* rejects a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// The pod's request is invalid on every node.
    Request,
    /// The extender does not know the GPUs of the node.
    Node,
    /// The node does not have suitable GPUs, even without other pods.
    Unsuitable,
    /// Other pods use the room.
    Full,
}

impl Rejection {
    const ALL: [Self; 4] = [Self::Request, Self::Node, Self::Unsuitable, Self::Full];

    const fn label(self) -> Label {
        let reason = match self {
            Self::Request => "request",
            Self::Node => "node",
            Self::Unsuitable => "unsuitable",
            Self::Full => "full",
        };
        [("reason", reason)]
    }
}

/// Memory of a node's working GPUs in the extender's ledger, in mebibytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeMemory {
    /// Name of the node.
    pub node: String,
    /// All memory that slices can use.
    pub capacity: u64,
    /// Memory that pods have.
    pub allocated: u64,
}

impl NodeMemory {
    /// Returns the figures, each with the value of its label.
    const fn kinds(&self) -> [(&'static str, u64); 2] {
        [("capacity", self.capacity), ("allocated", self.allocated)]
    }
}

/// Figures of an extender. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct ExtenderMetrics {
    durations: Family<Label, Histogram, fn() -> Histogram>,
    failures: Family<Label, Counter>,
    rejections: Family<Label, Counter>,
}

impl Default for ExtenderMetrics {
    fn default() -> Self {
        let metrics = Self {
            durations: Family::new_with_constructor(histogram as fn() -> Histogram),
            failures: Family::default(),
            rejections: Family::default(),
        };
        for verb in Verb::ALL {
            drop(metrics.durations.get_or_create(&verb.label()));
            drop(metrics.failures.get_or_create(&verb.label()));
        }
        for reason in Rejection::ALL {
            drop(metrics.rejections.get_or_create(&reason.label()));
        }
        metrics
    }
}

impl ExtenderMetrics {
    /// Counts a node that *filter* rejects.
    pub(crate) fn reject(&self, reason: Rejection) {
        self.rejections.get_or_create(&reason.label()).inc();
    }

    /// Counts a request.
    pub(crate) fn count(&self, verb: Verb, took: Duration, is_failure: bool) {
        self.durations.get_or_create(&verb.label()).observe(took.as_secs_f64());
        if is_failure {
            self.failures.get_or_create(&verb.label()).inc();
        }
    }

    /// Returns the figures as text, with the memory of each node.
    ///
    /// # Errors
    /// Those of the writer.
    pub(crate) fn text(&self, nodes: &[NodeMemory]) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        let texts = [
            ("gpuslice_extender_request_duration", "Time from a scheduler's request to the answer"),
            (
                "gpuslice_extender_request_failures",
                "Requests of the scheduler that the extender could not serve",
            ),
        ];
        register(&mut registry, (self.durations.clone(), self.failures.clone()), texts);
        let rejected = "Nodes that the extender has rejected for a pod";
        registry.register("gpuslice_extender_rejections", rejected, self.rejections.clone());
        let memory = Family::<[(&'static str, String); 2], Gauge>::default();
        for node in nodes {
            for (kind, mebibytes) in node.kinds() {
                let labels = [("node", node.node.clone()), ("kind", kind.to_owned())];
                let bytes = i64::try_from(mebibytes.saturating_mul(MIB)).unwrap_or(i64::MAX);
                memory.get_or_create(&labels).set(bytes);
            }
        }
        let known = "Memory of the node's GPUs in the extender's ledger";
        registry.register_with_unit("gpuslice_extender_memory", known, Unit::Bytes, memory);
        let mut written = String::new();
        text::encode(&mut written, &registry)?;
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(registry: &Registry) -> Vec<String> {
        let mut written = String::new();
        text::encode(&mut written, registry).unwrap();
        written.lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn has(lines: &[String], line: &str) {
        assert!(lines.iter().any(|found| found == line), "{line} is missing in {lines:#?}");
    }

    #[test]
    fn starts_are_counted_by_their_duration_and_the_cause_of_a_wait() {
        let metrics = PreStartMetrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        // The series of all causes exist from the start.
        for cause in ["kubelet", "apiserver", "unplaced", "refused", "files"] {
            has(
                &lines(&registry),
                &format!("gpuslice_agent_prestart_failures_total{{reason=\"{cause}\"}} 0"),
            );
        }
        metrics.count(Duration::from_millis(3), None);
        metrics.count(Duration::from_secs(20), Some(Cause::Unplaced));
        let lines = lines(&registry);
        for line in [
            "# TYPE gpuslice_agent_prestart_duration_seconds histogram",
            "gpuslice_agent_prestart_duration_seconds_count 2",
            "gpuslice_agent_prestart_duration_seconds_sum 20.003",
            "gpuslice_agent_prestart_duration_seconds_bucket{le=\"0.002\"} 0",
            "gpuslice_agent_prestart_duration_seconds_bucket{le=\"0.004\"} 1",
            "gpuslice_agent_prestart_duration_seconds_bucket{le=\"16.384\"} 1",
            "gpuslice_agent_prestart_duration_seconds_bucket{le=\"+Inf\"} 2",
            "gpuslice_agent_prestart_failures_total{reason=\"unplaced\"} 1",
            "gpuslice_agent_prestart_failures_total{reason=\"files\"} 0",
        ] {
            has(&lines, line);
        }
    }

    #[test]
    fn verbs_have_a_histogram_and_a_counter_of_failures_each() {
        let metrics = ExtenderMetrics::default();
        metrics.count(Verb::Bind, Duration::from_millis(1), true);
        let lines: Vec<String> = metrics.text(&[]).unwrap().lines().map(str::to_owned).collect();
        for (verb, count) in [("filter", 0), ("prioritize", 0), ("preempt", 0), ("bind", 1)] {
            let labels = format!("{{verb=\"{verb}\"}} {count}");
            has(&lines, &format!("gpuslice_extender_request_duration_seconds_count{labels}"));
            has(&lines, &format!("gpuslice_extender_request_failures_total{labels}"));
        }
        assert_eq!(lines.last().map(String::as_str), Some("# EOF"));
    }

    #[test]
    fn rejections_have_a_series_for_each_reason_and_nodes_two_of_memory() {
        let metrics = ExtenderMetrics::default();
        metrics.reject(Rejection::Full);
        let node = NodeMemory { node: "n1".to_owned(), capacity: 16_384, allocated: 4096 };
        let lines: Vec<String> = metrics.text(&[node]).unwrap().lines().map(str::to_owned).collect();
        for (reason, count) in [("request", 0), ("node", 0), ("unsuitable", 0), ("full", 1)] {
            has(&lines, &format!("gpuslice_extender_rejections_total{{reason=\"{reason}\"}} {count}"));
        }
        for (kind, mebibytes) in [("capacity", 16_384_u64), ("allocated", 4096)] {
            let labels = format!("{{node=\"n1\",kind=\"{kind}\"}} {}", mebibytes << 20);
            has(&lines, &format!("gpuslice_extender_memory_bytes{labels}"));
        }
    }
}
