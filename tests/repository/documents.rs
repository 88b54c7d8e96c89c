//! Tests the documents: links lead somewhere, and pages are reachable and short. The troubleshooting page quotes messages as they
//! are printed. The page of constants has the mechanisms and the values of the source.

use crate::dependencies::names::constant_of;
use crate::support::bench::Bench;
use crate::support::command::{end, gpuslice};
use crate::support::other_user::is_root;
use crate::support::repository::files_below;
use crate::support::{artefacts, compiler, skip};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Returns all documents of the repository, without their code blocks.
fn documents() -> BTreeMap<PathBuf, String> {
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a document is text");
        (path, without_code_blocks(&text))
    };
    files_below(&artefacts::repository(), Some("md")).into_iter().map(read).collect()
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

/// Returns the anchor of a heading in a rendered page.
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

/// Returns the targets of a document's links.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// Returns a path without `..` in it.
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

#[test]
fn every_page_is_reached_by_links_from_the_readme() {
    let documents = documents();
    let readme = artefacts::repository().join("README.md");
    let mut reached = BTreeSet::from([readme.clone()]);
    let mut open = vec![readme];
    while let Some(page) = open.pop() {
        let folder = page.parent().expect("a document lies in a folder");
        for link in links(&documents[&page]).filter(|link| !link.contains("://")) {
            let target = plain(&folder.join(link.split('#').next().unwrap_or_default()));
            if documents.contains_key(&target) && reached.insert(target.clone()) {
                open.push(target);
            }
        }
    }
    let docs = artefacts::repository().join("docs");
    let lost: Vec<_> =
        documents.keys().filter(|page| page.starts_with(&docs) && !reached.contains(*page)).collect();
    assert!(lost.is_empty(), "no page links to {lost:?}");
}

#[test]
fn pages_that_are_read_in_a_hurry_stay_short() {
    let documents = documents();
    let readme = std::fs::read_to_string(artefacts::repository().join("README.md")).unwrap();
    assert!(readme.lines().count() <= 150, "README.md has {} lines", readme.lines().count());
    let failures = artefacts::repository().join("docs/reference/failures");
    let mut cells = 0;
    for (page, text) in documents.iter().filter(|(page, _)| page.starts_with(&failures)) {
        for cell in text.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split(" | ")) {
            cells += 1;
            let words = cell.split_whitespace().count();
            assert!(words <= 45, "{}: {words} words in {cell}; put them below the table", page.display());
        }
    }
    assert!(cells > 300, "{cells} cells");
}

#[test]
fn the_page_of_containers_shows_the_files_of_the_examples() {
    let read = |path: &str| std::fs::read_to_string(artefacts::repository().join(path)).unwrap();
    let page = read("docs/guide/containers.md");
    for name in ["compose.yaml", "pod.yaml"] {
        let text = read(&format!("examples/container/{name}"));
        let lines = text.lines().skip_while(|line| line.starts_with('#'));
        let shown: String = lines.map(|line| format!("{line}\n")).collect();
        assert!(
            page.contains(&format!("```\n{shown}```\n")),
            "docs/guide/containers.md does not show {name}:\n{shown}"
        );
    }
}

/// Returns the messages that the troubleshooting page quotes: its code spans, each cut where `…` stands for any text.
fn quotations() -> Vec<Vec<String>> {
    let page = artefacts::repository().join("docs/guide/troubleshooting.md");
    let text = without_code_blocks(&std::fs::read_to_string(page).expect("there is a page"));
    let mut spans = Vec::new();
    for line in text.lines() {
        // A span with a backtick in it stands between double backticks.
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

/// Returns true if all pieces of a quotation are in a text, in this order.
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

/// Fails unless the page has exactly one quotation with `words`, and that quotation matches the printed text.
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

/// Returns the standard error of a program that uses CUDA with the library and these variables.
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
    let other = bench.file("other", "gpuslice\x63\0\0\0").display().to_string();
    quotes("this library reads version", &in_a_slice(&other));

    let small = Bench::simulated().with("SIMGPU_MEMORY", "16GiB");
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
        // `su` has more rights than an ordinary user, so the message is another one.
        quotes("runs with more rights than its caller", &run(&["su", "nobody"]));
    }
    let program = compiler::compile("holder.c", "holder_static", &["-static"]);
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

#[test]
fn the_walkthrough_names_functions_that_are_where_it_says() {
    let read = |path: &str| std::fs::read_to_string(artefacts::repository().join(path));
    let text = read("docs/internals/walkthrough.md").expect("the page can be read");
    let hops: Vec<(&str, &str)> = text.split('`').filter_map(|quoted| quoted.split_once(".rs: ")).collect();
    assert!(hops.len() > 15, "{hops:?}");
    for (file, name) in hops {
        let source = read(&format!("{file}.rs")).unwrap_or_else(|error| panic!("{file}.rs: {error}"));
        // The name is that of a function, or of a row of the table of symbols.
        let forms = [format!("fn {name}("), format!("fn {name}<"), format!(" {name} @"), format!(" {name}(")];
        assert!(forms.iter().any(|form| source.contains(form)), "{file}.rs has no {name}");
    }
}

/// Folders with constants of the compute side.
const COMPUTE: [&str; 3] = ["src/policy/src/compute", "src/policy/src/arbiter", "src/shim/src/compute"];

/// Files of other folders with constants of the compute side.
const OF_COMPUTE: [&str; 15] = [
    "src/agent/src/cotenants/contexts.rs",
    "src/agent/src/cotenants/mod.rs",
    "src/agent/src/cotenants/relay.rs",
    "src/region/src/handle/cotenant.rs",
    "src/region/src/handle/region.rs",
    "src/region/src/handle/region_time.rs",
    "src/region/src/interval_locks/library.rs",
    "src/region/src/interval_locks/mod.rs",
    "src/region/src/sync/futex.rs",
    "src/shim/src/driver_calls/events.rs",
    "src/shim/src/driver_calls/nvml/initialization.rs",
    "src/shim/src/os/clock.rs",
    "src/shim/src/os/thread.rs",
    "src/shim/src/slice/ceiling.rs",
    "src/shim/src/slice/other_slices.rs",
];

/// Returns all source files below some folders of the repository.
fn sources(folders: &[&str]) -> Vec<PathBuf> {
    folders.iter().flat_map(|folder| files_below(&artefacts::repository().join(folder), Some("rs"))).collect()
}

/// Returns the source files of the compute side.
fn compute_files() -> Vec<PathBuf> {
    let others = OF_COMPUTE.map(|file| artefacts::repository().join(file));
    sources(&COMPUTE).into_iter().chain(others).collect()
}

/// The types of times.
const TIMES: [&str; 3] = ["Duration", "GpuTime", "WallTime"];

/// Returns a number of the source, in nanoseconds if it is a time, or `None` for an expression.
fn number(value: &str) -> Option<u64> {
    let of = |value: &str| value.replace('_', "").parse::<u64>().ok();
    let time =
        TIMES.iter().find_map(|kind| value.strip_prefix(kind)?.strip_prefix("::from_")?.split_once('('));
    let Some((unit, number)) = time else { return of(value) };
    let units = [("secs", 1_000_000_000), ("millis", 1_000_000), ("micros", 1_000), ("nanos", 1)];
    let factor = BTreeMap::from(units);
    Some(of(number.strip_suffix(')')?)? * factor.get(unit)?)
}

/// Returns a value of the page: a number, or a number with a unit of time.
fn shown(value: &str) -> Option<u64> {
    let (digits, unit) = value.split_once(' ').unwrap_or((value, ""));
    let factor = BTreeMap::from([("", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)]);
    // The page has two decimal places at most.
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let thousandths = format!("{whole}{part:0<3}").parse::<u64>().ok()?;
    Some(thousandths * factor.get(unit)? / 1_000)
}

/// Returns the numeric constants of a file, without those of its tests and those that name states.
fn constants(path: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(path).expect("source is text");
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let text = text.split("#[cfg(test)]\n#[allow").next().unwrap_or_default();
    // The clone itself may lie in a folder of any name.
    let is_of_shim = path.starts_with(artefacts::repository().join("src/shim"));
    // A module in a folder has the folder's name.
    let named = if path.ends_with("mod.rs") { path.parent() } else { Some(path) };
    let file = named.and_then(Path::file_stem).unwrap_or_default().to_string_lossy().into_owned();
    let kinds: &[&str] =
        if is_of_shim { &["u64", "u32", "usize"] } else { &["u64", "u32", "u16", "u8", "i64", "usize"] };
    let constant = |line: &str| {
        let (_, rest) = line.split_once("const ").filter(|(before, _)| {
            before.trim().is_empty() || before.trim() == "pub" || before.trim().starts_with("pub(")
        })?;
        let (name, rest) = rest.split_once(": ")?;
        let (kind, value) = rest.split_once(" = ")?;
        let is_told = kinds.contains(&kind) || TIMES.contains(&kind);
        is_told.then(|| (format!("{file}::{name}"), value.trim_end_matches(';').to_owned()))
    };
    text.lines().filter_map(constant).collect()
}

/// Returns the rows of the page of constants: name, value, and the source of the value.
fn rows() -> Vec<[String; 3]> {
    let page = artefacts::repository().join("docs/internals/constants.md");
    let page = std::fs::read_to_string(page).expect("the page can be read");
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect();
        let [name, value, _, source] = cells[..] else { return None };
        let name = name.strip_prefix('`')?.strip_suffix('`')?;
        Some([name, value, source].map(str::to_owned))
    };
    page.lines().filter_map(row).collect()
}

#[test]
fn the_page_of_constants_has_each_constant_of_the_compute_side_with_its_value() {
    let mut wrong = Vec::new();
    let found: Vec<(String, String)> = compute_files().iter().flat_map(|file| constants(file)).collect();
    assert!(found.len() > 100, "{} constants", found.len());
    let rows = rows();
    for (name, value) in &found {
        let Some([_, told, _]) = rows.iter().find(|[told, ..]| told == name) else {
            wrong.push(format!("{name} = {value} has no row"));
            continue;
        };
        let is_same = match number(value) {
            Some(value) => shown(told) == Some(value),
            None => *told == format!("`{value}`"),
        };
        if !is_same {
            wrong.push(format!("{name} is {value}, and the page says {told}"));
        }
    }
    for [name, _, source] in &rows {
        if !found.iter().any(|(known, _)| known == name) {
            wrong.push(format!("{name} is no constant"));
        }
        if !matches!(source.as_str(), "measured" | "derived" | "guessed") {
            wrong.push(format!("{name} has the source {source}"));
        }
    }
    let names: BTreeSet<&String> = rows.iter().map(|[name, ..]| name).collect();
    assert_eq!((names.len(), wrong), (rows.len(), Vec::new()));
}

/// Folders whose files each are part of a mechanism, or decide nothing about GPU time.
const OF_MECHANISMS: [&str; 2] = ["src/policy/src/compute", "src/policy/src/arbiter"];

/// Returns the texts of all files with tests that documents name.
fn tests() -> Vec<String> {
    let read = |file: &PathBuf| std::fs::read_to_string(file).expect("source is text");
    let folders = ["src/agent", "src/kubernetes", "src/policy", "src/slices", "tests"];
    sources(&folders).iter().map(read).collect()
}

/// Returns true if a function of this name is in one of the texts.
fn is_function(name: &str, texts: &[String]) -> bool {
    texts.iter().any(|text| text.contains(&format!("fn {name}(")))
}

#[test]
fn the_page_of_mechanisms_has_each_file_that_decides_about_gpu_time_and_tests_that_are_there() {
    let page = artefacts::repository().join("docs/internals/constants.md");
    let text = std::fs::read_to_string(&page).expect("the page can be read");
    let (text, _) = text.split_once("\n## Constants").expect("the page has two parts");
    let (mechanisms, _) = text.split_once("\n### Parts that decide nothing").expect("the first part has two");
    let rows: Vec<&str> =
        mechanisms.lines().filter(|line| line.starts_with("| ") && line.contains("](")).collect();
    assert!(
        rows.len() > 20 && mechanisms.contains(&format!("**{} mechanisms**", rows.len())),
        "{} rows",
        rows.len()
    );

    let folder = page.parent().expect("a page lies in a folder");
    let named: BTreeSet<PathBuf> = links(text).map(|link| plain(&folder.join(link))).collect();
    let is_part = |path: &PathBuf| !path.ends_with("mod.rs");
    let files: Vec<PathBuf> = sources(&OF_MECHANISMS).into_iter().filter(is_part).collect();
    assert!(files.len() > 20, "{files:?}");
    let missing: Vec<_> = files.iter().filter(|file| !named.contains(*file)).collect();
    assert!(
        missing.is_empty(),
        "docs/internals/constants.md says of none of these what it decides: {missing:#?}"
    );

    let tests = tests();
    let mut wrong = Vec::new();
    for row in rows {
        let shown_by = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
        let names: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
        if names.is_empty() || !names.iter().all(|name| is_function(name, &tests)) {
            wrong.push(row);
        }
    }
    assert!(wrong.is_empty(), "no test has the name that these give: {wrong:#?}");
}

#[test]
fn the_page_of_constants_tells_their_number() {
    let page = artefacts::repository().join("docs/internals/constants.md");
    let text = std::fs::read_to_string(&page).expect("the page can be read");
    let files = sources(&[OF_MECHANISMS[0], OF_MECHANISMS[1], "src/shim/src/compute"]);
    let read = |file: &PathBuf| std::fs::read_to_string(file).expect("source is text");
    let is_counted = |line: &&str| {
        constant_of(line.trim_start())
            .is_some_and(|name| name.starts_with(|first: char| first.is_ascii_uppercase()))
    };
    let number: usize = files.iter().map(|file| read(file).lines().filter(is_counted).count()).sum();
    assert!(
        text.contains(&format!("The compute side has {number} lines that declare a `const`")),
        "{number}"
    );
}

/// Fails unless a test has each name of a test in a text of `page`, and there are more than `least` names.
#[track_caller]
fn names_tests(page: &str, text: &str, least: usize) {
    let is_name = |word: &&str| {
        word.matches('_').count() > 3
            && word.chars().all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    let names: BTreeSet<&str> =
        text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).filter(is_name).collect();
    assert!(names.len() > least, "{names:?}");
    let tests = tests();
    let missing: Vec<_> = names.iter().filter(|name| !is_function(name, &tests)).collect();
    assert!(missing.is_empty(), "{page} names tests that are not there: {missing:?}");
}

#[test]
fn tests_of_claims_about_the_driver_are_there() {
    let page = "docs/measurements/README.md";
    let text = std::fs::read_to_string(artefacts::repository().join(page)).expect("the page can be read");
    names_tests(page, &text, 8);
}

#[test]
fn tests_of_traps_of_other_projects_are_there() {
    let page = "docs/development/testing.md";
    let text = std::fs::read_to_string(artefacts::repository().join(page)).expect("the page can be read");
    let (_, traps) = text.split_once("\n### Traps of other projects\n").expect("the page has the table");
    let (traps, _) = traps.split_once("\n## ").expect("the page goes on");
    names_tests(page, traps, 16);
}

#[test]
fn values_of_constants_are_read_with_their_units() {
    assert_eq!(
        ["0.25 ms", "60 s", "50 us", "1.5 s", "64"].map(shown).map(Option::unwrap),
        [250_000, 60_000_000_000, 50_000, 1_500_000_000, 64]
    );
    assert_eq!(shown("`MOST`"), None);
    assert_eq!((number("1_000"), number("Duration::from_millis(2)")), (Some(1_000), Some(2_000_000)));
    let times = ["GpuTime::from_micros(200)", "WallTime::from_nanos(166_666_667)"];
    assert_eq!(times.map(number), [Some(200_000), Some(166_666_667)]);
    assert_eq!(number("ONE / 50"), None);
}
