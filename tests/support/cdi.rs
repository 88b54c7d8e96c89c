//! Specifications of the Container Device Interface, as a container engine takes them.
//!
//! The crate `container-device-interface` is independent of gpuslice. It checks a specification by the schema and by the rules of
//! the interface, and edits the OCI specification of a container.
//!
//! Only the engines in `tests/agent` show two facts: a container starts with the edits, and a variable of the device replaces a
//! variable of the container. The crate only appends the device's variable to the list.

use container_device_interface::cache::{new_cache, with_auto_refresh};
use container_device_interface::schema::validate_builtin;
use container_device_interface::spec::read_spec;
use container_device_interface::spec_dirs::with_spec_dirs;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Checks a file, and returns the qualified names of its devices.
#[track_caller]
pub(crate) fn checked(path: &Path) -> Vec<String> {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    validate_builtin(&text).unwrap_or_else(|why| panic!("{}: {why:#}", path.display()));
    let spec = read_spec(&path.to_owned(), 0).unwrap_or_else(|why| panic!("{}: {why:#}", path.display()));
    spec.get_devices().values().map(|device| device.get_qualified_name()).collect()
}

/// A container with a device.
#[derive(Debug)]
pub(crate) struct Injected(Value);

/// Gives a device of the specifications in a folder to a container that has `variables` and a mount of its own.
pub(crate) fn inject(folder: &Path, device: &str, variables: &[&str]) -> Result<Injected, String> {
    let folder = folder.to_str().expect("the path is text");
    let cache = new_cache(vec![with_spec_dirs(&[folder]), with_auto_refresh(false)]);
    let mut cache = cache.lock().expect("no other thread has it");
    let user = json!({ "uid": 0, "gid": 0 });
    let mut container = serde_json::from_value(json!({
        "ociVersion": "1.0.2",
        "process": { "cwd": "/", "user": user, "args": ["true"], "env": variables },
        "mounts": [{ "destination": "/data", "type": "bind", "source": "/srv/data", "options": ["ro", "bind"] }],
    }))
    .expect("the specification is valid");
    cache.inject_devices(Some(&mut container), vec![device.to_owned()]).map_err(|error| error.to_string())?;
    Ok(Injected(serde_json::to_value(&container).expect("it is JSON")))
}

impl Injected {
    /// Returns the variables of the container's first process. A name that is there twice is an error.
    #[track_caller]
    pub(crate) fn variables(&self) -> BTreeMap<&str, &str> {
        let mut found = BTreeMap::new();
        for item in array(&self.0, "/process/env") {
            let (name, value) = item.as_str().and_then(|item| item.split_once('=')).expect("a variable");
            assert_eq!(found.insert(name, value), None, "{item} is there twice");
        }
        found
    }

    /// Returns the source and the options of each mount, by its path in the container.
    #[track_caller]
    pub(crate) fn mounts(&self) -> BTreeMap<&str, (&Path, Vec<&str>)> {
        let mounts = array(&self.0, "/mounts").iter();
        let found = mounts.map(|mount| {
            let options = array(mount, "/options").iter().map(as_text).collect();
            (text(mount, "/destination"), (Path::new(text(mount, "/source")), options))
        });
        found.collect()
    }

    /// Returns everything but the process and the mounts.
    pub(crate) fn rest(&self) -> BTreeMap<&str, &Value> {
        let all = self.0.as_object().expect("this is an object").iter();
        all.map(|(key, value)| (key.as_str(), value))
            .filter(|(key, _)| !["process", "mounts"].contains(key))
            .collect()
    }
}

fn array<'a>(value: &'a Value, place: &str) -> &'a [Value] {
    value.pointer(place).and_then(Value::as_array).unwrap_or_else(|| panic!("{place} is no list in {value}"))
}

fn text<'a>(value: &'a Value, place: &str) -> &'a str {
    value.pointer(place).map(as_text).unwrap_or_else(|| panic!("{place} is missing in {value}"))
}

fn as_text(value: &Value) -> &str {
    value.as_str().expect("this is text")
}
