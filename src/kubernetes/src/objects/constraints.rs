//! Annotations of a pod that restrict the GPUs of its slices.

use crate::api::Pod;

/// Name of the annotation with the models. Its texts are separated by commas. A GPU fits if its product's name contains one of
/// them.
pub const GPU_MODEL: &str = "gpuslice.dev/gpu-model";
/// Name of the annotation with the required connection between the GPUs of a container: `nvlink` or `numa`.
pub const GPU_TOPOLOGY: &str = "gpuslice.dev/gpu-topology";

/// Connection between the GPUs of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// NVLink connects each two of the GPUs.
    Nvlink,
    /// All are on one NUMA node of the machine.
    Numa,
}

/// Constraints on the GPUs of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Constraints {
    /// Parts of product names, in lower case. A GPU fits if its name contains one of them. Empty: any GPU fits.
    pub models: Vec<String>,
    /// Connection between the GPUs of a container; none if they need none.
    pub topology: Option<Topology>,
}

impl Constraints {
    /// Returns the constraints of a pod.
    ///
    /// # Errors
    /// An annotation is not in the form that it should have; the message contains its name and its text.
    pub fn of(pod: &Pod) -> Result<Self, String> {
        let text = |name: &str| pod.metadata.annotations.get(name).map(String::as_str);
        let models: Vec<String> = text(GPU_MODEL)
            .into_iter()
            .flat_map(|list| list.split(','))
            .map(|one| one.trim().to_lowercase())
            .collect();
        if models.iter().any(String::is_empty) {
            let text = text(GPU_MODEL).unwrap_or_default();
            return Err(format!("the annotation {GPU_MODEL} is {text:?}; write models like \"H100,A100\""));
        }
        let topology = match text(GPU_TOPOLOGY) {
            None => None,
            Some("nvlink") => Some(Topology::Nvlink),
            Some("numa") => Some(Topology::Numa),
            Some(text) => {
                return Err(format!("the annotation {GPU_TOPOLOGY} is {text:?}; write nvlink or numa"));
            }
        };
        Ok(Self { models, topology })
    }

    /// Returns true if a GPU of this model may be used.
    #[must_use]
    pub fn allow(&self, model: &str) -> bool {
        self.models.is_empty() || {
            let model = model.to_lowercase();
            self.models.iter().any(|part| model.contains(part))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(annotations: &serde_json::Value) -> Result<Constraints, String> {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap();
        Constraints::of(&pod)
    }

    #[test]
    fn a_model_is_a_part_of_the_products_name_in_any_case() {
        assert!(of(&json!({})).unwrap().allow(""));
        let two = of(&json!({GPU_MODEL: "h100, A100"})).unwrap();
        assert!(two.allow("NVIDIA H100 80GB HBM3") && two.allow("NVIDIA A100-SXM4-40GB"));
        assert!(!two.allow("NVIDIA A10G") && !two.allow(""));
    }

    #[test]
    fn a_constraint_that_cannot_be_read_is_refused_with_its_text() {
        for (name, text) in
            [(GPU_MODEL, ""), (GPU_MODEL, "H100,"), (GPU_TOPOLOGY, "nvswitch"), (GPU_TOPOLOGY, "")]
        {
            let why = of(&json!({name: text})).unwrap_err();
            assert!(why.contains(name) && why.contains(&format!("{text:?}")), "{why}");
        }
        assert_eq!(of(&json!({GPU_TOPOLOGY: "numa"})).unwrap().topology, Some(Topology::Numa));
    }
}
