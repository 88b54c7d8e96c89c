//! Tests that `gpuslice cdi` makes the files that a container needs to be a slice.

use crate::support::cdi::{checked, inject};
use crate::support::command::{Ended, PROGRAM, end, gpuslice};
use crate::support::{artefacts, skip_without_rights};
use gpuslice_policy::config::{Config, FileRead, OperatorFiles};
use gpuslice_region::{Member, Trust};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

fn cdi(root: &Path, arguments: &[&str]) -> Ended {
    end(gpuslice(&["cdi"]).args(arguments).arg("--root").arg(root))
}

#[test]
fn a_slice_is_made_whose_files_the_library_takes() {
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    let limits = [
        "a",
        "--mem",
        "4GiB",
        "--cores",
        "12.5",
        "--policy",
        "equal",
        "--weight",
        "300",
        "--priority",
        "high",
    ];
    cdi(root.path(), &limits).code(0).says("--device gpuslice.dev/slice=a");
    let spec: Value =
        serde_json::from_slice(&fs::read(root.path().join("var/run/cdi/gpuslice-a.json")).unwrap()).unwrap();
    let edits = &spec["devices"][0]["containerEdits"];
    let host = |container: &str| {
        let mounts = edits["mounts"].as_array().unwrap();
        let mount = mounts.iter().find(|mount| mount["containerPath"] == container).expect("it is mounted");
        Path::new(mount["hostPath"].as_str().unwrap()).to_owned()
    };
    let library = fs::read(host("/usr/local/lib/gpuslice/libgpuslice.so")).unwrap();
    assert_eq!(library, fs::read(artefacts::library()).unwrap());
    assert_eq!(
        fs::read_to_string(host("/etc/ld.so.preload")).unwrap(),
        "/usr/local/lib/gpuslice/libgpuslice.so\n"
    );
    let text = fs::read(host("/run/gpuslice/conf").join("config")).unwrap();
    let files = OperatorFiles { named: FileRead::Absent, fixed: FileRead::Contents(&text) };
    let config = Config::from_sources(&|_| None, &files).expect("the library takes it");
    assert_eq!(config.region.as_deref(), Some(Path::new("/run/gpuslice/region/region")));
    assert_eq!(
        (config.core_weight.get(), config.cores.values().next().map(|share| share.get())),
        (300, Some(125))
    );
    assert!(Member::join(&host("/run/gpuslice/region").join("region"), Trust::AnyOwner, &[]).is_ok());
    for item in edits["env"].as_array().unwrap() {
        let (key, value) = item.as_str().unwrap().split_once('=').unwrap();
        let is_file = key == "GPUSLICE_CONFIG" && value == "/run/gpuslice/conf/config";
        assert!(is_file || String::from_utf8_lossy(&text).contains(&format!("{key}={value}\n")), "{item}");
    }
}

#[test]
fn a_public_implementation_takes_the_specification_and_a_container_gets_the_slice_by_it() {
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    cdi(root.path(), &["a", "--mem", "4GiB", "--cores", "30"]).code(0);
    cdi(root.path(), &["0b", "--mem", "8GiB"]).code(0);
    let folder = root.path().join("var/run/cdi");
    assert_eq!(checked(&folder.join("gpuslice-a.json")), ["gpuslice.dev/slice=a"]);
    assert_eq!(checked(&folder.join("gpuslice-0b.json")), ["gpuslice.dev/slice=0b"]);
    let container = inject(&folder, "gpuslice.dev/slice=a", &["PATH=/usr/bin"]).unwrap();
    let expected = BTreeMap::from([
        ("PATH", "/usr/bin"),
        ("GPUSLICE_CONFIG", "/run/gpuslice/conf/config"),
        ("GPUSLICE_REGION", "/run/gpuslice/region/region"),
        ("GPU_MEM_LIMIT", "4GiB"),
        ("GPU_CORE_PERCENT", "30"),
    ]);
    assert_eq!(container.variables(), expected);
    let mounts = container.mounts();
    let of_slice: Vec<_> = mounts.iter().filter(|(path, _)| **path != "/data").collect();
    for (path, (source, options)) in &of_slice {
        assert!(source.starts_with(root.path()) && source.exists(), "{path}: {}", source.display());
        let access = if **path == "/run/gpuslice/region" { "rw" } else { "ro" };
        let has = |option| options.contains(&option);
        assert!(has(access) && has("bind") && has("nosuid") && has("nodev"), "{path}: {options:?}");
    }
    let paths: Vec<&str> = mounts.keys().copied().collect();
    let library = "/usr/local/lib/gpuslice/libgpuslice.so";
    assert_eq!(paths, ["/data", "/etc/ld.so.preload", "/run/gpuslice/conf", "/run/gpuslice/region", library]);
    // The edits of a slice add no device node, hook or group, because another CDI device brings the GPU.
    assert_eq!(container.rest(), BTreeMap::from([("ociVersion", &Value::from("1.0.2"))]));
    let absent = inject(&folder, "gpuslice.dev/slice=c", &[]).unwrap_err();
    assert!(absent.contains("gpuslice.dev/slice=c"), "{absent}");
}

#[test]
fn print_shows_the_file_that_would_be_made_and_makes_none() {
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    let printed = cdi(root.path(), &["a", "--mem", "4GiB", "--print"]).code(0).out;
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    let folder = root.path().join("cdi").display().to_string();
    cdi(root.path(), &["a", "--mem", "4GiB", "--dir", &folder]).code(0);
    assert_eq!(fs::read_to_string(root.path().join("cdi/gpuslice-a.json")).unwrap(), printed);
}

#[test]
fn a_slice_of_the_agent_and_a_malformed_limit_are_refused() {
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    cdi(root.path(), &["a"]).code(2);
    cdi(root.path(), &["-a", "--mem", "4GiB"]).code(2);
    cdi(root.path(), &["a b", "--mem", "4GiB"]).code(2).complains("letter or digit");
    cdi(root.path(), &["a", "--mem", "4Gigs"]).code(2).complains("4GiB");
    fs::create_dir_all(root.path().join("var/lib/gpuslice/slots/a")).unwrap();
    fs::write(root.path().join("var/lib/gpuslice/slots/a/slice.json"), "{}").unwrap();
    cdi(root.path(), &["a", "--mem", "4GiB"]).code(1).complains("gpuslice-agent's");
    for name in ["slot-3", "claim-0b2f"] {
        cdi(root.path(), &[name, "--mem", "4GiB"]).code(1).complains("the kubelet's slots and claims");
    }
}

#[test]
fn limits_are_written_again_and_the_region_stays() {
    use std::os::unix::fs::MetadataExt as _;
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    let region = root.path().join("run/gpuslice/slots/a/region");
    let config = root.path().join("var/lib/gpuslice/slots/a/conf/config");
    cdi(root.path(), &["a", "--mem", "4GiB"]).code(0);
    let before = fs::metadata(&region).unwrap().ino();
    cdi(root.path(), &["a", "--mem", "8GiB"]).code(0);
    assert_eq!(fs::metadata(&region).unwrap().ino(), before);
    assert!(fs::read_to_string(&config).unwrap().contains("GPU_MEM_LIMIT=8GiB\n"));
    fs::remove_file(&region).unwrap();
    cdi(root.path(), &["a", "--mem", "8GiB"]).code(1).complains("was removed");
}

#[test]
fn a_limit_that_is_left_out_stays() {
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    let config = root.path().join("var/lib/gpuslice/slots/a/conf/config");
    cdi(root.path(), &["a", "--mem", "4GiB", "--cores", "30", "--priority", "low"]).code(0);
    let by_hand = fs::read_to_string(&config).unwrap() + "GPU_MEM_OVERSUBSCRIBE=1\n";
    fs::write(&config, by_hand).unwrap();
    let printed = cdi(root.path(), &["a", "--cores", "50", "--print"]).code(0).out;
    cdi(root.path(), &["a", "--cores", "50"]).code(0);
    let text = fs::read_to_string(&config).unwrap();
    let settings: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        settings,
        [
            "GPU_CORE_PERCENT=50",
            "GPU_MEM_LIMIT=4GiB",
            "GPU_PRIORITY=low",
            "GPU_MEM_OVERSUBSCRIBE=1",
            "GPUSLICE_REGION=/run/gpuslice/region/region"
        ]
    );
    let spec = fs::read_to_string(root.path().join("var/run/cdi/gpuslice-a.json")).unwrap();
    assert_eq!(spec, printed);
    assert!(spec.contains("\"GPU_MEM_LIMIT=4GiB\"") && spec.contains("\"GPU_CORE_PERCENT=50\""), "{spec}");
    // A quota and a share of 100 % limit nothing. The file still has both settings.
    cdi(root.path(), &["a", "--mem", "100%", "--cores", "100"]).code(0);
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains("GPU_MEM_LIMIT=100%\n") && text.contains("GPU_CORE_PERCENT=100\n"), "{text}");
}

#[test]
fn a_file_of_limits_that_is_damaged_is_told_and_stays() {
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    let config = root.path().join("var/lib/gpuslice/slots/a/conf/config");
    cdi(root.path(), &["a", "--mem", "4GiB"]).code(0);
    let damaged = "GPU_MEM_LIMT=4GiB\n";
    fs::write(&config, damaged).unwrap();
    cdi(root.path(), &["a", "--cores", "50"])
        .code(1)
        .complains("conf/config:1: GPU_MEM_LIMT=\"4GiB\" is not a setting")
        .complains("mend the line, or remove the file");
    assert_eq!(fs::read_to_string(&config).unwrap(), damaged);
}

#[test]
fn files_are_readable_in_containers_whatever_the_umask() {
    use std::os::unix::fs::PermissionsExt as _;
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    let program = env!("CARGO_BIN_EXE_gpuslice");
    let made = Command::new("sh")
        .args(["-c", "umask 077; exec \"$@\"", "sh", program, "cdi", "a", "--mem", "4GiB", "--root"])
        .arg(root.path())
        .env("GPUSLICE_LIB", artefacts::library())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let state = root.path().join("var/lib/gpuslice");
    let library = fs::read_dir(state.join("lib")).unwrap().next().unwrap().unwrap().path();
    for (path, mode) in [
        (state.join("slots/a/conf"), 0o755),
        (state.join("slots/a/conf/config"), 0o644),
        (library, 0o755),
        (root.path().join("run/gpuslice/slots/a"), 0o755),
        (root.path().join("run/gpuslice/slots/a/region"), 0o666),
        (root.path().join("var/run/cdi/gpuslice-a.json"), 0o644),
    ] {
        let found = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{}: {found:o}", path.display());
    }
}

/// Mounts the slices below `$1` as those of the host, and hides the regions of other tests. `$0` is `gpuslice`.
const AS_HOST: &str = r#"
    mount --bind "$1/run" /run && mount --bind "$1/var/lib" /var/lib && mount -t tmpfs none /dev/shm || exit 77
    "$0" remove --all-unused >/dev/null || exit 1
    "$0" doctor | grep "left of a slice"
    for slice in a agents slot-0; do "$0" remove --force $slice 2>&1 && exit 1; done
    "$0" cdi a --mem 8GiB >/dev/null && ls /run/gpuslice/slots/*/region
    rm -r /var/lib/gpuslice/slots/agents && "$0" remove --all-unused | grep -x "removed agents"
"#;

#[test]
fn the_region_of_a_slice_that_containers_are_given_is_not_removed() {
    use std::os::unix::fs::MetadataExt as _;
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    for name in ["a", "agents", "other"] {
        cdi(root.path(), &[name, "--mem", "4GiB"]).code(0);
    }
    // The agent's slices have the same files, and one more if they are of its configuration.
    let [slots, regions] =
        ["var/lib/gpuslice/slots", "run/gpuslice/slots"].map(|path| root.path().join(path));
    fs::write(slots.join("agents/slice.json"), "{}").unwrap();
    fs::rename(slots.join("other"), slots.join("slot-0")).unwrap();
    fs::rename(regions.join("other"), regions.join("slot-0")).unwrap();
    let region = |name: &str| regions.join(name).join("region");
    // In each slice, the only member has left.
    for name in ["a", "agents", "slot-0"] {
        Member::join(&region(name), Trust::AnyOwner, &[]).unwrap().0.leave();
    }
    let before = fs::metadata(region("a")).unwrap().ino();
    let words = ["--mount", "--propagation", "private", "sh", "-c", AS_HOST, PROGRAM];
    let told =
        end(Command::new("unshare").args(words).arg(root.path()).env("GPUSLICE_LIB", artefacts::library()));
    if told.status.code() == Some(77) || told.err.contains("unshare:") {
        return skip_without_rights("removal of slices of the host");
    }
    let refusal = |name: &str, way: &str| {
        format!("gpuslice: a container may have the region of the slice {name}; {way}\n")
    };
    let expected = [
        refusal(
            "a",
            "once none has, remove the slice with: rm -r /var/run/cdi/gpuslice-a.json /run/gpuslice/slots/a \
             /var/lib/gpuslice/slots/a",
        ),
        refusal("agents", "take it out of /etc/gpuslice/agent.toml, and send the agent SIGHUP"),
        refusal("slot-0", "gpuslice-agent removes it with the slice"),
        ["a", "agents", "slot-0"].map(|name| format!("/run/gpuslice/slots/{name}/region\n")).concat(),
        // The files of this slice are gone, so no container can have it.
        "removed agents\n".to_owned(),
    ];
    assert_eq!(told.out, expected.concat(), "{told:?}");
    assert_eq!(fs::metadata(region("a")).unwrap().ino(), before);
}
