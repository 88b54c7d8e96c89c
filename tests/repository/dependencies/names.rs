//! Checks that no two types, and no two constants, that a reader meets in one function have the same name.

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

/// Returns the names that several files define, each with these files. Tests do not count. `defined` returns the names that a
/// file's text defines.
fn shared(sources: &Sources, defined: impl Fn(&str) -> Vec<String>) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    let is_test =
        |module: &str| module.split("::").any(|part| ["tests", "models", "properties"].contains(&part));
    for (module, text) in sources.iter().filter(|(module, _)| !is_test(module)) {
        for name in defined(text) {
            found.entry(name).or_default().insert(file(module));
        }
    }
    found.retain(|_, files| files.len() > 1);
    found
}

/// Returns the types that several files define under one name.
fn shared_names(sources: &Sources) -> BTreeMap<String, BTreeSet<String>> {
    let is_type = |pair: &&[String]| {
        ["struct", "enum", "trait", "union"].contains(&pair[0].as_str())
            && pair[1].starts_with(char::is_uppercase)
    };
    shared(sources, |text| tokens(text).windows(2).filter(is_type).map(|pair| pair[1].clone()).collect())
}

/// Returns the constants that several files define under one name. A constant of a type or of a function does not count: its
/// line is indented, and a reader sees its owner.
fn shared_constants(sources: &Sources) -> BTreeMap<String, BTreeSet<String>> {
    shared(sources, |text| text.lines().filter_map(constant_of).map(str::to_owned).collect())
}

/// Returns the name of the constant that a line declares at its start.
pub(crate) fn constant_of(line: &str) -> Option<&str> {
    let (visibility, rest) = line.split_once("const ")?;
    let is_item = ["", "pub ", "pub(crate) ", "pub(super) "].contains(&visibility);
    let (name, _) = rest.split_once(": ").filter(|(name, _)| is_item && *name != "_")?;
    Some(name)
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
fn no_two_constants_of_a_crate_have_the_same_name() {
    for name in crates() {
        let shared = shared_constants(&sources(&name));
        assert!(shared.is_empty(), "src/{name}/src: {shared:#?}");
    }
}

#[test]
fn no_two_constants_of_the_library_have_the_same_name() {
    let sources = joined(&LIBRARY.map(|name| (name, sources(name))));
    let shared = shared_constants(&sources);
    assert!(shared.is_empty(), "{shared:#?}");
}

#[test]
fn a_planted_second_constant_of_a_name_is_named() {
    let second = "use super::MOST;\nconst _: () = ();\n// const MOST: u8 = 1;\nimpl Kind {\n    const MOST: u8 = 1;\n}\n\
                  pub(crate) fn most<const MOST: u8>() -> u8 {\n    MOST\n}";
    let mut sources =
        planted(&[("low::a", "pub const MOST: u64 = 1 << 20;\nconst _: () = ();"), ("high::b", second)]);
    sources.insert(String::from("tests::c"), String::from("const MOST: u8 = 2;"));
    assert_eq!(shared_constants(&sources), BTreeMap::new());
    for line in
        ["const MOST: &str = \"a\";", "pub const MOST: u64 = 2;", "pub(crate) const MOST: u64 =\n    2;"]
    {
        sources.insert(String::from("high::d"), line.to_owned());
        let files = BTreeSet::from(["high/d", "low/a"].map(String::from));
        assert_eq!(shared_constants(&sources), BTreeMap::from([(String::from("MOST"), files)]), "{line}");
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

    let one = planted(&[("a", "struct Kind;"), ("b", "struct Quota;")]);
    let other = planted(&[("a", "pub enum Kind { A }\nmod tests { struct Quota; }")]);
    assert_eq!(shared_names(&one), BTreeMap::new());
    assert_eq!(shared_names(&other), BTreeMap::new());
    let files = BTreeSet::from(["one/a", "other/a"].map(String::from));
    let both = joined(&[("one", one), ("other", other)]);
    assert_eq!(shared_names(&both), BTreeMap::from([(String::from("Kind"), files)]));
}
