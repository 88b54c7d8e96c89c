//! Finds out from `/proc/PID/mountinfo` whether this process can look at a path without waiting for another machine or program.
//!
//! A folder of a container may lie on NFS or FUSE. The server of NFS may be dead. The server of FUSE may be a program of the
//! container itself. A process that looks into the folder waits for the server's answer, possibly for ever.

/// File systems for which this kernel alone answers.
const LOCAL: [&str; 16] = [
    "aufs", "bcachefs", "btrfs", "devtmpfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs",
    "rootfs", "squashfs", "tmpfs", "xfs", "zfs",
];

/// Returns true if every mount on the way to an absolute path is of a local file system. Returns false if no mount is on the
/// way.
pub(crate) fn is_local(mountinfo: &str, path: &str) -> bool {
    let mut on_the_way = mountinfo.lines().filter_map(mount).filter(|(point, _)| leads_to(point, path));
    let mut is_any = false;
    let all = on_the_way.all(|(_, kind)| {
        is_any = true;
        LOCAL.contains(&kind)
    });
    is_any && all
}

/// Returns the folder that is mounted at a path, as its own file system names it. Returns none if no line has this mount point.
pub(crate) fn source_of<'a>(mountinfo: &'a str, path: &str) -> Option<&'a str> {
    let source = |line: &'a str| {
        let mut fields = line.split(' ').skip(3);
        let (source, point) = (fields.next()?, fields.next()?);
        (point == path).then_some(source)
    };
    // The last mount at a path hides the others.
    mountinfo.lines().filter_map(source).next_back()
}

/// Returns the mount point and the file system of a line.
fn mount(line: &str) -> Option<(&str, &str)> {
    let (place, source) = line.split_once(" - ")?;
    Some((place.split(' ').nth(4)?, source.split(' ').next()?))
}

fn leads_to(point: &str, path: &str) -> bool {
    let rest = path.strip_prefix(point.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: &str = "\
700 600 0:50 / / rw,relatime master:3 - overlay overlay rw,lowerdir=/a - b\n\
701 700 0:51 / /dev rw - tmpfs tmpfs rw\n\
702 701 0:52 / /dev/shm rw - tmpfs shm rw\n\
703 700 0:53 / /data rw - nfs4 server:/x rw\n\
704 700 0:53 / /run/gpuslice/region rw shared:1 master:2 - tmpfs tmpfs rw\n";

    #[test]
    fn folders_of_a_usual_container_are_local() {
        for path in ["/dev/shm", "/tmp", "/run/gpuslice/region", "/"] {
            assert!(is_local(USUAL, path), "{path}");
        }
        assert!(!is_local(USUAL, "/data/x"));
        assert!(is_local(&USUAL.replace("overlay overlay", "zfs pool/a"), "/run/gpuslice/region"));
    }

    #[test]
    fn the_list_of_mounts_names_the_folder_at_a_mount_point() {
        let point = "/run/gpuslice/region";
        let line = |source| format!("706 700 0:25 {source} {point} rw - tmpfs tmpfs rw\n");
        assert_eq!(source_of(USUAL, "/run/gpuslice"), None);
        assert_eq!(source_of(&line("/gpuslice/slots/a"), point), Some("/gpuslice/slots/a"));
        assert_eq!(source_of(&(line("/slots/a") + &line("/slots/b")), point), Some("/slots/b"));
    }

    #[test]
    fn a_folder_behind_a_server_is_not_local() {
        for kind in ["fuse.sshfs", "fuse", "nfs", "nfs4", "cifs", "9p", "autofs"] {
            for point in ["/", "/dev", "/dev/shm"] {
                let text = format!("{USUAL}705 700 0:60 / {point} rw - {kind} x rw\n");
                assert!(!is_local(&text, "/dev/shm"), "{kind} on {point}");
            }
            let text = format!("{USUAL}705 700 0:60 / /dev/shmem rw - {kind} x rw\n");
            assert!(is_local(&text, "/dev/shm"), "{kind} beside the way");
        }
    }

    #[test]
    fn a_path_of_which_nothing_is_known_is_not_local() {
        for text in ["", "700 600 0:50 / / rw overlay", "- - -"] {
            assert!(!is_local(text, "/tmp"), "{text:?}");
        }
    }
}
