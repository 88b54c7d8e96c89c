//! Requests of the scheduler to an extender, and the answers. The keys are the names in the scheduler's Go structures.

use super::refusal::Refusal;
use crate::api::Pod;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A pod, and its candidate nodes.
#[derive(Debug, Clone, Deserialize)]
pub struct Arguments {
    /// The pod.
    #[serde(rename = "Pod")]
    pub pod: Pod,
    /// Whole nodes. A scheduler sends them unless its configuration says that names are enough.
    #[serde(rename = "Nodes", default)]
    pub nodes: Option<serde_json::Value>,
    /// Names of the nodes.
    #[serde(rename = "NodeNames", default)]
    pub node_names: Option<Vec<String>>,
}

/// Nodes with room.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Filtered {
    /// Whole nodes, if the request had whole nodes.
    #[serde(rename = "Nodes")]
    pub nodes: Option<serde_json::Value>,
    /// Names of the nodes, if the request had names.
    #[serde(rename = "NodeNames")]
    pub node_names: Option<Vec<String>>,
    /// Nodes without room that may have room without other pods, each with the reason.
    #[serde(rename = "FailedNodes")]
    pub failed: BTreeMap<String, String>,
    /// Nodes that have no room even without other pods, each with the reason. The scheduler evicts nothing there.
    #[serde(rename = "FailedAndUnresolvableNodes")]
    pub unresolvable: BTreeMap<String, String>,
    /// Reason why the extender did not answer the request; empty if it did.
    #[serde(rename = "Error")]
    pub error: String,
}

/// A pod for which the scheduler evicts other pods, and the pods that the scheduler has chosen on each node.
#[derive(Debug, Clone, Deserialize)]
pub struct Preemption {
    /// The pod.
    #[serde(rename = "Pod")]
    pub pod: Pod,
    /// Whole pods by node. A scheduler sends them unless its configuration says that UIDs are enough.
    #[serde(rename = "NodeNameToVictims", default)]
    pub whole: Option<BTreeMap<String, Victims<Pod>>>,
    /// UIDs of the pods by node.
    #[serde(rename = "NodeNameToMetaVictims", default)]
    pub named: Option<BTreeMap<String, Victims<Uid>>>,
}

/// The pods to evict from a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Victims<T> {
    /// The pods.
    #[serde(rename = "Pods")]
    pub pods: Option<Vec<T>>,
    /// Number of these pods that a disruption budget protects.
    #[serde(rename = "NumPDBViolations", default)]
    pub violations: i64,
}

/// UID of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uid {
    /// UID.
    #[serde(rename = "UID")]
    pub uid: String,
}

/// Nodes on which evictions make room, with the pods to evict.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Preempted {
    /// UIDs of the pods by node.
    #[serde(rename = "NodeNameToMetaVictims")]
    pub victims: BTreeMap<String, Victims<Uid>>,
}

impl Preemption {
    /// Returns for each node the UIDs of the chosen pods and the number of violated budgets, from either form of the request.
    #[must_use]
    pub fn victims(&self) -> BTreeMap<String, (Vec<String>, i64)> {
        fn uids<T>(victims: &Victims<T>, uid: impl Fn(&T) -> String) -> (Vec<String>, i64) {
            (victims.pods.iter().flatten().map(uid).collect(), victims.violations)
        }
        let named = self.named.iter().flatten();
        let named = named.map(|(node, victims)| (node.clone(), uids(victims, |pod| pod.uid.clone())));
        let whole = self.whole.iter().flatten();
        let whole =
            whole.map(|(node, victims)| (node.clone(), uids(victims, |pod| pod.metadata.uid.clone())));
        named.chain(whole).collect()
    }
}

/// Score of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Score {
    /// Node.
    #[serde(rename = "Host")]
    pub host: String,
    /// Score from 0 to 10.
    #[serde(rename = "Score")]
    pub score: u64,
}

/// A pod, and the node to which it is to be bound.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Binding {
    /// Name of the pod.
    #[serde(rename = "PodName")]
    pub pod: String,
    /// Namespace of the pod.
    #[serde(rename = "PodNamespace")]
    pub namespace: String,
    /// UID of the pod.
    #[serde(rename = "PodUID")]
    pub uid: String,
    /// Node.
    #[serde(rename = "Node")]
    pub node: String,
}

/// Result of a binding.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Bound {
    /// Reason of a failure; empty if the pod is bound.
    #[serde(rename = "Error")]
    pub error: String,
}

impl Arguments {
    /// Returns the names of the nodes, from either form of the request.
    ///
    /// # Errors
    /// The request has neither form.
    pub fn names(&self) -> Result<Vec<String>, String> {
        if let Some(names) = &self.node_names {
            return Ok(names.clone());
        }
        let items = self.nodes.as_ref().and_then(|nodes| nodes.get("items")?.as_array());
        let items = items.ok_or("the scheduler names no nodes")?;
        Ok(items.iter().filter_map(name).map(str::to_owned).collect())
    }

    /// Returns the answer: the nodes with room, in the form of the request, and the reasons for the other nodes.
    #[must_use]
    pub fn answer(self, refused: BTreeMap<String, Refusal>) -> Filtered {
        let Self { mut nodes, mut node_names, .. } = self;
        if let Some(names) = &mut node_names {
            names.retain(|name| !refused.contains_key(name));
            nodes = None;
        } else if let Some(items) = nodes.as_mut().and_then(|nodes| nodes.get_mut("items")?.as_array_mut()) {
            items.retain(|node| name(node).is_some_and(|name| !refused.contains_key(name)));
        }
        let mut filtered = Filtered { nodes, node_names, ..Filtered::default() };
        for (node, refusal) in refused {
            let reasons = if refusal.is_final() { &mut filtered.unresolvable } else { &mut filtered.failed };
            reasons.insert(node, refusal.why);
        }
        filtered
    }
}

fn name(node: &serde_json::Value) -> Option<&str> {
    node.get("metadata")?.get("name")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Rejection;
    use serde_json::json;

    #[test]
    fn nodes_are_answered_in_the_way_in_which_they_came() {
        let full = |reason| BTreeMap::from([("b".to_owned(), Refusal { why: "full".to_owned(), reason })]);
        let said = |nodes| serde_json::from_value::<Arguments>(nodes).unwrap();
        let names = said(json!({"Pod": {}, "Nodes": null, "NodeNames": ["a", "b"]}));
        assert_eq!(names.names().unwrap(), ["a", "b"]);
        assert_eq!(
            json!(names.answer(full(Rejection::Full))),
            json!({"Nodes": null, "NodeNames": ["a"], "FailedNodes": {"b": "full"},
                "FailedAndUnresolvableNodes": {}, "Error": ""})
        );
        let node = |name: &str| json!({"metadata": {"name": name}, "spec": {"x": 1}});
        let whole = said(json!({"Pod": {}, "Nodes": {"items": [node("a"), node("b")]}, "NodeNames": null}));
        assert_eq!(whole.names().unwrap(), ["a", "b"]);
        let answer = json!(whole.answer(full(Rejection::Unsuitable)));
        assert_eq!((&answer["Nodes"]["items"], &answer["NodeNames"]), (&json!([node("a")]), &json!(null)));
        assert_eq!(
            (&answer["FailedNodes"], &answer["FailedAndUnresolvableNodes"]),
            (&json!({}), &json!({"b": "full"}))
        );
        assert!(said(json!({"Pod": {}})).names().is_err());
    }

    #[test]
    fn victims_are_read_from_both_forms_and_answered_by_uid() {
        let read = |text| serde_json::from_value::<Preemption>(text).unwrap().victims();
        let expected = BTreeMap::from([("n1".to_owned(), (vec!["u".to_owned()], 2))]);
        let named = json!({"Pod": {}, "NodeNameToVictims": null,
            "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 2}}});
        assert_eq!(read(named), expected);
        let pod = json!({"metadata": {"uid": "u", "creationTimestamp": null}});
        let whole = json!({"Pod": {}, "NodeNameToMetaVictims": null,
            "NodeNameToVictims": {"n1": {"Pods": [pod], "NumPDBViolations": 2}}});
        assert_eq!(read(whole), expected);
        assert!(read(json!({"Pod": {}, "NodeNameToMetaVictims": {"n1": {"Pods": null}}}))["n1"].0.is_empty());
        let pods = Some(vec![Uid { uid: "u".to_owned() }]);
        let answer =
            Preempted { victims: BTreeMap::from([("n1".to_owned(), Victims { pods, violations: 1 })]) };
        let expected =
            json!({"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}}});
        assert_eq!(json!(answer), expected);
    }

    #[test]
    fn a_binding_is_read_by_the_names_of_go() {
        let text = r#"{"PodName":"p","PodNamespace":"ns","PodUID":"u","Node":"n1"}"#;
        let binding: Binding = serde_json::from_str(text).unwrap();
        assert_eq!((binding.uid.as_str(), binding.node.as_str()), ("u", "n1"));
        assert_eq!(json!(Bound::default()).to_string(), r#"{"Error":""}"#);
        assert_eq!(json!(Score { host: "a".to_owned(), score: 3 }), json!({"Host": "a", "Score": 3}));
    }
}
