//! Checks which source files import which: no circle of files, and no import of a folder that comes later.
//!
//! A crate lists its folders in `lib.rs` as a numbered list, lowest first. A file imports from its own folder and from
//! folders earlier in the list. A folder may list its own folders in its `mod.rs` too. A crate without a list is only checked for
//! circles.

pub(crate) mod names;
mod test_names;
mod tokens;

use crate::support::repository::files_below;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tokens::tokens;

/// Files of a crate: the text of each by its module path, `""` for the root.
type Sources = BTreeMap<String, String>;

/// Files that each file imports, each with the path of the first such import.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

/// Reads the files of a crate.
fn sources(name: &str) -> Sources {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("source is text");
        (module(path.strip_prefix(&root).unwrap()), text)
    };
    files_below(&root, Some("rs")).into_iter().map(read).collect()
}

/// Returns the module path of a file.
fn module(file: &Path) -> String {
    let path = file.with_extension("").to_string_lossy().replace('/', "::");
    match path.strip_suffix("::mod").unwrap_or(&path) {
        "lib" | "main" => String::new(),
        path => path.to_owned(),
    }
}

/// Collects the paths of a `use` whose tokens begin at `at`: `a::{b, c::d}` has two.
fn use_paths(tokens: &[String], at: &mut usize, prefix: &str, paths: &mut Vec<String>) {
    let mut path = prefix.to_owned();
    while *at < tokens.len() {
        let token = tokens[*at].as_str();
        match token {
            "}" | "," | ";" => break,
            "{" => {
                *at += 1;
                while *at < tokens.len() && tokens[*at] != "}" && tokens[*at] != ";" {
                    use_paths(tokens, at, &path, paths);
                    *at += usize::from(tokens.get(*at).is_some_and(|token| token == ","));
                }
                *at += 1;
                return;
            }
            "as" => *at += 1,
            _ => path.push_str(token),
        }
        *at += 1;
    }
    paths.push(path.trim_end_matches("::self").to_owned());
}

/// Returns the paths that a file imports, each from the root of the crate. Modules in the file named `tests` are left out.
///
/// The function goes through the words and signs of the file, and follows its `mod` blocks to know the module of each path. An
/// import is the path of a `use`, or a path in the code that begins with `crate::` or `super::`.
fn imports(module: &str, text: &str) -> Vec<String> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    // Modules inside the file in which the position lies, and the depth of braces at which each began.
    let (mut inside, mut depth, mut at): (Vec<(String, usize)>, usize, usize) = (Vec::new(), 0, 0);
    let is = |at: usize, token: &str| tokens.get(at).is_some_and(|found| found == token);
    while at < tokens.len() {
        let mut paths = Vec::new();
        match tokens[at].as_str() {
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                if inside.last().is_some_and(|(_, began)| *began == depth) {
                    inside.pop();
                }
            }
            "mod" if is(at + 2, "{") => {
                inside.push((tokens[at + 1].clone(), depth));
                depth += 1;
                at += 2;
            }
            // The `use<'a>` of a type is no import.
            "use" if !is(at + 1, ".") => {
                at += 1;
                use_paths(&tokens, &mut at, "", &mut paths);
            }
            "crate" | "super" if is(at + 1, "::") && (at == 0 || !is(at - 1, "::")) => {
                let mut path = tokens[at].clone();
                while is(at + 1, "::") && tokens.get(at + 2).is_some_and(|next| next != "{") {
                    path = format!("{path}::{}", tokens[at + 2]);
                    at += 2;
                }
                // An exported macro lies in the root, regardless of the file that defines it.
                if path.matches("::").count() > 1 || !is(at + 1, "!") {
                    paths.push(path);
                }
            }
            _ => {}
        }
        at += 1;
        let here = inside.iter().fold(module.to_owned(), |here, (name, _)| format!("{here}::{name}"));
        found.extend(paths.iter().map(|path| from_root(&here, path)));
    }
    found
}

/// Returns a path of the module `here` as a path from the root of the crate.
fn from_root(here: &str, path: &str) -> String {
    let mut here: Vec<&str> = here.split("::").filter(|part| !part.is_empty()).collect();
    let mut parts = path.split("::").peekable();
    match parts.peek() {
        Some(&"crate") => {
            here.clear();
            parts.next();
        }
        Some(&"self") => {
            parts.next();
        }
        _ => {
            while parts.next_if_eq(&"super").is_some() {
                here.pop();
            }
        }
    }
    here.extend(parts);
    here.join("::")
}

/// Returns the imports of each file. A path that leads to no file is another crate's.
fn edges(sources: &Sources) -> Edges {
    let mut edges = Edges::new();
    for (from, text) in sources {
        for path in imports(from, text) {
            // The file of a path is the file of the longest prefix that names one. An item of the root has the root as its file.
            let mut to = path.as_str();
            while !sources.contains_key(to) {
                to = to.rsplit_once("::").map_or("", |(before, _)| before);
            }
            if to != from {
                edges.entry(from.clone()).or_default().entry(to.to_owned()).or_insert_with(|| path.clone());
            }
        }
    }
    edges
}

/// Returns all files that can be reached from a file by one import or more, each with the file that imports it.
fn reached(edges: &Edges, from: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut ahead = std::collections::VecDeque::from([from.to_owned()]);
    while let Some(file) = ahead.pop_front() {
        for to in edges.get(&file).into_iter().flat_map(BTreeMap::keys) {
            if !found.contains_key(to) {
                found.insert(to.clone(), file.clone());
                ahead.push_back(to.clone());
            }
        }
    }
    found
}

/// Returns the files that lie in a circle, and for each circle one shortest way around, with its imports.
///
/// A file lies in a circle if its own imports reach it again. `reached` has the predecessor of each file on a shortest way, so
/// the function walks around the circle backwards. It leaves a circle out if the first file after `from` was in one that it
/// walked before, because several files lead to the same circle.
fn circles(edges: &Edges) -> (BTreeSet<String>, Vec<String>) {
    let mut files = BTreeSet::new();
    let mut shown = BTreeSet::new();
    let mut ways = Vec::new();
    for from in edges.keys() {
        let reached = reached(edges, from);
        if !reached.contains_key(from) {
            continue;
        }
        files.insert(from.clone());
        let (mut way, mut at) = (Vec::new(), from.clone());
        loop {
            let before = &reached[&at];
            way.push(format!("{} imports {}", file(before), edges[before][&at]));
            let is_new = shown.insert(at.clone());
            at.clone_from(before);
            if at == *from {
                if is_new {
                    ways.push(way.into_iter().rev().collect::<Vec<_>>().join(", "));
                }
                break;
            }
        }
    }
    (files, ways)
}

fn file(module: &str) -> String {
    if module.is_empty() { String::from("the root") } else { module.replace("::", "/") }
}

/// Returns the folders of the root's numbered list with their places, from lines such as "1. `low`, `lower`: their content".
fn folders(root: &str) -> BTreeMap<String, usize> {
    let mut folders = BTreeMap::new();
    for line in root.lines().filter_map(|line| line.strip_prefix("//! ")) {
        let Some((number, entry)) = line.split_once(". ") else { continue };
        let (Ok(number), Some((names, _))) = (number.parse::<usize>(), entry.split_once("`: ")) else {
            continue;
        };
        let names = names.split(", ").map(|name| name.trim_matches('`').to_owned());
        folders.extend(names.map(|name| (name, number)));
    }
    folders
}

/// Returns imports of a folder that comes later in a list, and files whose folder is not in the list. The root lists the crate's
/// folders, and a folder may list its own.
fn upward(sources: &Sources, edges: &Edges) -> Vec<String> {
    sources.iter().flat_map(|(parent, text)| upward_in(parent, &folders(text), sources, edges)).collect()
}

/// Checks the list of one folder, `parent`.
fn upward_in(
    parent: &str,
    folders: &BTreeMap<String, usize>,
    sources: &Sources,
    edges: &Edges,
) -> Vec<String> {
    if folders.is_empty() {
        return Vec::new();
    }
    // Returns the folder of the list in which a file lies. The file with the list and files elsewhere have none.
    let top = |module: &str| {
        let inside =
            if parent.is_empty() { Some(module) } else { module.strip_prefix(parent)?.strip_prefix("::") };
        inside
            .filter(|inside| !inside.is_empty())
            .map(|inside| inside.split("::").next().unwrap_or_default().to_owned())
    };
    let unlisted = sources.keys().filter(|module| top(module).is_some_and(|top| !folders.contains_key(&top)));
    let mut wrong: Vec<String> = unlisted
        .map(|module| format!("{} is in no folder of the list in {}", file(module), file(parent)))
        .collect();
    for (from, imported) in edges {
        let Some(low) = top(from).and_then(|top| folders.get(&top).copied()) else { continue };
        for (to, path) in
            imported.iter().filter(|(to, _)| parent.is_empty() || *to == parent || top(to).is_some())
        {
            let high = top(to).and_then(|top| folders.get(&top).copied());
            if high.is_none_or(|high| high > low) {
                wrong.push(format!("{} imports {path}, which comes later", file(from)));
            }
        }
    }
    wrong
}

/// Returns the names of all crates.
fn crates() -> Vec<String> {
    let folders = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
    let crates: Vec<_> = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(crates.len() >= 10, "{crates:?}");
    crates
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    for name in crates() {
        let (files, ways) = circles(&edges(&sources(&name)));
        let ways = ways.join("\n  ");
        assert!(files.is_empty(), "src/{name}: {} files in circles:\n  {ways}", files.len());
    }
}

#[test]
fn no_file_imports_from_a_later_folder() {
    for name in crates() {
        let sources = sources(&name);
        let wrong = upward(&sources, &edges(&sources));
        assert!(wrong.is_empty(), "src/{name}/src: {wrong:#?}");
    }
    let counted = ["policy", "region", "shim", "cli", "simgpu"].map(|name| folders(&sources(name)[""]).len());
    assert_eq!(counted, [11, 11, 9, 6, 15]);
    assert_eq!(folders(&sources("shim")["compute"]).len(), 9);
}

/// Returns a crate of these files.
fn planted(files: &[(&str, &str)]) -> Sources {
    let root = "//! 1. `low`: first.\n//! 2. `high`: second.\nmod low;\nmod high;\npub use high::b::Item;\n";
    let root = [("", root)];
    root.iter().chain(files).map(|(module, text)| ((*module).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn a_planted_circle_and_an_import_that_goes_up_are_named() {
    let clean = planted(&[
        ("low::a", "//! use crate::high::b;\nuse std::{fmt, io};\nconst A: &str = \"crate::high::b\";"),
        ("low::c", "mod inner { use super::Own; use super::super::a::X; }\nuse super::a::{self, X as Y};"),
        (
            "high::b",
            "use crate::{low::{a::X, c}};\n#[cfg(test)]\nmod tests { use super::*; use crate::high::d; }",
        ),
        ("high::d", "fn f() { crate::high::b::g(); crate::exported! { x } }"),
    ]);
    assert_eq!(circles(&edges(&clean)), (BTreeSet::new(), Vec::new()));
    assert_eq!(upward(&clean, &edges(&clean)), Vec::<String>::new());

    for import in [
        "use crate::high::d::X;",
        "use super::d;",
        "fn f() { super::d::f() }",
        "use crate::{low::c, high::{d}};",
    ] {
        let mut sources = clean.clone();
        sources.insert(String::from("high::b"), import.to_owned());
        let (files, ways) = circles(&edges(&sources));
        assert_eq!(files.len(), 2, "{import}: {ways:?}");
        assert!(ways[0].contains("high/b imports high::d"), "{ways:?}");
        assert!(ways[0].contains("high/d imports high::b::g"), "{ways:?}");
    }
    let mut sources = clean.clone();
    sources.insert(String::from("low::a"), String::from("use crate::{high::b::Item, Item as Other};"));
    sources.insert(String::from("other"), String::new());
    let list = "//! 1. `x`: first.\n//! 2. `y`: second.\n";
    sources.insert(String::from("high"), list.to_owned());
    sources.insert(String::from("high::x"), String::from("use super::y::Later;\nuse crate::low::c;"));
    sources.insert(String::from("high::y"), String::from("use super::x::Earlier;"));
    sources.insert(String::from("high::b"), String::new());
    sources.insert(String::from("high::d"), String::new());
    let wrong = upward(&sources, &edges(&sources));
    assert!(wrong.iter().any(|line| line.contains("high/x imports high::y::Later")), "{wrong:?}");
    assert!(wrong.iter().any(|line| line.contains("high/b is in no folder")), "{wrong:?}");
    assert_eq!(wrong.len(), 6, "{wrong:?}");
    assert!(wrong.iter().any(|line| line.contains("low/a imports high::b::Item")), "{wrong:?}");
    assert!(wrong.iter().any(|line| line.contains("other is in no folder")), "{wrong:?}");
}
