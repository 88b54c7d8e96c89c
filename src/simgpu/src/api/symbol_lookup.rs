//! Finds the function that `cuGetProcAddress` returns for a name.

use std::collections::HashMap;
use std::sync::OnceLock;

use gpuslice_driver::Symbol;
use gpuslice_driver::table::{ALL, Api};

/// One form of a function, such as its second version.
#[derive(Debug, Clone, Copy)]
struct Form {
    since: u32,
    symbol: Symbol,
    per_thread: bool,
}

/// Result of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LookupResult {
    /// The function of this symbol.
    Symbol(Symbol),
    /// No function has this base name.
    Unknown,
    /// The function is newer than the requested version.
    TooOld,
    /// The flags are invalid.
    BadFlags,
}

/// Returns the name without the suffixes of its forms, and true if the form uses the per-thread default stream.
fn base_name(name: &str) -> (&str, bool) {
    let plain = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds"));
    let rest = plain.unwrap_or(name);
    let base = match rest.rsplit_once("_v") {
        Some((base, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => rest,
    };
    (base, plain.is_some())
}

/// Returns the forms of all functions, by base name.
fn forms() -> &'static HashMap<&'static str, Vec<Form>> {
    static FORMS: OnceLock<HashMap<&'static str, Vec<Form>>> = OnceLock::new();
    FORMS.get_or_init(|| {
        let mut forms: HashMap<_, Vec<Form>> = HashMap::new();
        for symbol in ALL.iter().copied().filter(|symbol| symbol.api() == Api::Cuda) {
            let Some(since) = symbol.row().since else { continue };
            let (base, per_thread) = base_name(symbol.name());
            forms.entry(base).or_default().push(Form { since, symbol, per_thread });
        }
        forms
    })
}

/// Looks up a base name. `own` is the driver's own version, and `version` the requested one.
pub(crate) fn find(name: &[u8], version: i32, flags: u64, own: u32) -> LookupResult {
    if flags > 3 {
        return LookupResult::BadFlags;
    }
    let known = core::str::from_utf8(name).ok().and_then(|name| forms().get(name));
    let there = |form: &&Form| form.since <= own;
    let Some(known) = known.filter(|known| known.iter().any(|form| there(&form))) else {
        return LookupResult::Unknown;
    };
    let per_thread = flags >= 2 && known.iter().filter(there).any(|form| form.per_thread);
    // A negative version counts as a very large one.
    let version = u32::try_from(version).unwrap_or(u32::MAX);
    let fitting =
        known.iter().filter(there).filter(|form| form.per_thread == per_thread && form.since <= version);
    fitting
        .max_by_key(|form| form.since)
        .map_or(LookupResult::TooOld, |form| LookupResult::Symbol(form.symbol))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str, version: i32, flags: u64) -> LookupResult {
        find(name.as_bytes(), version, flags, 13_000)
    }

    #[test]
    fn the_version_picks_the_form() {
        for (version, symbol) in [
            (2000, Symbol::cuCtxCreate),
            (3020, Symbol::cuCtxCreate_v2),
            (11_040, Symbol::cuCtxCreate_v3),
            (12_050, Symbol::cuCtxCreate_v4),
            (-1, Symbol::cuCtxCreate_v4),
        ] {
            assert_eq!(at("cuCtxCreate", version, 0), LookupResult::Symbol(symbol), "{version}");
        }
        assert_eq!(at("cuCtxCreate", 1999, 0), LookupResult::TooOld);
        assert_eq!(at("cuCtxCreate_v2", 13_000, 0), LookupResult::Unknown);
        assert_eq!(at("", 0, 0), LookupResult::Unknown);
    }

    #[test]
    fn a_symbol_newer_than_the_driver_does_not_exist() {
        assert_eq!(find(b"cuCtxCreate", 13_041, 0, 12_040), LookupResult::Symbol(Symbol::cuCtxCreate_v3));
        assert_eq!(
            find(b"cuGetProcAddress", 13_041, 0, 11_040),
            LookupResult::Symbol(Symbol::cuGetProcAddress)
        );
        assert_eq!(find(b"cuMemGetDefaultMemPool", 13_041, 0, 12_040), LookupResult::Unknown);
    }

    #[test]
    fn the_per_thread_flag_picks_the_per_thread_form_where_there_is_one() {
        assert_eq!(at("cuLaunchKernel", 13_000, 2), LookupResult::Symbol(Symbol::cuLaunchKernel_ptsz));
        assert_eq!(at("cuMemcpyHtoD", 13_000, 3), LookupResult::Symbol(Symbol::cuMemcpyHtoD_v2_ptds));
        assert_eq!(at("cuLaunchKernel", 6000, 2), LookupResult::TooOld);
        assert_eq!(at("cuMemAlloc", 13_000, 2), LookupResult::Symbol(Symbol::cuMemAlloc_v2));
        assert_eq!(at("cuMemAlloc", 13_000, 4), LookupResult::BadFlags);
    }
}
