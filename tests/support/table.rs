//! The table of driver symbols, in the form that hosts read.

use gpuslice_driver::{Api, table};
use std::collections::BTreeSet;

/// Returns every exported name of the table, one a line.
pub(crate) fn exports() -> String {
    lines(table::ALL.iter().map(|symbol| symbol.name().to_owned()))
}

/// Returns names to ask `cuGetProcAddress` for: known ones, unknown ones, and the empty name.
pub(crate) fn questions() -> String {
    let strange =
        ["", "cu", "cuSubgridCreate", "cuNoSuchFunction", "curl_easy_init", "cudaMalloc", "dlsym", "malloc"];
    let mut names: BTreeSet<String> = strange.into_iter().map(str::to_owned).collect();
    for symbol in table::ALL {
        names.insert(symbol.name().to_owned());
        names.insert(base(symbol.name()).to_owned());
    }
    lines(names.into_iter())
}

/// Returns versions to ask `cuGetProcAddress` for, in rising order. They are each version at which a row of the table begins, its
/// neighbours, and some that no driver has.
pub(crate) fn versions() -> String {
    let odd = [-1, 0, 1, 13041, 99999, i32::MAX];
    let mut versions: BTreeSet<i32> = odd.into_iter().collect();
    for since in table::ALL.iter().filter_map(|symbol| symbol.row().since) {
        let since = i32::try_from(since).expect("versions are small");
        versions.extend([since - 1, since, since + 1]);
    }
    lines(versions.into_iter().map(|version| version.to_string()))
}

/// Returns the exported names of one API.
pub(crate) fn names(api: Api) -> BTreeSet<&'static str> {
    table::ALL.iter().filter(|symbol| symbol.api() == api).map(|symbol| symbol.name()).collect()
}

/// Returns a name without the suffixes that tell its variants apart.
fn base(name: &str) -> &str {
    let name = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((base, digits)) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            base
        }
        _ => name,
    }
}

fn lines(words: impl Iterator<Item = String>) -> String {
    words.fold(String::new(), |text, word| text + &word + "\n")
}
