//! Runs helm and kubeconform, and makes the schemas of Kubernetes that kubeconform reads.

use crate::support::{artefacts, skip};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Tools that `ci/charts.sh` has built.
#[derive(Debug)]
pub(crate) struct Tools(PathBuf);

impl Tools {
    /// Finds the tools. If they are not there, skips `what` with the reason and returns `None`.
    pub(crate) fn find(what: &str) -> Option<Self> {
        let folder = artefacts::repository().join("build/charts");
        let is_whole = folder.join("mark").exists();
        if !is_whole {
            skip(&format!("{what}: there is no helm of the pinned version; to mend it: ci/charts.sh"));
        }
        is_whole.then_some(Self(folder))
    }

    /// The folder of the kubelet's protocols: `1.36/dra/v1/api.proto`.
    pub(crate) fn protocols(&self) -> PathBuf {
        self.0.join("kubelet")
    }

    /// Runs helm in the repository.
    pub(crate) fn helm(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.0.join("helm"));
        command.args(arguments).current_dir(artefacts::repository());
        // The folders of the user's own helm must play no part.
        command.env("HELM_CACHE_HOME", self.0.join("home")).env("HELM_CONFIG_HOME", self.0.join("home"));
        command.env("HELM_DATA_HOME", self.0.join("home")).output().expect("helm can be run")
    }

    /// Returns the chart's objects with these settings.
    #[track_caller]
    pub(crate) fn render(&self, settings: &[&str]) -> String {
        let rendered = self.template(settings);
        assert!(rendered.status.success(), "{settings:?}: {}", told(&rendered));
        String::from_utf8(rendered.stdout).expect("it is text")
    }

    /// Runs `helm template` on the chart with these settings.
    pub(crate) fn template(&self, settings: &[&str]) -> Output {
        let mut arguments = vec!["template", "gpuslice", "charts/gpuslice", "--namespace=gpuslice"];
        arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        self.helm(&arguments)
    }

    /// Checks objects against their schemas. `unknown` names kinds without a schema here.
    #[track_caller]
    pub(crate) fn conform(&self, files: &[PathBuf], unknown: &[&str]) {
        let schemas = tempfile::tempdir().expect("there is room");
        write_schemas(&self.0, schemas.path());
        let mut command = Command::new(self.0.join("kubeconform"));
        let form = schemas.path().join("{{.ResourceKind}}{{.KindSuffix}}.json");
        command.args(["-strict", "-verbose", "-summary", "-schema-location"]).arg(form);
        command.args(["-skip", &unknown.join(",")]).args(files);
        let checked = command.output().expect("kubeconform can be run");
        assert!(checked.status.success(), "{}", told(&checked));
        println!("{}", String::from_utf8_lossy(&checked.stdout).lines().last().unwrap_or_default());
    }
}

/// Returns everything that a program has printed.
pub(crate) fn told(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

/// Returns the objects of a text.
pub(crate) fn objects(text: &str) -> Vec<Value> {
    let read: Vec<Value> = serde_saphyr::from_multiple(text).expect("it is YAML");
    read.into_iter().filter(|object| !object.is_null()).collect()
}

/// Writes one schema for each kind, named as kubeconform expects: `deployment-apps-v1.json`.
fn write_schemas(tools: &Path, to: &Path) {
    let text = fs::read(tools.join("swagger.json")).expect("it was put there");
    let mut swagger: Value = serde_json::from_slice(&text).expect("it is JSON");
    let mut definitions = swagger["definitions"].take();
    for (name, schema) in definitions.as_object_mut().expect("they have names") {
        close(schema);
        // Values of these types may be written as numbers too.
        if ["resource.Quantity", "intstr.IntOrString"].iter().any(|kind| name.ends_with(kind)) {
            *schema = json!({"type": ["string", "integer", "number"]});
        }
    }
    let write = |kind: &Value, group: &Value, version: &Value, schema: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_lowercase();
        let group = text(group).split('.').next().unwrap_or_default().to_owned();
        let parts = [text(kind), group, text(version)];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        fs::write(to.join(format!("{}.json", parts.join("-"))), schema.to_string()).expect("there is room");
    };
    for (name, schema) in definitions.as_object().expect("they have names") {
        for kind in schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
            let whole = json!({"$ref": format!("definitions.json#/definitions/{name}")});
            write(&kind["kind"], &kind["group"], &kind["version"], &whole);
        }
    }
    fs::write(to.join("definitions.json"), json!({"definitions": definitions}).to_string())
        .expect("there is room");
    for entry in fs::read_dir(tools.join("crd")).expect("they were put there").flatten() {
        let text = fs::read_to_string(entry.path()).expect("it is text");
        for definition in objects(&text) {
            let spec = &definition["spec"];
            for version in spec["versions"].as_array().into_iter().flatten() {
                let mut schema = version["schema"]["openAPIV3Schema"].clone();
                close(&mut schema);
                write(&spec["names"]["kind"], &spec["group"], &version["name"], &schema);
            }
        }
    }
}

/// Makes a schema refuse unknown fields, as a strict apiserver does.
fn close(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    for within in ["items", "additionalProperties"] {
        fields.get_mut(within).into_iter().for_each(close);
    }
    let properties = fields.get_mut("properties").and_then(Value::as_object_mut);
    let has_properties = properties.map(|fields| fields.values_mut().for_each(close)).is_some();
    // The definition of a custom resource leaves out the fields of its metadata.
    let is_open = ["x-kubernetes-preserve-unknown-fields", "additionalProperties"];
    if has_properties && !is_open.iter().any(|key| fields.contains_key(*key)) {
        fields.insert("additionalProperties".to_owned(), json!(false));
    }
    if fields.contains_key("x-kubernetes-int-or-string") {
        fields.insert("type".to_owned(), json!(["string", "integer"]));
        fields.remove("anyOf");
    }
}
