//! Examines a program that starts as `gpuslice run` starts it. The preload library must be the first of the libraries in it.

use super::asking::ProbeOutcome;
use super::elf::Elf;
use super::finding::Finding;
use super::probe::Preloaded;
use std::path::{Path, PathBuf};

/// A shared object in the program, other than the preload library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Other {
    /// The object's file.
    pub(super) path: PathBuf,
    /// Number of the object's exports whose names are those of functions of the driver or NVML.
    pub(super) driver_functions: usize,
    /// True if the object exports `dlsym`.
    pub(super) dlsym: bool,
    /// True if the object is a copy of the preload library.
    pub(super) ours: bool,
}

impl Other {
    /// Returns the other objects in the program that could conflict with the library. They export names of driver functions or
    /// `dlsym`, or are copies of gpuslice. The C library, the loader and the driver are left out.
    pub(super) fn all(objects: &[PathBuf], library: &Path) -> Vec<Self> {
        let mut others: Vec<Self> = objects
            .iter()
            .filter(|path| !is_same(path, library))
            .filter_map(|path| Self::look(path))
            .collect();
        others.retain(|other| other.driver_functions > 0 || other.dlsym || other.ours);
        others
    }

    fn look(path: &Path) -> Option<Self> {
        let elf = Elf::read(path).ok()??;
        let soname = elf.soname.as_deref().unwrap_or_default();
        // Preload libraries wrap these objects. None of these is a preload library.
        if ["libc.", "libdl.", "ld-", "libcuda.so", "libnvidia-ml.so"]
            .iter()
            .any(|name| soname.starts_with(name))
        {
            return None;
        }
        Some(Self {
            path: path.to_owned(),
            driver_functions: elf.intercepts(),
            dlsym: elf.exports.contains("dlsym"),
            ours: elf.label.is_some(),
        })
    }
}

/// Interposers by other authors, with the prefixes of their file names.
const KNOWN: [(&str, &str); 6] = [
    ("libvgpu", "HAMi-core"),
    ("libcuda-control", "vcuda (gpu-manager)"),
    ("libvgpu-control", "vgpu-manager"),
    ("libgemhook", "Gemini (KubeShare)"),
    ("libcudahook", "a hook of the driver"),
    ("libnvshare", "nvshare"),
];

/// Returns the findings about a program that the doctor started with the preload library.
pub(super) fn examine(library: &Path, asked: &ProbeOutcome<Preloaded>, others: &[Other]) -> Vec<Finding> {
    let (seen, said) = match asked {
        ProbeOutcome::Answer(seen, said) => (seen, said),
        ProbeOutcome::Hangs(step) => {
            return vec![Finding::error(
                "preload.active",
                format!("a program with the library preloaded does not come back from {step}"),
                "see what else is preloaded: LD_PRELOAD and /etc/ld.so.preload",
            )];
        }
        ProbeOutcome::Failed { how, said, .. } => {
            return vec![Finding::error(
                "preload.active",
                format!("a program with the library preloaded ends at once: {how} {}", first_line(said)),
                "mend what the loader names; see what else is preloaded: LD_PRELOAD and /etc/ld.so.preload",
            )];
        }
    };
    let mut findings = vec![active(library, seen, said)];
    findings.extend(complaints(said));
    findings.extend(others.iter().map(|other| conflict(other, seen)));
    findings
}

fn first_line(said: &str) -> &str {
    said.lines().next().unwrap_or_default()
}

fn active(library: &Path, seen: &Preloaded, said: &str) -> Finding {
    let path = library.display();
    if !seen.objects.iter().any(|object| is_same(object, library)) {
        let why = match (seen.secure, first_line(said)) {
            (true, _) => ", which has more rights than its caller (setuid or capabilities)".to_owned(),
            (false, "") => String::new(),
            (false, line) => format!(": {line}"),
        };
        return Finding::error(
            "preload.active",
            format!("the loader did not load {path} into a child{why}"),
            "mend what the loader names; a file system mounted noexec and another user's rights do that as well",
        );
    }
    match &seen.dlsym {
        Some(owner) if is_same(owner, library) => {
            Finding::ok("preload.active", format!("a child has {path} in it, and calls its dlsym"))
        }
        owner => Finding::error(
            "preload.active",
            format!(
                "a child has {path} in it, but calls the dlsym of {}",
                owner
                    .as_ref()
                    .map_or_else(|| "an unknown library".to_owned(), |owner| owner.display().to_string())
            ),
            "take the other library out of LD_PRELOAD and /etc/ld.so.preload, or put it behind libgpuslice.so",
        ),
    }
}

/// Returns the loader's message about an object that it could not preload.
pub(super) fn cannot_be_preloaded(said: &str) -> Option<&str> {
    let line = said.lines().find(|line| line.contains("cannot be preloaded"))?;
    Some(line.trim_start_matches("ERROR: ").trim())
}

fn complaints(said: &str) -> Option<Finding> {
    Some(Finding::warning(
        "preload.entries",
        cannot_be_preloaded(said)?,
        "take it out of LD_PRELOAD or /etc/ld.so.preload, or mend its path",
    ))
}

fn conflict(other: &Other, seen: &Preloaded) -> Finding {
    let path = other.path.display();
    let out = "take it out of LD_PRELOAD and of /etc/ld.so.preload: one library may limit the GPU";
    let file = other.path.file_name().unwrap_or_default().to_string_lossy();
    if other.ours {
        let what = format!("another copy of gpuslice is preloaded, {path}: memory would be charged twice");
        return Finding::error("preload.conflict", what, "preload one of them");
    }
    if other.driver_functions > 0 {
        let known = KNOWN.iter().find(|(start, _)| file.starts_with(start));
        let author = known.map_or_else(String::new, |(_, author)| format!(" of {author}"));
        let what = format!(
            "another interposer{author} is preloaded, {path} ({} functions of the driver): limits count twice or not at \
             all",
            other.driver_functions
        );
        return Finding::error("preload.conflict", what, out);
    }
    let is_before = seen.dlsym.as_ref().is_some_and(|owner| is_same(owner, &other.path));
    let what = format!("{path} exports a dlsym of its own");
    if is_before {
        Finding::error(
            "preload.conflict",
            format!("{what} and comes first: the library does not see the look-ups of programs"),
            out,
        )
    } else {
        Finding::warning(
            "preload.conflict",
            format!("{what}, behind ours: it does not see the look-ups of programs"),
            "keep it only if it is known to work with other libraries",
        )
    }
}

/// Returns true if two paths lead to the same file.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    one == other || one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// The lists of libraries that the loader preloads into programs started from here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PreloadLists {
    /// Value of `LD_PRELOAD`.
    pub(super) environment: Option<String>,
    /// Text of `/etc/ld.so.preload`.
    pub(super) file: Option<String>,
}

impl PreloadLists {
    /// Reads both lists.
    pub(super) fn look() -> Self {
        Self {
            environment: std::env::var_os("LD_PRELOAD").map(|text| text.to_string_lossy().into_owned()),
            file: std::fs::read_to_string("/etc/ld.so.preload").ok(),
        }
    }

    /// Returns the files that the lists name by a path.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let texts = [&self.environment, &self.file].into_iter().flatten();
        texts.flat_map(|text| words(text)).filter(|word| word.contains('/')).map(PathBuf::from).collect()
    }
}

/// Returns the entries of a list of libraries.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', ':', '\n', '\t']).filter(|word| !word.is_empty())
}

/// Returns a warning if a program of this system ignores `/etc/ld.so.preload`, because its loader is that of musl. `interpreter`
/// is the loader of the program at `path`.
pub(super) fn ignored(lists: &PreloadLists, path: &str, interpreter: Option<&str>) -> Option<Finding> {
    let loader = interpreter.filter(|loader| loader.contains("ld-musl"))?;
    let file: Vec<&str> = words(lists.file.as_deref()?).collect();
    let environment: Vec<&str> = lists.environment.iter().flat_map(|text| words(text)).collect();
    if file.iter().all(|entry| environment.contains(entry)) {
        return None;
    }
    Some(Finding::warning(
        "preload.musl",
        format!("{path} is loaded by {loader}: programs with musl ignore /etc/ld.so.preload"),
        format!("set LD_PRELOAD={} in the container's environment as well", file.join(":")),
    ))
}

/// Returns notes about the entries of `LD_PRELOAD` and `/etc/ld.so.preload` before `run` adds the
/// library. Neither list needs an entry.
pub(super) fn entries(lists: &PreloadLists) -> Vec<Finding> {
    let has_words = |text: &&String| words(text).next().is_some();
    let mut findings = Vec::new();
    if let Some(text) = lists.environment.as_ref().filter(has_words) {
        findings.push(Finding::note("preload.entries", format!("LD_PRELOAD is {text}"), ""));
    }
    if let Some(text) = lists.file.as_ref().filter(has_words) {
        let text = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        findings.push(Finding::note("preload.entries", format!("/etc/ld.so.preload names {text}"), ""));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn levels(objects: &[&str], dlsym: &str, said: &str, others: &[Other]) -> Vec<Level> {
        let seen = Preloaded {
            objects: objects.iter().map(PathBuf::from).collect(),
            dlsym: Some(dlsym.into()),
            secure: false,
        };
        let asked = ProbeOutcome::Answer(seen, said.to_owned());
        examine(Path::new("/l/ours.so"), &asked, others).iter().map(|finding| finding.level).collect()
    }

    fn other(driver_functions: usize) -> Other {
        Other { path: "/l/libvgpu.so".into(), driver_functions, dlsym: true, ours: false }
    }

    #[test]
    fn the_library_must_be_in_the_child_and_first() {
        assert_eq!(levels(&["/l/ours.so"], "/l/ours.so", "", &[]), [Level::Ok]);
        assert_eq!(levels(&["/l/x.so"], "/l/libc.so.6", "", &[]), [Level::Error]);
        assert_eq!(levels(&["/l/ours.so"], "/l/x.so", "", &[]), [Level::Error]);
        let said = "ERROR: ld.so: object 'nowhere.so' from LD_PRELOAD cannot be preloaded: ignored.";
        assert_eq!(levels(&["/l/ours.so"], "/l/ours.so", said, &[]), [Level::Ok, Level::Warning]);
    }

    #[test]
    fn a_library_that_musl_does_not_load_is_told_unless_the_variable_names_it_too() {
        let of = |environment: &str, file: &str, interpreter| {
            let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            let lists = PreloadLists { environment: text(environment), file: text(file) };
            ignored(&lists, "/bin/sh", interpreter).map(|finding| finding.mend.unwrap())
        };
        let musl = Some("/lib/ld-musl-x86_64.so.1");
        let mend = of("", "/l/a.so\n/l/b.so\n", musl).unwrap_or_default();
        assert!(mend.starts_with("set LD_PRELOAD=/l/a.so:/l/b.so "), "{mend}");
        assert_eq!(of("/l/x.so:/l/a.so", "/l/a.so", musl), None);
        assert_eq!(of("", "", musl), None);
        assert_eq!(of("", "/l/a.so", Some("/lib64/ld-linux-x86-64.so.2")), None);
        assert_eq!(of("", "/l/a.so", None), None);
    }

    #[test]
    fn another_interposer_is_an_error_and_another_dlsym_behind_ours_a_warning() {
        assert_eq!(levels(&["/l/ours.so"], "/l/ours.so", "", &[other(9)]), [Level::Ok, Level::Error]);
        assert_eq!(levels(&["/l/ours.so"], "/l/ours.so", "", &[other(0)]), [Level::Ok, Level::Warning]);
        let first = levels(&["/l/ours.so"], "/l/libvgpu.so", "", &[other(0)]);
        assert_eq!(first, [Level::Error, Level::Error]);
    }
}
