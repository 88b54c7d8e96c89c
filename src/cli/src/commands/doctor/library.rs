//! Examines the preload library: whether it exists, and whether it fits this machine and this command.

use super::elf::{Elf, Glibc, version_of};
use super::finding::Finding;
use gpuslice_region::layout;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The library that `gpuslice run` would preload, or a copy that is already preloaded.
#[derive(Debug)]
pub(super) struct Library {
    /// The library's path, or the reason why there is none.
    pub(super) path: Result<PathBuf, String>,
    /// True if `gpuslice run` does not find the library, because it is preloaded from another place.
    pub(super) elsewhere: bool,
    /// The library's ELF data; `None` if it is no ELF file.
    pub(super) elf: Option<Elf>,
    /// True if users outside of the owner and the group can reach the library and read it.
    pub(super) for_others: bool,
    /// The glibc of this machine; `None` if it has another C library.
    pub(super) glibc: Option<String>,
}

/// Functions that the library must export to catch calls. There is one for each way by which programs reach the driver.
const ENTRY_POINTS: [&str; 6] =
    ["dlsym", "dlvsym", "cuInit", "cuGetProcAddress_v2", "cuMemAlloc_v2", "nvmlDeviceGetMemoryInfo"];

impl Library {
    /// Reads the facts about the library at a path.
    pub(super) fn look(path: Result<PathBuf, String>) -> Self {
        let elf = path.as_deref().ok().and_then(|path| Elf::read(path).ok().flatten());
        let for_others = path.as_deref().is_ok_and(is_for_others);
        Self { path, elsewhere: false, elf, for_others, glibc: super::calls::glibc() }
    }

    /// Reads the facts about the installed library, or else about one of `preloaded`.
    pub(super) fn find(installed: Result<PathBuf, String>, preloaded: &[PathBuf]) -> Self {
        let is_library =
            |path: &&PathBuf| Elf::read(path).is_ok_and(|elf| elf.is_some_and(|elf| elf.label.is_some()));
        match (installed, preloaded.iter().find(is_library)) {
            (Err(_), Some(path)) => Self { elsewhere: true, ..Self::look(Ok(path.clone())) },
            (installed, _) => Self::look(installed),
        }
    }
}

/// Returns true if a user outside of the owner and the group can open a file.
fn is_for_others(path: &Path) -> bool {
    let has =
        |path: &Path, bits| path.metadata().is_ok_and(|found| found.permissions().mode() & bits == bits);
    has(path, 0o004) && path.ancestors().skip(1).all(|folder| has(folder, 0o001))
}

/// Returns the findings about the library and about the C library that it needs.
pub(super) fn examine(library: &Library) -> Vec<Finding> {
    let path = match &library.path {
        Ok(path) => path.display(),
        Err(why) => {
            let (what, mend) = why.split_once("; ").unwrap_or((why, "name it in GPUSLICE_LIB"));
            return vec![Finding::error("library.found", what, mend)];
        }
    };
    let again = "install it again, or name another one in GPUSLICE_LIB";
    let Some(elf) = &library.elf else {
        let what = format!("{path} is no shared object, or cannot be read");
        return vec![Finding::error("library.found", what, again)];
    };
    if let Some(foreign) = &elf.foreign {
        let what = format!("{path} is for another architecture ({foreign})");
        return vec![Finding::error(
            "library.found",
            what,
            "install the one for this machine's architecture",
        )];
    }
    let missing: Vec<&str> = ENTRY_POINTS.into_iter().filter(|name| !elf.exports.contains(*name)).collect();
    if !missing.is_empty() {
        let what = format!("{path} does not export {}: it would catch nothing", missing.join(", "));
        return vec![Finding::error("library.found", what, again)];
    }
    let what = format!("{path}, {} functions", elf.exports.len());
    let mut findings = vec![if library.elsewhere {
        Finding::note(
            "library.found",
            format!("{what}: it is preloaded, and `gpuslice run` does not find it"),
            "name it in GPUSLICE_LIB if programs are to be started with `gpuslice run`",
        )
    } else {
        Finding::ok("library.found", what)
    }];
    findings.push(version(elf));
    if !library.for_others {
        findings.push(Finding::warning(
            "library.rights",
            format!("{path} cannot be read by all users: programs of other users run without it, unlimited"),
            "chmod a+rX on it and on the folders above it, or put it below /usr/lib",
        ));
    }
    findings.push(c_library(elf, library.glibc.as_deref()));
    findings
}

/// Judges whether the library has the same version as this command.
fn version(elf: &Elf) -> Finding {
    let (own, region) = (env!("CARGO_PKG_VERSION"), layout::VERSION);
    let one = "install command and library of one version";
    match &elf.label {
        Some((version, found)) if *found != region => Finding::error(
            "library.version",
            format!(
                "the library is {version} and makes regions of version {found}; this command is {own} and reads \
                 version {region}"
            ),
            one,
        ),
        Some((version, _)) if version != own => Finding::warning(
            "library.version",
            format!("the library is {version}, this command is {own}"),
            one,
        ),
        Some((version, _)) => Finding::ok(
            "library.version",
            format!("library and command are {version}, regions of version {region}"),
        ),
        None => Finding::warning("library.version", "the library does not tell its version", one),
    }
}

/// Judges whether the loader can load the library with this machine's C library.
fn c_library(elf: &Elf, glibc: Option<&str>) -> Finding {
    let portable = "build the portable library with ci/dist.sh, on or for an older system";
    let needed =
        elf.glibc.map_or_else(|| "no version".to_owned(), |(major, minor)| format!("{major}.{minor}"));
    let Some(glibc) = glibc else {
        let strange =
            elf.needed.iter().find(|name| name.starts_with("libgcc_s") || name.starts_with("ld-linux"));
        return match strange {
            Some(name) => Finding::error(
                "library.c-library",
                format!("this C library is not glibc, and has no {name}, which the library needs"),
                portable,
            ),
            None => Finding::ok("library.c-library", "this C library is not glibc; the library is portable"),
        };
    };
    let present: Option<Glibc> = version_of(glibc);
    if elf.glibc > present {
        let what =
            format!("the library needs glibc {needed}, here is {glibc}: the loader would end every program");
        return Finding::error("library.c-library", what, portable);
    }
    Finding::ok("library.c-library", format!("glibc {glibc}; the library needs {needed}"))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn fine() -> Elf {
        let exports = ENTRY_POINTS.map(str::to_owned).into();
        let label = Some((env!("CARGO_PKG_VERSION").to_owned(), layout::VERSION));
        Elf { exports, label, glibc: Some((2, 31)), ..Elf::default() }
    }

    fn worst(elf: Elf, glibc: Option<&str>) -> (&'static str, Level) {
        let glibc = glibc.map(str::to_owned);
        let library = Library {
            path: Ok("/l/libgpuslice.so".into()),
            elsewhere: false,
            elf: Some(elf),
            for_others: true,
            glibc,
        };
        let findings = examine(&library);
        let worst = findings.iter().max_by_key(|finding| finding.level);
        worst.map(|finding| (finding.check, finding.level)).unwrap()
    }

    #[test]
    fn a_library_that_cannot_work_is_an_error() {
        assert_eq!(worst(fine(), Some("2.36")).1, Level::Ok);
        assert_eq!(worst(fine(), Some("2.4")), ("library.c-library", Level::Error));
        let needed = vec!["libgcc_s.so.1".to_owned()];
        assert_eq!(worst(Elf { needed, ..fine() }, None), ("library.c-library", Level::Error));
        assert_eq!(worst(fine(), None).1, Level::Ok);
        let foreign = Some("aarch64".to_owned());
        assert_eq!(worst(Elf { foreign, ..fine() }, Some("2.36")), ("library.found", Level::Error));
        assert_eq!(
            worst(Elf { exports: [].into(), ..fine() }, Some("2.36")),
            ("library.found", Level::Error)
        );
    }

    #[test]
    fn another_version_is_a_warning_and_another_region_an_error() {
        let of = |version: &str, region| Elf { label: Some((version.to_owned(), region)), ..fine() };
        assert_eq!(worst(of("0.0.1", layout::VERSION), Some("2.36")), ("library.version", Level::Warning));
        assert_eq!(worst(of("0.0.1", 3), Some("2.36")), ("library.version", Level::Error));
        assert_eq!(worst(Elf { label: None, ..fine() }, Some("2.36")), ("library.version", Level::Warning));
    }
}
