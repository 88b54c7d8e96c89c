//! Checks the files of `examples/agent` that name metrics of the agent or run it.

use crate::node::Node;
use crate::support::{artefacts, skip};
use crate::{TWO, join};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

fn example(name: &str) -> PathBuf {
    artefacts::repository().join("examples/agent").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(example(name)).unwrap()
}

/// Returns the metrics that a text names.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("gpuslice_")).map(str::to_owned).collect()
}

/// Collects every text under a key, at any depth.
fn under<'a>(key: &str, value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(key).and_then(Value::as_str));
            fields.values().for_each(|value| under(key, value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| under(key, item, found)),
        _ => {}
    }
}

/// Returns the queries of the alert rules. Each stands in one line, in single quotes.
fn rules() -> Vec<String> {
    let text = read("alerts.yaml");
    let queries = text.lines().filter_map(|line| line.trim().strip_prefix("expr: '")?.strip_suffix('\''));
    let queries: Vec<String> = queries.map(str::to_owned).collect();
    assert_eq!(queries.len(), text.matches("- alert: ").count());
    queries
}

/// Runs a checker of files, or returns `None` if it is not installed.
fn checked(program: &str, arguments: &[&str], package: &str) -> Option<Output> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => Some(output),
        Err(_) => {
            skip(&format!("{}: no {program}; to mend it: apt-get install {package}", arguments.join(" ")));
            None
        }
    }
}

#[test]
fn queries_and_the_reference_name_the_metrics_that_the_agent_exports() {
    let mut node = Node::start(TWO);
    let member = join(&node, "a");
    let names = |node: &Node| node.scrape().0.into_keys().map(|(name, _)| name).collect::<BTreeSet<String>>();
    let exported = node.until("its memory is compared with NVML's figures", |node| {
        Some(names(node)).filter(|names| names.contains("gpuslice_slice_memory_unaccounted_bytes"))
    });
    member.leave();

    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    let mut queries = Vec::new();
    for key in ["expr", "query"] {
        under(key, &dashboard, &mut queries);
    }
    assert!(queries.len() > dashboard["panels"].as_array().unwrap().len());
    let rules = rules();
    for query in queries.into_iter().chain(rules.iter().map(String::as_str)) {
        let unknown: Vec<_> = metrics_in(query).difference(&exported).cloned().collect();
        assert!(unknown.is_empty(), "{query}: {unknown:?} is not among {exported:?}");
    }

    let reference = artefacts::repository().join("docs/reference/agent.md");
    assert_eq!(metrics_in(&fs::read_to_string(reference).unwrap()), exported);
}

#[test]
fn panels_have_numbers_and_places_of_their_own() {
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    let mut numbers = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(numbers.insert(panel["id"].as_u64()), "{panel}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(x + w <= 24, "{panel}");
        for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(place), "{panel}");
        }
    }
}

#[test]
fn promtool_takes_the_alert_rules_and_they_fire_when_they_should() {
    let path = example("alerts.yaml").display().to_string();
    let cases = artefacts::repository().join("tests/agent/alerts.test.yaml");
    let text = fs::read_to_string(&cases).unwrap();
    for name in read("alerts.yaml").lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let tested = text.matches(&format!("alertname: {name}")).count();
        assert_eq!(tested, 2, "{name}: a case in which it is silent, and one in which it fires");
    }
    let cases = cases.display().to_string();
    for arguments in [["check", "rules", &path], ["test", "rules", &cases]] {
        let Some(output) = checked("promtool", &arguments, "prometheus") else { return };
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn systemd_takes_the_unit_and_its_hardening() {
    let unit = read("gpuslice-agent.service");
    let installed = "ExecStart=gpuslice-agent\n";
    assert!(unit.contains(installed));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gpuslice-agent.service");
    // systemd looks for the program, so the unit names its path here.
    let here = format!("ExecStart={}\n", artefacts::agent().display());
    fs::write(&path, unit.replace(installed, &here)).unwrap();
    let path = path.display().to_string();
    if let Some(output) = checked("systemd-analyze", &["verify", "--man=no", &path], "systemd") {
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
    // systemd 252 rates the exposure at 3.3 of 10. Newer versions check more settings, and they call 5 and more a medium
    // exposure.
    let security = ["security", "--offline=yes", "--no-pager", "--threshold=40", &path];
    if let Some(output) = checked("systemd-analyze", &security, "systemd") {
        if String::from_utf8_lossy(&output.stderr).contains("unrecognized option") {
            return skip(
                "the hardening of the unit: this systemd looks at no file; elsewhere: with systemd 250 or newer",
            );
        }
        assert!(output.status.success(), "{output:?}");
    }
}
