//! Checks that the names of tests name the actor.
//!
//! Example: `a_stopped_slice_needs_nothing` says which slice. `who_stopped_needs_nothing` leaves the reader to guess.

use crate::support::repository::files_below;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Words that stand for an actor without naming it.
const UNNAMED: [&str; 4] = ["who", "whom", "whoever", "nobody"];

/// Returns true if a name leaves the actor unnamed.
fn is_unnamed(name: &str) -> bool {
    name.starts_with("what_") || name.split('_').any(|word| UNNAMED.contains(&word))
}

/// Returns the names of the test functions of a source text.
fn test_functions(text: &str) -> Vec<String> {
    let (mut found, mut is_test) = (Vec::new(), false);
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if is_test
            && !line.starts_with("#[")
            && !line.starts_with("//")
            && let Some((_, rest)) = line.split_once("fn ")
        {
            found.push(rest.split(['(', '<']).next().unwrap_or_default().to_owned());
            is_test = false;
        }
    }
    found
}

/// Returns the test functions of all files of the repository.
fn all_test_functions() -> BTreeMap<PathBuf, Vec<String>> {
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("source is text");
        (path, test_functions(&text))
    };
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    files_below(&repository, Some("rs")).into_iter().map(read).collect()
}

#[test]
fn every_name_of_a_test_names_its_actor() {
    let all = all_test_functions();
    let count: usize = all.values().map(Vec::len).sum();
    assert!(count > 1500, "{count} tests");
    for (file, names) in all {
        let unnamed: Vec<String> = names.into_iter().filter(|name| is_unnamed(name)).collect();
        assert!(unnamed.is_empty(), "{}: {unnamed:#?}", file.display());
    }
}

#[test]
fn a_planted_name_of_a_test_without_an_actor_is_found() {
    let text = "#[test]\n#[should_panic(expected = \"fn a\")]\n// fn b()\nfn of_two_who_ask_one_goes() {}\nfn nobody() {}\n";
    assert_eq!(test_functions(text), ["of_two_who_ask_one_goes"]);
    let text =
        "    #[tokio::test(flavor = \"x\")]\n    async fn a_node_joins() {}\n#[test]\npub fn f<T>() {}";
    assert_eq!(test_functions(text), ["a_node_joins", "f"]);
    for name in
        ["who_waits_pays", "of_two_who_ask_one_goes", "whoever_asks_waits", "it_ends_nobody", "what_is_owed"]
    {
        assert!(is_unnamed(name), "{name}");
    }
    for name in ["a_slice_whose_share_is_set_waits", "somewhat_late", "a_slice_pays"] {
        assert!(!is_unnamed(name), "{name}");
    }
}
