//! Checks that no two types of a crate have the same name.

use super::tokens::tokens;
use super::{Sources, file, planted, sources};
use std::collections::{BTreeMap, BTreeSet};

/// The crates. A reader meets the types of several folders in one function.
const CRATES: [&str; 9] =
    ["agent", "cli", "driver", "kubernetes", "policy", "region", "shim", "simgpu", "slices"];

/// Returns the types that several files of a crate define under one name, each with these files. Tests do not count.
fn shared_names(sources: &Sources) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    let is_test =
        |module: &str| module.split("::").any(|part| ["tests", "models", "properties"].contains(&part));
    for (module, text) in sources.iter().filter(|(module, _)| !is_test(module)) {
        for pair in tokens(text).windows(2) {
            let is_type = ["struct", "enum", "trait", "union"].contains(&pair[0].as_str());
            if is_type && pair[1].starts_with(char::is_uppercase) {
                found.entry(pair[1].clone()).or_default().insert(file(module));
            }
        }
    }
    found.retain(|_, files| files.len() > 1);
    found
}

#[test]
fn no_two_types_of_a_crate_have_the_same_name() {
    for name in CRATES {
        let shared = shared_names(&sources(name));
        assert!(shared.is_empty(), "src/{name}/src: {shared:#?}");
    }
}

#[test]
fn a_planted_second_type_of_a_name_is_named() {
    let second = "// struct Kind;\nfn f() -> Kind { }\n#[cfg(test)]\nmod tests { struct Kind; }";
    let mut sources = planted(&[("low::a", "pub(crate) struct Kind<T>(T);"), ("high::b", second)]);
    assert_eq!(shared_names(&sources), BTreeMap::new());
    sources.insert(String::from("high::d"), String::from("enum Kind { A }"));
    let files = BTreeSet::from(["high/d", "low/a"].map(String::from));
    assert_eq!(shared_names(&sources), BTreeMap::from([(String::from("Kind"), files)]));
}
