//! Requests of the scheduler to an extender, and the answers. The keys are the names that the scheduler's Go structures have.

use crate::api::Pod;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A pod, and the nodes that it may be on.
#[derive(Debug, Clone, Deserialize)]
pub struct Arguments {
    /// The pod.
    #[serde(rename = "Pod")]
    pub pod: Pod,
    /// The nodes whole, where the scheduler does not know that names are enough.
    #[serde(rename = "Nodes", default)]
    pub nodes: Option<serde_json::Value>,
    /// The names of the nodes.
    #[serde(rename = "NodeNames", default)]
    pub node_names: Option<Vec<String>>,
}

/// The nodes with room.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Filtered {
    /// Whole, if they came so.
    #[serde(rename = "Nodes")]
    pub nodes: Option<serde_json::Value>,
    /// Their names, if they came so.
    #[serde(rename = "NodeNames")]
    pub node_names: Option<Vec<String>>,
    /// All others, each with the reason.
    #[serde(rename = "FailedNodes")]
    pub failed: BTreeMap<String, String>,
    /// Why nothing could be said.
    #[serde(rename = "Error")]
    pub error: String,
}

/// How good a node is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Score {
    /// The node.
    #[serde(rename = "Host")]
    pub host: String,
    /// 0 to 10.
    #[serde(rename = "Score")]
    pub score: u64,
}

/// A pod, and the node that it is to be bound to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Binding {
    /// The pod's name.
    #[serde(rename = "PodName")]
    pub pod: String,
    /// Its namespace.
    #[serde(rename = "PodNamespace")]
    pub namespace: String,
    /// Its UID.
    #[serde(rename = "PodUID")]
    pub uid: String,
    /// The node.
    #[serde(rename = "Node")]
    pub node: String,
}

/// Whether it is bound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Bound {
    /// Why not; empty if it is.
    #[serde(rename = "Error")]
    pub error: String,
}

impl Arguments {
    /// The names of the nodes, whichever way they came.
    ///
    /// # Errors
    /// They came in neither way.
    pub fn names(&self) -> Result<Vec<String>, String> {
        if let Some(names) = &self.node_names {
            return Ok(names.clone());
        }
        let items = self.nodes.as_ref().and_then(|nodes| nodes.get("items")?.as_array());
        let items = items.ok_or("the scheduler names no nodes")?;
        Ok(items.iter().filter_map(name).map(str::to_owned).collect())
    }

    /// The answer: the nodes with room in the way in which they came, and the reasons of the others.
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
