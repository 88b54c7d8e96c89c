//! Compares the protocols of `src/kubernetes/proto` with the kubelet's own: services, calls, numbers and types of fields.

use super::tools::Tools;
use crate::support::artefacts;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};
use std::collections::BTreeMap;
use std::path::Path;

/// A file of gpuslice, and the kubelet's folders of the same protocol, by version of Kubernetes.
const PROTOCOLS: [(&str, &[&str]); 6] = [
    ("deviceplugin", &["1.36/deviceplugin/v1beta1", "1.37/deviceplugin/v1beta1"]),
    ("podresources", &["1.36/podresources/v1", "1.37/podresources/v1"]),
    ("pluginregistration", &["1.36/pluginregistration/v1", "1.37/pluginregistration/v1"]),
    ("dra", &["1.36/dra/v1", "1.37/dra/v1"]),
    ("drahealth", &["1.36/dra-health/v1alpha1", "1.37/dra-health/v1alpha1"]),
    ("drahealth-v1", &["1.37/dra-health/v1"]),
];

/// Fields by their path from the request or the answer of a call, e.g. `answer.devices.ID`, with their form on the wire.
type Wire = BTreeMap<String, String>;

/// The messages and enumerations of a protocol, by their full names.
#[derive(Default)]
struct Types<'set> {
    messages: BTreeMap<String, &'set DescriptorProto>,
    enums: BTreeMap<String, &'set EnumDescriptorProto>,
}

impl<'set> Types<'set> {
    fn of(set: &'set FileDescriptorSet) -> Self {
        let mut types = Self::default();
        for file in &set.file {
            let scope = format!(".{}", file.package());
            file.message_type.iter().for_each(|message| types.add(&scope, message));
            let named = |one: &'set EnumDescriptorProto| (format!("{scope}.{}", one.name()), one);
            types.enums.extend(file.enum_type.iter().map(named));
        }
        types
    }

    /// Adds a message and those inside it, which protocols use for maps.
    fn add(&mut self, scope: &str, message: &'set DescriptorProto) {
        let name = format!("{scope}.{}", message.name());
        message.nested_type.iter().for_each(|inner| self.add(&name, inner));
        self.messages.insert(name, message);
    }

    /// Writes down the fields of a type. The names of types are left out, because they are not sent.
    fn walk(&self, path: &str, name: &str, wire: &mut Wire) {
        if let Some(one) = self.enums.get(name) {
            wire.extend(
                one.value
                    .iter()
                    .map(|value| (format!("{path}={}", value.name()), value.number().to_string())),
            );
        }
        for field in self.messages.get(name).map_or(&[][..], |message| &message.field) {
            let inner = format!("{path}.{}", field.name());
            wire.insert(
                inner.clone(),
                format!("{} {:?} {:?}", field.number(), field.label(), field.r#type()),
            );
            self.walk(&inner, field.type_name(), wire);
        }
    }
}

/// The wire of each service of a file: its calls, with whether each side streams, and their fields.
fn wire(folder: &Path, file: &str) -> Wire {
    let set = protox::compile([file], [folder]).expect("the file is a protocol");
    let types = Types::of(&set);
    let file = set.file.iter().find(|read| read.name() == file).expect("it is in the set");
    let mut wire = Wire::new();
    for service in &file.service {
        for call in &service.method {
            let path = format!("{}.{}/{}", file.package(), service.name(), call.name());
            let streams = format!("{} {}", call.client_streaming(), call.server_streaming());
            wire.insert(path.clone(), streams);
            types.walk(&format!("{path} request"), call.input_type(), &mut wire);
            types.walk(&format!("{path} answer"), call.output_type(), &mut wire);
        }
    }
    wire
}

#[test]
fn the_kubelet_sends_and_reads_the_fields_that_the_agent_knows() {
    let Some(tools) = Tools::find("the protocols against the kubelet's") else { return };
    let ours = artefacts::repository().join("src/kubernetes/proto");
    for (file, kubelets) in PROTOCOLS {
        let known = wire(&ours, &format!("{file}.proto"));
        assert!(!known.is_empty(), "{file} has no service");
        for kubelet in kubelets {
            let theirs = wire(&tools.protocols().join(kubelet), "api.proto");
            let wrong = known.iter().filter(|(path, form)| theirs.get(*path) != Some(form));
            let wrong: Vec<_> = wrong.map(|(path, form)| (path, form, theirs.get(path))).collect();
            assert!(wrong.is_empty(), "{file}.proto against {kubelet}: {wrong:#?}");
        }
    }
}
