//! Resources by which another device plugin gives away the GPUs of a node.

use super::request::whole;
use crate::api::Node;

/// Returns the resource by which another device plugin gives away the GPUs of a node; none if there is no such plugin. A pod of
/// that plugin uses a whole GPU without a limit, so slices must not use the same GPUs.
#[must_use]
pub fn foreign(node: &Node) -> Option<String> {
    let is_foreign = |name: &str| {
        // With time slicing or MPS, NVIDIA's plugin may rename the resource to nvidia.com/gpu.shared.
        name == "nvidia.com/gpu" || name.starts_with("nvidia.com/gpu.") || name.starts_with("nvidia.com/mig-")
    };
    let offered = node.status.capacity.iter().filter(|(_, quantity)| whole(quantity) != Some(0));
    offered.map(|(name, _)| name).find(|name| is_foreign(name)).cloned()
}

/// Returns the reason why a node offers no slices while another plugin gives away its GPUs.
pub(crate) fn taken(resource: &str) -> String {
    format!(
        "it has {resource}, by which another plugin gives away the same GPUs; remove that plugin from the node"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_and_instances_of_another_plugin_count_unless_there_are_none() {
        for (name, quantity, counts) in [
            ("nvidia.com/gpu", "8", true),
            ("nvidia.com/gpu", "1k", true),
            ("nvidia.com/gpu", "0", false),
            ("nvidia.com/gpu.shared", "4", true),
            ("nvidia.com/mig-1g.10gb", "7", true),
            ("nvidia.com/mig-1g.10gb", "0", false),
            ("nvidia.com/gpumem", "100", false),
            ("nvidia.com/hostdev", "1", false),
            ("gpuslice.dev/slice", "16", false),
            ("cpu", "8", false),
        ] {
            let mut node = Node::default();
            node.status.capacity.insert(name.to_owned(), quantity.to_owned());
            assert_eq!(foreign(&node), counts.then(|| name.to_owned()), "{name} {quantity}");
        }
    }
}
