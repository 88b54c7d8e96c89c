//! Checks that no two types that a reader meets in one function have the same name.

use super::tokens::tokens;
use super::{Sources, crates, file, planted, sources};
use std::collections::{BTreeMap, BTreeSet};

/// The crates of the library. A function of `shim` uses the types of all of them.
const LIBRARY: [&str; 4] = ["driver", "policy", "region", "shim"];

/// Returns the files of these crates. The path of each begins with the name of its crate.
fn joined(crates: &[(&str, Sources)]) -> Sources {
    let of_crate = |(name, sources): &(&str, Sources)| -> Sources {
        sources.iter().map(|(module, text)| (format!("{name}::{module}"), text.clone())).collect()
    };
    crates.iter().flat_map(of_crate).collect()
}

/// Returns the types that several files define under one name, each with these files. Tests do not count.
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
    for name in crates() {
        let shared = shared_names(&sources(&name));
        assert!(shared.is_empty(), "src/{name}/src: {shared:#?}");
    }
}

#[test]
fn no_two_types_of_the_library_have_the_same_name() {
    let shared = shared_names(&joined(&LIBRARY.map(|name| (name, sources(name)))));
    assert!(shared.is_empty(), "{shared:#?}");
}

#[test]
fn a_planted_second_type_of_a_name_is_named() {
    let second = "// struct Kind;\nfn f() -> Kind { }\n#[cfg(test)]\nmod tests { struct Kind; }";
    let mut sources = planted(&[("low::a", "pub(crate) struct Kind<T>(T);"), ("high::b", second)]);
    assert_eq!(shared_names(&sources), BTreeMap::new());
    sources.insert(String::from("high::d"), String::from("enum Kind { A }"));
    let files = BTreeSet::from(["high/d", "low/a"].map(String::from));
    assert_eq!(shared_names(&sources), BTreeMap::from([(String::from("Kind"), files)]));

    let one = planted(&[("a", "struct Kind;"), ("b", "struct Quota;")]);
    let other = planted(&[("a", "pub enum Kind { A }\nmod tests { struct Quota; }")]);
    assert_eq!(shared_names(&one), BTreeMap::new());
    assert_eq!(shared_names(&other), BTreeMap::new());
    let files = BTreeSet::from(["one/a", "other/a"].map(String::from));
    let both = joined(&[("one", one), ("other", other)]);
    assert_eq!(shared_names(&both), BTreeMap::from([(String::from("Kind"), files)]));
}
