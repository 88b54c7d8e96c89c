//! Do links between documents lead somewhere, and does the troubleshooting page quote messages as they are printed?
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use support::bench::Bench;
use support::command::{end, gpuslice};
use support::other_user::is_root;
use support::{artefacts, skip};

/// All documents of the repository, without their code blocks.
fn documents() -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![artefacts::repository()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the repository can be read") {
            let path = entry.expect("its entries too").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Built and fetched files are not the repository's.
            let is_ours = !name.starts_with('.') && !matches!(name.as_str(), "target" | "build" | "shared");
            if path.is_dir() && is_ours {
                folders.push(path);
            } else if name.ends_with(".md") {
                let text = std::fs::read_to_string(&path).expect("a document is text");
                found.insert(path, without_code_blocks(&text));
            }
        }
    }
    found
}

fn without_code_blocks(text: &str) -> String {
    let mut is_code = false;
    let mut kept = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// The anchor that a heading has in a rendered page.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
    headings.map(|heading| anchor(heading.trim_start_matches('#'))).collect()
}

/// The targets of a document's links.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// A path without `..` in it.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part.as_os_str() == ".." {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

#[test]
fn every_link_between_documents_leads_to_a_file_and_a_heading() {
    let documents = documents();
    assert!(documents.len() > 10, "{:?}", documents.keys());
    let mut wrong = Vec::new();
    let mut followed = 0;
    for (path, text) in &documents {
        for link in links(text).filter(|link| !link.contains("://")) {
            followed += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let folder = path.parent().expect("a document lies in a folder");
            let target = if file.is_empty() { path.clone() } else { plain(&folder.join(file)) };
            let is_there = match documents.get(&target) {
                Some(text) => heading.is_empty() || anchors(text).contains(heading),
                None => target.exists(),
            };
            if !is_there {
                wrong.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(followed > 100, "{followed} links");
    assert!(wrong.is_empty(), "these lead nowhere: {wrong:#?}");
}

/// The messages that the troubleshooting page quotes: its code spans, each cut where `…` stands for anything.
fn quotations() -> Vec<Vec<String>> {
    let page = artefacts::repository().join("docs/guide/troubleshooting.md");
    let text = without_code_blocks(&std::fs::read_to_string(page).expect("there is a page"));
    let mut spans = Vec::new();
    for line in text.lines() {
        // A span that has a backtick in it stands between two.
        for (number, part) in line.split("``").enumerate() {
            if number % 2 == 1 {
                spans.push(part.trim().to_owned());
            } else {
                spans.extend(part.split('`').skip(1).step_by(2).map(str::to_owned));
            }
        }
    }
    let pieces = |span: String| span.split('…').map(str::trim).map(str::to_owned).collect();
    spans.into_iter().map(pieces).collect()
}

/// Whether all pieces of a quotation are in a text, in this order.
fn is_said(quotation: &[String], text: &str) -> bool {
    let mut rest = text;
    quotation.iter().all(|piece| match rest.split_once(piece.as_str()) {
        Some((_before, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// Fails unless the page has exactly one quotation with these words, and it is what was printed.
#[track_caller]
fn quotes(words: &str, printed: &str) {
    let with_words = |quotation: &Vec<String>| quotation.iter().any(|piece| piece.contains(words));
    let found: Vec<_> = quotations().into_iter().filter(with_words).collect();
    let [quotation] = found.as_slice() else {
        panic!("docs/guide/troubleshooting.md quotes {words:?} {} times: {found:?}", found.len());
    };
    assert!(
        is_said(quotation, printed),
        "docs/guide/troubleshooting.md quotes {:?}; printed is now:\n{printed}",
        quotation.join("…")
    );
}

/// The lines of a program that uses CUDA with the library and these variables.
fn refused(variables: &[(&str, &str)]) -> String {
    Bench::simulated().host("refused", &[]).loaded().set_all(variables).run().err
}

#[test]
fn messages_of_the_library_are_quoted_as_they_are_printed() {
    quotes("4Gigs", &refused(&[("GPU_MEM_LIMIT", "4Gigs")]));
    quotes("is not a share of a GPU", &refused(&[("GPU_CORE_PERCENT", "30%")]));
    quotes("has quotes around it", &refused(&[("GPU_MEM_LIMIT", "\"4GiB\"")]));
    let in_a_slice = |region: &str| refused(&[("GPU_MEM_LIMIT", "1g"), ("GPUSLICE_REGION", region)]);
    quotes("is not an absolute path", &in_a_slice("rel"));
    quotes("/nowhere/x", &in_a_slice("/nowhere/x"));
    let hides = refused(&[("GPU_MEM_LIMIT", "1g"), ("SIMGPU_PRIVATE_ENTRIES", "cuLaunchKernel")]);
    quotes("cuGetProcAddress gives", &hides);

    let bench = Bench::simulated();
    let in_a_file = |line: &str| {
        let file = bench.file("config", line).display().to_string();
        bench.host("refused", &[]).loaded().set("GPUSLICE_CONFIG", &file).run().err
    };
    quotes("/config:1: GPU_MEM_LIMT", &in_a_file("GPU_MEM_LIMT=2GiB\n"));

    let text = bench.file("text", "hello\n").display().to_string();
    quotes("a region begins with", &in_a_slice(&text));

    let small = Bench::simulated().with("SIMGPU_MEMORY", "16GiB").with("SIMGPU_CONTEXT_BYTES", "300MiB");
    let host = small.host("refused", &[]).limited("4096");
    quotes("a context on this device takes about", &host.run().err);
}

#[test]
fn messages_about_a_library_that_is_not_loaded_are_quoted_as_they_are_printed() {
    let host = Bench::simulated().host("refused", &[]).preload(Path::new("libgpuslice.so")).run();
    quotes("cannot be preloaded", &host.err);
    let doctor = |name: &str, value: &str| end(gpuslice(&["doctor"]).env(name, value)).out;
    quotes("has no libgpuslice.so in it", &doctor("GPU_MEM_LIMIT", "4GiB"));
    quotes("no part of gpuslice reads it", &doctor("GPU_MEM_LIMT", "4GiB"));
    quotes("and limits nothing", &refused(&[("GPU_MEM_LIMT", "4GiB")]));
    let run = |command: &[&str]| end(&mut gpuslice(&[&["run", "--mem", "1g", "--"], command].concat())).err;
    quotes("with an empty environment", &run(&["env", "-i", "true"]));
    quotes("not started, since it would be NOT LIMITED", &run(&["env", "-i", "true"]));
    let su = ["/bin/su", "/usr/bin/su"].into_iter().any(|path| Path::new(path).exists());
    if !su {
        skip("a program under su: su is not installed; to mend it: apt-get install util-linux");
    } else if is_root() {
        quotes("LD_PRELOAD is dropped on the way", &run(&["su", "nobody", "-s", "/bin/false"]));
    } else {
        // To an ordinary user `su` is first of all a program with more rights.
        quotes("runs with more rights than its caller", &run(&["su", "nobody"]));
    }
    let program = support::compiler::compile("holder.c", "holder_static", &["-static"]);
    match program.map(|program| program.display().to_string()) {
        Some(program) => quotes("is linked statically", &run(&[&program])),
        None => skip("a static program: cc cannot link one; to mend it: apt-get install libc6-dev"),
    }
}

#[test]
fn messages_about_slices_are_quoted_as_they_are_printed() {
    let unknown = end(&mut gpuslice(&["status", "train"])).err;
    quotes("there is no slice \"train\"", &unknown);

    let bench = Bench::simulated().with("SIMGPU_MEMORY", "16GiB");
    let holder = bench.host("holder", &["4096", "1"]).limited("4GiB").start();
    assert_eq!(holder.hear().as_deref(), Some("holds"));
    let newcomer = bench.host("refused", &[]).limited("8GiB").run();
    quotes("this process was started with a quota of", &newcomer.err);
    drop(holder);
}
