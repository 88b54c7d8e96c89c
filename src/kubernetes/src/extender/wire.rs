//! Requests of the scheduler to an extender, and the answers. The keys are the names in the scheduler's Go structures.

use crate::api::Pod;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A pod, and its candidate nodes.
#[derive(Debug, Clone, Deserialize)]
pub struct Arguments {
    /// The pod.
    #[serde(rename = "Pod")]
    pub pod: Pod,
    /// Whole nodes, if the scheduler does not know that names are enough.
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
    /// All other nodes, each with the reason.
    #[serde(rename = "FailedNodes")]
    pub failed: BTreeMap<String, String>,
    /// Reason why the request was not answered; empty if it was.
    #[serde(rename = "Error")]
    pub error: String,
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
    /// Returns the names of the nodes, from either form.
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

    /// Returns the answer: the nodes with room in the form of the request, and the reasons of the others.
    #[must_use]
    pub fn answer(self, failed: BTreeMap<String, String>) -> Filtered {
        let Self { mut nodes, mut node_names, .. } = self;
        if let Some(names) = &mut node_names {
            names.retain(|name| !failed.contains_key(name));
            nodes = None;
        } else if let Some(items) = nodes.as_mut().and_then(|nodes| nodes.get_mut("items")?.as_array_mut()) {
            items.retain(|node| name(node).is_some_and(|name| !failed.contains_key(name)));
        }
        Filtered { nodes, node_names, failed, error: String::new() }
    }
}

fn name(node: &serde_json::Value) -> Option<&str> {
    node.get("metadata")?.get("name")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nodes_are_answered_in_the_way_in_which_they_came() {
        let failed = BTreeMap::from([("b".to_owned(), "full".to_owned())]);
        let said = |nodes| serde_json::from_value::<Arguments>(nodes).unwrap();
        let names = said(json!({"Pod": {}, "Nodes": null, "NodeNames": ["a", "b"]}));
        assert_eq!(names.names().unwrap(), ["a", "b"]);
        assert_eq!(
            json!(names.answer(failed.clone())),
            json!({"Nodes": null, "NodeNames": ["a"], "FailedNodes": {"b": "full"}, "Error": ""})
        );
        let node = |name: &str| json!({"metadata": {"name": name}, "spec": {"x": 1}});
        let whole = said(json!({"Pod": {}, "Nodes": {"items": [node("a"), node("b")]}, "NodeNames": null}));
        assert_eq!(whole.names().unwrap(), ["a", "b"]);
        let answer = json!(whole.answer(failed));
        assert_eq!((&answer["Nodes"]["items"], &answer["NodeNames"]), (&json!([node("a")]), &json!(null)));
        assert!(said(json!({"Pod": {}})).names().is_err());
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
