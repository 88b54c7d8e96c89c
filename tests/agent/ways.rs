//! Slices as devices of containers that files describe: pods of `podman kube play`, and services of Compose. The files are those
//! of `examples/container`.

use crate::MIB;
use crate::engines::{IMAGE, Kind};
use crate::places::{CONF, PRELOAD, Place, base, has_left};
use crate::support::command::{PROGRAM, ask};
use crate::support::{artefacts, skip};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The slices of the examples: name, quota in MiB, share.
const SLICES: [(&str, u64, u64); 2] = [("a", 256, 30), ("b", 512, 70)];

/// Folder of a container into which the GPU's device mounts the simulated driver.
const DRIVER: &str = "/driver";

/// Returns a place with a GPU and both slices as devices, if its engine runs containers.
fn with_slices(kind: Kind, what: &str) -> Option<Place> {
    base("here", what)?;
    let place = Place::make(kind, what)?;
    place.specify_gpu("exec sleep 600");
    let root = place.files.path().display().to_string();
    for (name, mebibytes, share) in SLICES {
        let words = ["cdi", name, "--mem", &format!("{mebibytes}MiB"), "--cores", &share.to_string()];
        ask(&[&words[..], &["--root", &root]].concat()).code(0);
    }
    Some(place)
}

/// Returns an object of an example.
fn example(name: &str) -> Value {
    let path = artefacts::repository().join("examples/container").join(name);
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).expect("it is YAML")
}

/// Writes an object into a file of the place. The file is JSON, which is valid YAML.
fn write(place: &Place, name: &str, object: &Value) -> String {
    let path = place.files.path().join(name);
    fs::write(&path, object.to_string()).unwrap();
    path.display().to_string()
}

/// Starts the containers of a pod.
fn play(place: &mut Place, pod: &mut Value) {
    for container in pod["spec"]["containers"].as_array_mut().unwrap() {
        assert_eq!(container["image"], "IMAGE");
        container["image"] = json!(format!("localhost/{IMAGE}"));
    }
    let file = write(place, "pod.yaml", pod);
    place.session.removes(&["pod", "rm", "--force", "--time=0", "--all"]);
    let words = ["kube", "play", "--network=none", &file].map(str::to_owned);
    let played = place.session.command(&words).run();
    assert_eq!(played.ended, "exit 0", "{played}");
}

/// Fails unless the two containers have the slices, with exactly their limits, and no program in them can lift the limits.
/// Programs find the driver in the folder `driver`.
#[track_caller]
fn are_the_slices(place: &Place, containers: [&str; 2], driver: &str) {
    let cleared = place.cleared(driver);
    let cleared: Vec<&str> = cleared.iter().map(String::as_str).collect();
    let mine = ["GPU_MEM_LIMIT=1GiB", "GPU_CORE_PERCENT=100", "GPUSLICE_CONFIG=/dev/null", "LD_PRELOAD="];
    let changed = [&cleared[..], &mine].concat();
    // Both programs hold memory at the same time, and a slice must not count the memory of the other one.
    let mut programs = containers.map(|name| place.witness(name, &[], &changed));
    for ((name, (slice, mebibytes, share)), program) in containers.into_iter().zip(SLICES).zip(&mut programs)
    {
        has_left(program, (mebibytes - 2) * MIB);
        let run = |words: &[&str]| place.run(name, &[], &[&cleared[..], words].concat());
        let told = run(&["gpuslice", "status", "--json", "/run/gpuslice/region/region"]);
        let status: Value = serde_json::from_str(&told.out).unwrap_or_else(|_| panic!("{told}"));
        let device = &status["slices"][0]["devices"][0];
        assert_eq!(device["limit"], mebibytes * MIB, "{status}");
        assert_eq!(device["time"]["share_permille"], share * 10, "{status}");
        for raise in [["--mem", "1GiB"], ["--cores", "100"]] {
            let words = [&["gpuslice", "set", "/run/gpuslice/region/region"], &raise[..]].concat();
            let raised = run(&words);
            assert_eq!(raised.ended, "exit 1", "{raised}");
            assert!(raised.err.contains("is above the limits of /run/gpuslice/conf/config"), "{raised}");
        }
        for file in [&format!("{CONF}/config"), PRELOAD] {
            let written = run(&["sh", "-c", &format!("echo >{file}")]);
            assert!(written.err.contains("Read-only file system"), "{slice}: {written}");
        }
        has_left(program, (mebibytes - 2) * MIB);
    }
}

#[test]
fn kube_play_gives_containers_the_slices_that_their_limits_name() {
    let what = "a pod with slices as devices";
    let kind = if plays_devices() { Kind::Podman } else { Kind::Podman5 };
    let Some(mut place) = with_slices(kind, what) else { return };
    play(&mut place, &mut example("pod.yaml"));
    are_the_slices(&place, ["share-a-gpu-train", "share-a-gpu-serve"], DRIVER);
}

/// Returns true if the installed Podman is 5.4 or newer.
fn plays_devices() -> bool {
    let asked = Command::new("podman").arg("--version").output();
    let said = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let numbers = said.trim().rsplit(' ').next().unwrap_or_default().split('.');
    let numbers: Vec<u32> = numbers.map_while(|number| number.parse().ok()).collect();
    numbers >= vec![5, 4]
}

#[test]
fn kube_play_of_an_old_podman_gives_containers_the_slices_that_they_mount() {
    let Some(mut place) = with_slices(Kind::Podman, "a pod with mounted slices") else { return };
    let mut pod = example("pod-before-5.4.yaml");
    let root = place.files.path().display().to_string();
    let driver = place.driver().display().to_string();
    let library = place.folder("lib").display().to_string();
    let spec = &mut pod["spec"];
    for volume in spec["volumes"].as_array_mut().unwrap() {
        let path = &mut volume["hostPath"]["path"];
        let real = path.as_str().unwrap();
        // The files of the node lie below another root, and this machine has no devices of NVIDIA.
        *path = json!(match real {
            "/usr/local/lib/gpuslice" => library.clone(),
            "/dev/nvidia0" | "/dev/nvidiactl" | "/dev/nvidia-uvm" => "/dev/null".to_owned(),
            _ => match real.strip_prefix("/usr/lib/x86_64-linux-gnu") {
                Some(name) => format!("{driver}{name}"),
                None => format!("{root}{real}"),
            },
        });
    }
    let usr = artefacts::repository().join("build/bases/here/usr");
    let python = place.python("exec sleep 600");
    let image: [(&str, PathBuf, &str); 7] = [
        ("bin", usr.join("bin"), "/usr/bin"),
        ("lib", usr.join("lib"), "/usr/lib"),
        ("lib64", usr.join("lib64"), "/usr/lib64"),
        ("python", python, "/usr/local/bin/python"),
        ("bench", place.bench.folder(), "/bench"),
        ("programs", crate::support::compiler::plain("witness").parent().unwrap().to_owned(), "/programs"),
        ("gpuslice", PathBuf::from(PROGRAM), "/usr/local/bin/gpuslice"),
    ];
    for (name, from, to) in &image {
        let volume = json!({ "name": name, "hostPath": { "path": from } });
        spec["volumes"].as_array_mut().unwrap().push(volume);
        for container in spec["containers"].as_array_mut().unwrap() {
            let mount = json!({ "name": name, "mountPath": to });
            container["volumeMounts"].as_array_mut().unwrap().push(mount);
        }
    }
    play(&mut place, &mut pod);
    let names = ["share-a-gpu-train", "share-a-gpu-serve"];
    are_the_slices(&place, names, "/usr/local/nvidia/lib64");
    for name in names {
        for device in ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"] {
            let tested = place.run(name, &[], &["test", "-c", device]);
            assert_eq!(tested.ended, "exit 0", "{device}: {tested}");
        }
    }
}

/// A program that reads files of Compose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Composer {
    /// `podman-compose`.
    Podman,
    /// Docker Compose, from `ci/docker.sh`.
    Docker,
}

/// Starts the services of an example, and checks that they have the slices.
fn composes(composer: Composer, name: &str) {
    let what = format!("services of {name}");
    let plugin = artefacts::repository().join("build/docker/usr/libexec/docker/cli-plugins/docker-compose");
    let (kind, program, how) = match composer {
        Composer::Podman => {
            (Kind::Podman, PathBuf::from("/usr/bin/podman-compose"), "apt-get install podman-compose")
        }
        Composer::Docker => (Kind::Docker, plugin, "ci/docker.sh"),
    };
    if !program.exists() {
        let program = program.file_name().unwrap().display();
        return skip(&format!("{what}: there is no {program}; to mend it: {how}"));
    }
    let Some(mut place) = with_slices(kind, &what) else { return };
    // Podman-compose makes a network, whose state is below /var/lib.
    let hidden = place.session.program(&["mount", "-t", "tmpfs", "tmpfs", "/var/lib"]).run();
    assert_eq!(hidden.ended, "exit 0", "{hidden}");
    let service = |name: &str| json!({ "image": IMAGE, "container_name": name });
    let mut changes = json!({ "services": { "train": service("train"), "serve": service("serve") } });
    if composer == Composer::Docker {
        // The daemon of Docker has no bridge here.
        for service in changes["services"].as_object_mut().unwrap().values_mut() {
            service["network_mode"] = json!("none");
        }
    }
    let changes = write(&place, "changes.yaml", &changes);
    let file = artefacts::repository().join("examples/container").join(name).display().to_string();
    let program = program.display().to_string();
    for container in ["train", "serve"] {
        place.session.removes(&["rm", "--force", container]);
    }
    let started = place.session.program(&[&program, "-f", &file, "-f", &changes, "up", "-d"]).run();
    assert_eq!(started.ended, "exit 0", "{started}");
    are_the_slices(&place, ["train", "serve"], DRIVER);
}

#[test]
fn podman_compose_gives_services_their_slices() {
    composes(Composer::Podman, "compose.yaml");
}

#[test]
fn docker_compose_gives_services_their_slices() {
    composes(Composer::Docker, "compose.yaml");
}

#[test]
fn docker_compose_gives_services_the_slices_that_they_reserve() {
    composes(Composer::Docker, "compose-before-2.30.yaml");
}
