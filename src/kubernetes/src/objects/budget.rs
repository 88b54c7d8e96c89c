//! Disruption budgets. A budget bounds the evictions of an application's pods.

use crate::api::Metadata;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// Labels of a pod: texts by name.
pub type Labels = BTreeMap<String, String>;

/// A `PodDisruptionBudget`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// Name and namespace.
    pub metadata: Metadata,
    spec: BudgetSpec,
    status: BudgetStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct BudgetSpec {
    selector: Option<Selector>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BudgetStatus {
    disruptions_allowed: i64,
    /// Names of pods that are being evicted. The apiserver has already counted these evictions.
    disrupted_pods: BTreeMap<String, IgnoredAny>,
}

/// Conditions on labels, which must all hold.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Selector {
    match_labels: Labels,
    match_expressions: Vec<Expression>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Expression {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl Budget {
    /// Returns true if the eviction of a pod counts against this budget. A budget without conditions covers no pod. The
    /// scheduler counts the same way.
    #[must_use]
    pub fn covers(&self, namespace: &str, name: &str, labels: &Labels) -> bool {
        let Some(Selector { match_labels, match_expressions }) = &self.spec.selector else { return false };
        self.metadata.namespace == namespace
            && !(labels.is_empty() || match_labels.is_empty() && match_expressions.is_empty())
            && match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && match_expressions.iter().all(|expression| expression.holds(labels))
            && !self.status.disrupted_pods.contains_key(name)
    }

    /// Returns the number of pods that may be evicted at present.
    #[must_use]
    pub const fn allowed(&self) -> i64 {
        self.status.disruptions_allowed
    }
}

impl Expression {
    fn holds(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let is_named = value.is_some_and(|value| self.values.contains(value));
        match self.operator.as_str() {
            "In" => is_named,
            "NotIn" => !is_named,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn covers(selector: &Value, labels: &[(&str, &str)]) -> bool {
        let budget = json!({"metadata": {"namespace": "ns", "name": "b"}, "spec": {"selector": selector},
            "status": {"disruptionsAllowed": 2, "disruptedPods": {"leaving": "2026-01-01T00:00:00Z"}}});
        let budget: Budget = serde_json::from_value(budget).unwrap();
        assert_eq!(budget.allowed(), 2);
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert!(!budget.covers("other", "pod", &labels) && !budget.covers("ns", "leaving", &labels));
        budget.covers("ns", "pod", &labels)
    }

    #[test]
    fn a_budget_covers_the_pods_of_its_namespace_that_its_selector_names() {
        let expression = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "app", "operator": operator, "values": values}]});
        let app = json!({"matchLabels": {"app": "a"}});
        assert!(covers(&app, &[("app", "a"), ("x", "y")]));
        assert!(!covers(&app, &[("app", "b")]) && !covers(&app, &[]));
        assert!(covers(&expression("In", &["a", "b"]), &[("app", "b")]));
        assert!(!covers(&expression("In", &["a", "b"]), &[("app", "c")]));
        assert!(covers(&expression("NotIn", &["a"]), &[("x", "y")]));
        assert!(!covers(&expression("NotIn", &["a"]), &[("app", "a")]));
        assert!(covers(&expression("Exists", &[]), &[("app", "c")]));
        assert!(covers(&expression("DoesNotExist", &[]), &[("x", "y")]));
        for nothing in [json!(null), json!({}), expression("Unknown", &[])] {
            assert!(!covers(&nothing, &[("app", "a")]), "{nothing}");
        }
    }
}
