//! Limits of an operator hold in containers of Podman and Docker, whatever the programs in them do.
//!
//! Each test runs with each engine that runs here.

use crate::MIB;
use crate::places::{CONF, LIBRARY, PRELOAD, Place, QUOTA, REGION, base, has, has_left, keep, places};
use crate::support::command::ask;
use crate::support::{artefacts, freshness, skip};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// Replaces a quota of 100 MiB in the region by one of 1 GiB, as any process of the slice can. Prints how often.
const WRITE: &str = "open F, '+<', $ARGV[0] or die $!; binmode F; read F, my $all, -s F; my ($at, $count) = (0, 0); \
                     while (($at = index $all, pack('Q<', 100 << 20), $at) >= 0) { \
                     seek F, $at, 0; print F pack('Q<', 1 << 30); $at += 8; $count++ } close F; print $count";

#[test]
fn a_tenant_lowers_its_limits_and_raises_none() {
    for mut place in places("limits that a tenant sets") {
        let parts = place.whole();
        place.keep("one", &parts);
        let mut program = place.witness("one", &[], &[]);
        let set = |size: &str| {
            place.run("one", &[], &["gpuslice", "set", "/run/gpuslice/region/region", "--mem", size])
        };
        let raised = set("1GiB");
        assert_eq!(raised.ended, "exit 1", "{raised}");
        assert!(raised.err.contains("is above the limits of /run/gpuslice/conf/config: "), "{raised}");
        has_left(&mut program, QUOTA - MIB);
        let lowered = set("100MiB");
        assert_eq!(lowered.ended, "exit 0", "{lowered}");
        has_left(&mut program, 99 * MIB);
        let written = place.run("one", &[], &["perl", "-e", WRITE, "/run/gpuslice/region/region"]);
        assert!(written.ended == "exit 0" && written.out != "0", "{written}");
        has_left(&mut program, QUOTA - MIB);
        let (_, said) = program.end();
        assert!(said.contains("limits above those of /run/gpuslice/conf/config were set back"), "{said}");
    }
}

#[test]
fn the_environment_of_a_program_changes_no_limit_and_no_slice() {
    for mut place in places("an environment that a tenant sets") {
        let parts = place.whole().option(&["-e", "GPU_MEM_LIMIT=1GiB"]);
        place.keep("one", &parts);
        keep(&mut place.witness("one", &[], &[]), 100 * MIB);
        let mut first = place.witness("one", &[], &[]);
        keep(&mut first, 100 * MIB);
        let left = QUOTA - 102 * MIB;
        let mine = ["-e", "GPUSLICE_REGION=/bench/mine"];
        let mut other = place.witness("one", &mine, &[]);
        has_left(&mut other, left);
        let (_, said) = other.end();
        assert!(
            said.contains("GPUSLICE_REGION=\"/bench/mine\" has no effect beside /run/gpuslice/conf/config"),
            "{said}"
        );
        assert!(!place.bench.folder().join("mine").exists());
        // The simulated GPU needs its variables.
        let cleared = ["env", "-i", "LD_LIBRARY_PATH=/driver", "SIMGPU_STATE=/bench/state"];
        has_left(&mut place.witness("one", &[], &cleared), left);
        let unset = ["env", "-u", "GPU_MEM_LIMIT", "LD_PRELOAD=", "GPUSLICE_CONFIG=/dev/null"];
        has_left(&mut place.witness("one", &[], &unset), left);
    }
}

#[test]
fn all_users_and_namespaces_of_a_container_are_one_slice() {
    for mut place in places("users and namespaces of a container") {
        // The usual profile of Docker forbids new namespaces.
        let parts = place.whole().option(&["--security-opt", "seccomp=unconfined"]);
        place.keep("one", &parts);
        place.keep("two", &parts.without(REGION));
        let unshare = ["unshare", "--user", "--map-root-user", "--mount"];
        let tried = place.run("one", &["-u", "1001"], &[&unshare[..], &["true"]].concat());
        let may_unshare = tried.ended == "exit 0";
        if !may_unshare {
            let (kind, said) = (place.session.kind, tried.err.trim());
            skip(&format!(
                "unshare in a container of {kind:?}: {said}; elsewhere: where users may make namespaces"
            ));
        }
        for name in ["one", "two"] {
            let mut first = place.witness(name, &[], &[]);
            keep(&mut first, 100 * MIB);
            let left = QUOTA - 102 * MIB;
            for user in ["1001", "1002"] {
                has_left(&mut place.witness(name, &["-u", user], &[]), left);
            }
            if may_unshare {
                let mine = [&unshare[..], &["env", "GPUSLICE_REGION=/bench/mine"]].concat();
                has_left(&mut place.witness(name, &["-u", "1001"], &mine), left);
            }
        }
    }
}

#[test]
fn two_containers_with_one_region_share_its_quota() {
    for mut place in places("two containers with one region") {
        place.set(&format!("GPU_MEM_LIMIT={QUOTA}\nGPUSLICE_REGION=/pod/region\n"));
        let parts = place.whole().without(REGION).with(&place.folder("region"), "/pod", "rw");
        place.keep("one", &parts);
        place.keep("two", &parts.option(&["--user", "1001"]));
        let mut first = place.witness("one", &[], &[]);
        keep(&mut first, 100 * MIB);
        let mut second = place.witness("two", &[], &[]);
        has_left(&mut second, QUOTA - 102 * MIB);
        keep(&mut second, 100 * MIB);
        has_left(&mut first, QUOTA - 204 * MIB);
        second.end();
        has_left(&mut first, QUOTA - 102 * MIB);
    }
}

#[test]
fn a_second_copy_of_the_library_charges_nothing_and_says_so_once() {
    for mut place in places("two copies of the library") {
        let parts = place.whole().with(&artefacts::library(), "/opt/libgpuslice.so", "ro");
        place.keep("one", &parts.option(&["-e", "LD_PRELOAD=/opt/libgpuslice.so"]));
        let mut program = place.witness("one", &[], &[]);
        keep(&mut program, 200 * MIB);
        has_left(&mut program, QUOTA - 202 * MIB);
        assert_eq!(place.bench.truth_at_rest(0).living(), 202 * MIB);
        let used = place.run("one", &["-e", "LD_PRELOAD="], &["gpuslice", "status"]);
        assert!(used.out.contains("202.00 MiB used, limit 256MiB"), "{used}");
        let (_, said) = program.end();
        assert_eq!(said.matches("is a second copy").count(), 1, "{said}");
    }
}

#[test]
fn files_of_other_users_and_of_ended_programs_deny_no_program() {
    for mut place in places("files under the names of regions") {
        // Each user has a slice, because there is no operator's file.
        let parts = place.whole().without(REGION).without(CONF);
        place.keep("one", &parts.option(&["-e", "GPU_MEM_LIMIT=256MiB"]));
        let plant = |last: u32| {
            let script = format!(
                "name=/dev/shm/gpuslice-0-$(stat -Lc %i /proc/self/ns/mnt); echo x >$name; \
                 for number in $(seq 2 {last}); do echo x >$name-$number; done"
            );
            let planted = place.run("one", &["-u", "100000"], &["sh", "-ec", &script]);
            assert_eq!(planted.ended, "exit 0", "{planted}");
        };
        plant(3);
        let mut program = place.witness("one", &[], &[]);
        keep(&mut program, 100 * MIB);
        has_left(&mut place.witness("one", &[], &[]), QUOTA - 102 * MIB);
        // The region that an ended program leaves has its whole quota again.
        for _ in 0..2 {
            let mut other = place.witness("one", &["-u", "1001"], &[]);
            keep(&mut other, 200 * MIB);
            other.end();
        }
        program.end();
        let removed = place.run("one", &[], &["sh", "-c", "rm /dev/shm/gpuslice-0-*"]);
        assert_eq!(removed.ended, "exit 0", "{removed}");
        plant(16);
        let said = place.refused("one", &[]);
        assert!(said.contains("belongs to user 100000, but must belong to user 0"), "{said}");
        assert!(said.contains("let user 100000 or root remove it"), "{said}");
        all_users_have_one_region(&mut place);
    }
}

/// The same in a container with an operator's file, in which all users have one region.
fn all_users_have_one_region(place: &mut Place) {
    let parts = place.whole().without(REGION);
    place.keep("two", &parts);
    let at = |user: &str, script: &str| {
        let script = format!("name=/dev/shm/gpuslice-all-$(stat -c %d-%i {CONF}); {script}");
        let ran = place.run("two", &["-u", user], &["sh", "-ec", &script]);
        assert_eq!(ran.ended, "exit 0", "{ran}");
        ran.out
    };
    at("100000", "umask 077; echo x >$name");
    // The user may neither read nor remove that file. Root may, but the slice is under the second name by then.
    let mut first = place.witness("two", &["-u", "1001"], &[]);
    keep(&mut first, 100 * MIB);
    at("0", "rm $name");
    let mut second = place.witness("two", &["-u", "1002"], &[]);
    has_left(&mut second, QUOTA - 102 * MIB);
    at("100000", "echo x >$name");
    let mut third = place.witness("two", &[], &[]);
    has_left(&mut third, QUOTA - 104 * MIB);
    let second_name = at("0", "echo -n $name-2");
    for command in ["status", "list"] {
        let told = place.run("two", &[], &["gpuslice", command]);
        assert!(told.out.contains(names_slice(&second_name)), "{second_name}: {told}");
    }
    has(&place.doctor("two", &[]), "region.own", "note", &format!("3 processes live in {second_name}"));
    at("0", "gpuslice set $name-2 --mem 200MiB");
    has_left(&mut third, (200 - 104) * MIB);
    // A program that overwrites the region gives the slice no second one.
    at("1001", "echo x >$name-2");
    let said = place.refused("two", &["-u", "1002"]);
    assert!(said.contains(&format!("{second_name}: ")) && said.contains("begins with"), "{said}");
    [first, second, third].into_iter().for_each(|program| drop(program.end()));
    has_left(&mut place.witness("two", &["-u", "1002"], &[]), QUOTA - 2 * MIB);
    at("0", "rm $name*");
    at("100000", "echo x >$name; for number in $(seq 2 16); do echo x >$name-$number; done");
    let said = place.refused("two", &["-u", "1001"]);
    assert!(said.contains("the right to read and write it, which user 100000 or root can, or"), "{said}");
    has_left(&mut place.witness("two", &[], &[]), QUOTA - 2 * MIB);
}

/// Returns the name of the slice with a region of all users.
fn names_slice(region: &str) -> &str {
    region.strip_prefix("/dev/shm/gpuslice-all-").unwrap()
}

#[test]
fn the_doctor_of_a_container_names_what_it_lacks() {
    for mut place in places("doctor in containers") {
        // The library is elsewhere, and each user has a slice with a policy that sees no other slice.
        fs::write(place.files.path().join("elsewhere"), "/opt/libgpuslice.so\n").unwrap();
        let parts = place.bare("here").with(&artefacts::library(), "/opt/libgpuslice.so", "ro");
        let parts = parts.with(&place.files.path().join("elsewhere"), PRELOAD, "ro");
        place.keep("one", &parts.option(&["-e", "GPU_MEM_LIMIT=256MiB", "-e", "GPU_CORE_POLICY=equal"]));
        let told = place.doctor("one", &[]);
        has(&told, "library.found", "note", "/opt/libgpuslice.so, ");
        has(&told, "region.sight", "warning", "GPU_CORE_POLICY=equal has no effect between containers");
        let _user = place.witness("one", &["-u", "1001"], &[]);
        let told = place.doctor("one", &[]);
        has(
            &told,
            "region.users",
            "warning",
            "users 1001 of this container have slices beside that of user 0",
        );
        // With all files of an operator, the doctor finds none of these faults.
        let parts = place.whole();
        place.keep("two", &parts);
        let _user = place.witness("two", &["-u", "1001"], &[]);
        let told = place.doctor("two", &[]);
        has(&told, "library.found", "ok", LIBRARY);
        has(&told, "preload.inherited", "ok", LIBRARY);
        let checks: Vec<_> =
            told["findings"].as_array().unwrap().iter().map(|found| &found["check"]).collect();
        assert!(checks.iter().all(|check| *check != "region.sight" && *check != "region.users"), "{told}");
    }
}

#[test]
fn an_operators_file_that_a_user_cannot_read_is_told_to_all() {
    for mut place in places("an operator's file of mode 0600") {
        let parts = place.whole();
        place.keep("one", &parts);
        fs::set_permissions(place.folder("conf").join("config"), Permissions::from_mode(0o600)).unwrap();
        has_left(&mut place.witness("one", &[], &[]), QUOTA - MIB);
        let said = place.refused("one", &["-u", "1001"]);
        assert!(said.contains("/run/gpuslice/conf/config cannot be read (Permission denied"), "{said}");
        let told = place.doctor("one", &[]);
        has(&told, "settings.rights", "warning", "/run/gpuslice/conf/config has mode 0600");
        has(
            &place.doctor("one", &["-u", "1001"]),
            "settings.malformed",
            "error",
            "/run/gpuslice/conf/config cannot be read",
        );
    }
}

#[test]
fn two_containers_have_the_slices_of_their_devices() {
    for mut place in places("slices of gpuslice cdi") {
        let root = place.files.path().display().to_string();
        for (name, size, share) in [("one", "256MiB", "30"), ("two", "512MiB", "70")] {
            ask(&["cdi", name, "--mem", size, "--cores", share, "--root", &root]).code(0);
            let parts = place.bare("here").option(&["--device", &format!("gpuslice.dev/slice={name}")]);
            place.keep(name, &parts);
        }
        let [mut a, mut b] = ["one", "two"].map(|name| place.witness(name, &[], &[]));
        keep(&mut a, 100 * MIB);
        keep(&mut b, 100 * MIB);
        has_left(&mut a, 155 * MIB);
        has_left(&mut b, 411 * MIB);
        for (name, limit, share) in [("one", 256 * MIB, 300), ("two", 512 * MIB, 700)] {
            let told = place.run(name, &[], &["gpuslice", "status", "--json"]);
            let status: Value = serde_json::from_str(&told.out).unwrap_or_else(|_| panic!("{told}"));
            let device = &status["slices"][0]["devices"][0];
            assert_eq!(device["limit"], limit, "{status}");
            assert_eq!(device["time"]["share_permille"], share, "{status}");
        }
    }
}

/// Compiles a C file for the C library of Debian 11.
fn for_debian_11(source: &str, to: &Path, flags: &[&str]) {
    let tree = artefacts::repository().join("build/debian11");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-idirafter", "/usr/include", "-idirafter", "/usr/include/x86_64-linux-gnu"]);
    cc.arg(format!("--sysroot={}", tree.display()))
        .arg(format!("-L{}", artefacts::target().join("portable/link").display()));
    cc.arg(format!("-B{}", tree.join("usr/lib/x86_64-linux-gnu").display()));
    cc.arg(artefacts::repository().join(source)).arg("-o").arg(to).args(flags).args(["-ldl", "-lpthread"]);
    assert!(cc.status().unwrap().success(), "{cc:?}");
}

#[test]
fn the_portable_library_limits_programs_in_an_image_with_an_older_c_library() {
    let what = "an image of Debian 11";
    let portable = artefacts::target().join("portable");
    let library = portable.join("libgpuslice.so");
    let sources = portable.join("release/libgpuslice.d");
    if let Some(why) = freshness::staleness(&library, &sources, &artefacts::repository()) {
        return skip(&format!(
            "{what}: {}; to mend it: ci/dist.sh",
            why.trim_end_matches(": run ci/stage.sh")
        ));
    }
    if base("debian11", what).is_none() {
        return;
    }
    for mut place in places(what) {
        let programs = place.folder("programs");
        for_debian_11("tests/programs/everywhere.c", &programs.join("everywhere"), &["-fPIE", "-pie"]);
        let flags = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1,-Bsymbolic"];
        for_debian_11("tests/bench/null_driver.c", &place.folder("null").join("libcuda.so.1"), &flags);
        let parts = place.bare("debian11").with(&programs, "/programs", "ro");
        let parts =
            parts.with(&place.folder("null"), "/driver", "ro").with(&place.folder("conf"), CONF, "ro");
        let parts = parts.with(&portable.join("gpuslice"), "/usr/local/bin/gpuslice", "ro");
        let parts = parts.with(&library, "/usr/local/lib/gpuslice/libgpuslice.so", "ro").with(
            &place.files.path().join("any"),
            PRELOAD,
            "ro",
        );
        fs::write(place.files.path().join("any"), "/usr/local/lib/gpuslice/libgpuslice.so\n").unwrap();
        place.keep("one", &parts);
        let outcome = place.run("one", &[], &["/programs/everywhere", &QUOTA.to_string()]);
        outcome
            .contains(&["here: four pieces 0 0 0 0, one more 2", "child: four pieces 0 0 0 0, one more 2"]);
        has(&place.doctor("one", &[]), "library.c-library", "ok", "glibc 2.31");
    }
}
