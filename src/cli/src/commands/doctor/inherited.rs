//! Examines programs that users start from here without `gpuslice run`. Reports whether the environment preloads the library.

use super::asking::ProbeOutcome;
use super::elf::Elf;
use super::finding::Finding;
use super::preload::{cannot_be_preloaded, is_same};
use super::probe::Preloaded;
use std::path::{Path, PathBuf};

/// Name of the check.
const INHERITED_CHECK: &str = "preload.inherited";

/// Returns the preload library among a program's objects: the installed library, or else another copy.
pub(super) fn ours<'a>(objects: &'a [PathBuf], library: Option<&Path>) -> Option<&'a Path> {
    let is_copy = |path: &Path| matches!(Elf::read(path), Ok(Some(elf)) if elf.label.is_some());
    let installed = objects.iter().find(|path| library.is_some_and(|library| is_same(path, library)));
    installed.or_else(|| objects.iter().find(|path| is_copy(path))).map(PathBuf::as_path)
}

/// Returns the finding about a program that starts with the present environment, which sets a limit. `ours` is the preload
/// library in that program, `preloaded` the value of `LD_PRELOAD`, and `library` the installed library.
pub(super) fn examine(
    asked: &ProbeOutcome<Preloaded>,
    ours: Option<&Path>,
    preloaded: Option<&str>,
    library: Option<&Path>,
) -> Finding {
    let (seen, said) = match asked {
        ProbeOutcome::Answer(seen, said) => (seen, said),
        ProbeOutcome::Hangs(step) => return fails(&format!("does not come back from {step}")),
        ProbeOutcome::Failed { how, said, .. } => {
            return fails(&format!("ends at once: {how} {}", said.lines().next().unwrap_or_default()));
        }
    };
    let Some(ours) = ours else { return missing(said, preloaded, library) };
    let path = ours.display();
    match &seen.dlsym {
        Some(owner) if is_same(owner, ours) => {
            Finding::ok(INHERITED_CHECK, format!("a program that is started from here has {path} in it"))
        }
        _ => Finding::error(
            INHERITED_CHECK,
            format!(
                "a program that is started from here has {path} in it, but calls another library's dlsym"
            ),
            "name libgpuslice.so first, or start the program with `gpuslice run`",
        ),
    }
}

fn fails(how: &str) -> Finding {
    Finding::error(
        INHERITED_CHECK,
        format!("a program that is started from here {how}"),
        "see what is preloaded: LD_PRELOAD and /etc/ld.so.preload",
    )
}

fn missing(said: &str, preloaded: Option<&str>, library: Option<&Path>) -> Finding {
    let complaint = cannot_be_preloaded(said);
    let why = match (complaint, preloaded) {
        (Some(line), _) => line.to_owned(),
        (None, Some(text)) => format!("LD_PRELOAD is {text}"),
        (None, None) => "LD_PRELOAD is not set".to_owned(),
    };
    // The remedy leaves out an entry that the loader refuses.
    let kept = if preloaded.is_some() && complaint.is_none() { ":$LD_PRELOAD" } else { "" };
    let library = library.map_or_else(|| "/path/of/libgpuslice.so".into(), Path::to_string_lossy);
    Finding::error(
        INHERITED_CHECK,
        format!(
            "a limit is set, and a program that is started from here has no libgpuslice.so in it and no limit: {why}"
        ),
        format!(
            "export LD_PRELOAD={library}{kept}; or name that in /etc/ld.so.preload; or start the program with `gpuslice run`"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    const OURS: &str = "/l/libgpuslice.so";

    fn of(dlsym: &str, said: &str, ours: Option<&str>, preloaded: Option<&str>) -> Finding {
        let seen = Preloaded { dlsym: Some(dlsym.into()), ..Preloaded::default() };
        let asked = ProbeOutcome::Answer(seen, said.to_owned());
        examine(&asked, ours.map(Path::new), preloaded, Some(Path::new(OURS)))
    }

    #[test]
    fn the_library_must_be_in_a_program_and_first() {
        assert_eq!(of(OURS, "", Some(OURS), Some(OURS)).level, Level::Ok);
        assert_eq!(of("/l/other.so", "", Some(OURS), Some(OURS)).level, Level::Error);
        assert_eq!(of("/l/libc.so.6", "", None, None).level, Level::Error);
        let hangs = examine(&ProbeOutcome::Hangs("starting".to_owned()), None, None, None);
        assert_eq!(hangs.level, Level::Error);
    }

    #[test]
    fn the_mend_keeps_libraries_that_can_be_preloaded_and_no_others() {
        let mend = |said: &str, preloaded| of("", said, None, preloaded).mend.unwrap_or_default();
        let begins = |mend: String, line: &str| assert!(mend.starts_with(line), "{mend}");
        begins(mend("", None), "export LD_PRELOAD=/l/libgpuslice.so; ");
        begins(mend("", Some("libm.so.6")), "export LD_PRELOAD=/l/libgpuslice.so:$LD_PRELOAD; ");
        let said = "ERROR: ld.so: object '/no.so' from LD_PRELOAD cannot be preloaded: ignored.";
        begins(mend(said, Some("/no.so")), "export LD_PRELOAD=/l/libgpuslice.so; ");
    }
}
