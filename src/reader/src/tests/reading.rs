//! Tests of the answers of each function.

use crate::boundary::Plain as _;
use crate::figures::{DeviceFigures, ProcessFigures};
use crate::status::Status;
use crate::{
    Slice, gpuslice_close, gpuslice_device_count, gpuslice_epoch, gpuslice_list, gpuslice_name,
    gpuslice_open, gpuslice_path, gpuslice_process_count, gpuslice_read_device, gpuslice_read_processes,
    gpuslice_reap,
};
use core::ffi::{CStr, c_char, c_int};
use core::mem::{MaybeUninit, size_of};
use core::ptr;
use gpuslice_policy::compute::attribution::source::{Measured, Source, Why};
use gpuslice_policy::config::{CorePolicy, Priority};
use gpuslice_policy::time::{GpuTime, WallTime};
use gpuslice_region::layout::{FIGURES, VERSION};
use gpuslice_region::{Device, DeviceRequest, Limits, Member, Sharing, Trust, Uuid};
use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const UUID: Uuid = Uuid([7; 16]);
const TOTAL: u64 = 1 << 40;
const LIMIT: u64 = 1000;

fn join(path: &Path, limits: Limits) -> (Member, Device) {
    let request = DeviceRequest { uuid: UUID, total: TOTAL, limits };
    let (member, _) = Member::join(path, Trust::OwnerOnly, &[request]).unwrap();
    let device = member.device(&UUID).unwrap();
    (member, device)
}

fn limits() -> Limits {
    let sharing = Sharing { policy: CorePolicy::BestEffort, priority: Priority::Low, weight: 7 };
    Limits {
        memory: Some(LIMIT),
        cores_permille: 250,
        burst: GpuTime::from_nanos(9),
        sharing,
        oversubscribe: true,
    }
}

/// A slice in a folder of its own, with one member.
struct Bench {
    folder: tempfile::TempDir,
    member: Member,
    device: Device,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let (member, device) = join(&folder.path().join("region"), limits());
        Self { folder, member, device }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("region")
    }

    fn open(&self) -> Handle {
        Handle::open(&self.path()).unwrap()
    }
}

/// An open handle. Its drop closes it.
struct Handle(*mut Slice);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and only `self` has it.
        unsafe { gpuslice_close(self.0) };
    }
}

impl Handle {
    fn open(slice: &Path) -> Result<Self, c_int> {
        let text = CString::new(slice.as_os_str().as_bytes()).unwrap();
        let mut opened = ptr::dangling_mut();
        // SAFETY: `text` ends with a zero, and `opened` has room for a pointer.
        match unsafe { gpuslice_open(text.as_ptr(), &raw mut opened) } {
            Status::OK => Ok(Self(opened)),
            status => {
                assert!(opened.is_null());
                Err(status)
            }
        }
    }

    fn device(&self, number: u32) -> Result<DeviceFigures, c_int> {
        let mut figures = MaybeUninit::<DeviceFigures>::uninit();
        let size = size_of::<DeviceFigures>();
        // SAFETY: the handle is open, and `figures` has `size` bytes.
        match unsafe { gpuslice_read_device(self.0, number, figures.as_mut_ptr(), size) } {
            // SAFETY: the status says that the function has filled `figures`.
            Status::OK => Ok(unsafe { figures.assume_init() }),
            status => Err(status),
        }
    }

    fn processes(&self, room: usize) -> (c_int, usize, Vec<ProcessFigures>) {
        let mut figures: Vec<ProcessFigures> = Vec::with_capacity(room);
        let (mut count, size) = (0, size_of::<ProcessFigures>());
        // SAFETY: the handle is open, and the vector has room for `room` structures.
        let status =
            unsafe { gpuslice_read_processes(self.0, 0, figures.as_mut_ptr(), size, room, &raw mut count) };
        if status == Status::OK || status == Status::Room.number() {
            // SAFETY: the function has filled this number of structures.
            unsafe { figures.set_len(count.min(room)) };
        }
        (status, count, figures)
    }

    /// Returns the status of each function that reads.
    fn statuses(&self) -> [c_int; 6] {
        let (mut epoch, mut number) = (0, 0);
        [
            // SAFETY: the handle is open, and `epoch` has room.
            unsafe { gpuslice_epoch(self.0, &raw mut epoch) },
            // SAFETY: the handle is open, and `number` has room.
            unsafe { gpuslice_device_count(self.0, &raw mut number) },
            // SAFETY: the handle is open, and `number` has room.
            unsafe { gpuslice_process_count(self.0, &raw mut number) },
            self.device(0).map_or_else(|status| status, |_| Status::OK),
            self.processes(4).0,
            // SAFETY: the handle is open, and `number` has room.
            unsafe { gpuslice_reap(self.0, &raw mut number) },
        ]
    }
}

/// The last source, and a reason beside it in the same word.
const WITH_REASON: Measured = Measured { source: Source::ReplayedWhole, why: Some(Why::Mig) };

#[test]
fn all_figures_of_a_device_come_through() {
    let bench = Bench::new();
    bench.member.reserve(bench.device, 600).unwrap();
    assert_eq!(bench.member.refund(bench.device, 250), 0);
    bench.member.reserve(bench.device, 900).unwrap_err();
    bench.member.count_quota_denial(bench.device);
    bench.member.count_used(bench.device, GpuTime::from_nanos(11));
    bench.member.count_throttled(bench.device, WallTime::from_nanos(12));
    bench.member.set_queued(bench.device, GpuTime::from_nanos(13));
    bench.member.count_copied(bench.device, GpuTime::from_nanos(14));
    bench.member.count_launches(bench.device, 15);
    bench.member.set_measure_source(bench.device, WITH_REASON.word());
    bench.member.set_correction(bench.device, 500_000);
    // The test writes these words itself, because no member writes them here.
    let at = |name: &str| FIGURES.iter().find(|(known, _)| *known == name).unwrap().1 as u64;
    let file = OpenOptions::new().write(true).open(bench.path()).unwrap();
    let of_process = at("time.offset") + at("time.processes");
    for (place, value) in [
        (at("devices.offset") + at("device.quota_denials"), 21_u64),
        (at("devices.offset") + at("device.device_denials"), 22),
        (of_process + at("process.spilled_bytes"), 23),
        (of_process + at("process.context_bytes"), 24),
    ] {
        file.write_at(&value.to_ne_bytes(), place).unwrap();
    }
    let handle = bench.open();
    let read = handle.device(0).unwrap();
    let process = handle.processes(1).2.swap_remove(0);
    assert_eq!((process.spilled, process.held_by_contexts, read.held_by_contexts), (23, 24, 24));
    let memory = [read.total, read.memory_limit, read.held, read.held_by_dead, read.peak, read.spilled];
    assert_eq!(memory, [TOTAL, LIMIT, 350, 0, 600, 23]);
    assert_eq!((read.refused, read.unmet), (21, 22));
    let time =
        [read.burst_ns, read.used_ns, read.throttled_ns, read.queued_ns, read.copied_ns, read.launches];
    assert_eq!(time, [9, 11, 12, 13, 14, 15]);
    let settings = [read.share_permille, read.policy, read.priority, read.weight, read.oversubscribe];
    assert_eq!(settings, [250, 2, 2, 7, 1]);
    assert_eq!((read.uuid, read.number, read.meter, read.factor_millionths), (UUID.0, 0, 6, 500_000));
    assert_eq!(read.paid_until_ns, bench.member.paid_until(bench.device).nanos());
    let later = bench.open().device(0).unwrap();
    assert!(read.read_at_ns > 0 && later.read_at_ns >= read.read_at_ns);
}

#[test]
fn a_device_without_a_quota_and_the_other_settings_have_numbers_of_their_own() {
    let bench = Bench::new();
    let handle = bench.open();
    for (policy, number) in [(CorePolicy::Fixed, 0), (CorePolicy::Equal, 1), (CorePolicy::BestEffort, 2)] {
        for (priority, other) in [(Priority::Normal, 0), (Priority::High, 1), (Priority::Low, 2)] {
            let sharing = Sharing { policy, priority, weight: 1000 };
            bench.member.set_limits(bench.device, Limits { memory: None, sharing, ..Limits::NONE });
            let read = handle.device(0).unwrap();
            assert_eq!((read.policy, read.priority, read.weight), (number, other, 1000));
            assert_eq!((read.memory_limit, read.share_permille, read.oversubscribe), (u64::MAX, 1000, 0));
        }
    }
}

#[test]
fn processes_come_by_slot_with_their_own_figures() {
    let bench = Bench::new();
    let (other, device) = join(&bench.path(), limits());
    bench.member.reserve(bench.device, 100).unwrap();
    other.reserve(device, 20).unwrap();
    other.count_quota_denial(device);
    other.count_used(device, GpuTime::from_nanos(5));
    other.count_launches(device, 6);
    let handle = bench.open();
    let (status, count, read) = handle.processes(8);
    assert_eq!((status, count, read.len()), (Status::OK, 2, 2));
    let own = bench.member.processes();
    for (figures, process) in read.iter().zip(&own) {
        assert_eq!((figures.slot as usize, figures.pid), (process.slot, std::process::id()));
        assert_eq!((figures.start, figures.pid_namespace), (process.start, process.pid_namespace));
    }
    let [first, second] = [&read[0], &read[1]];
    assert_eq!([first.held, first.refused, first.used_ns, first.launches], [100, 0, 0, 0]);
    assert_eq!([second.held, second.refused, second.used_ns, second.launches], [20, 1, 5, 6]);
    assert_eq!(handle.device(0).unwrap().held, 120);
    // The caller has less room than there are processes.
    let (status, count, read) = handle.processes(1);
    assert_eq!((status, count, read.len(), read[0].slot), (Status::Room.number(), 2, 1, 0));
    let (status, count, _) = handle.processes(0);
    assert_eq!((status, count), (Status::Room.number(), 2));
}

#[test]
fn a_caller_with_another_header_gets_its_fields_and_zeroes_for_the_rest() {
    let bench = Bench::new();
    let handle = bench.open();
    let size = size_of::<DeviceFigures>();
    let mut bytes = vec![0xaa_u8; size + 24];
    // SAFETY: the handle is open, and `bytes` is longer than `size + 16`.
    let status = unsafe { gpuslice_read_device(handle.0, 0, bytes.as_mut_ptr().cast(), size + 16) };
    assert_eq!(status, Status::OK);
    assert_eq!((&bytes[..16], &bytes[size..size + 16]), (&[7; 16][..], &[0; 16][..]));
    assert_eq!(bytes[size + 16..], [0xaa; 8]);
    // SAFETY: the call writes nothing, because the size is below the smallest size.
    let status = unsafe {
        gpuslice_read_device(handle.0, 0, bytes.as_mut_ptr().cast(), DeviceFigures::FIRST_SIZE - 1)
    };
    assert_eq!(status, Status::Argument.number());
    // The distance between two structures of processes is the size that the caller passes.
    let (_other, _) = join(&bench.path(), limits());
    let stride = size_of::<ProcessFigures>() + 8;
    let mut bytes = vec![0xaa_u8; 2 * stride];
    // SAFETY: the handle is open, and `bytes` has room for two structures of `stride` bytes.
    let status = unsafe {
        gpuslice_read_processes(handle.0, 0, bytes.as_mut_ptr().cast(), stride, 2, ptr::null_mut())
    };
    assert_eq!(status, Status::OK);
    let slot = |at: usize| u32::from_ne_bytes(bytes[at + 80..at + 84].try_into().unwrap());
    assert_eq!((slot(0), slot(stride), &bytes[stride - 8..stride]), (0, 1, &[0; 8][..]));
}

#[test]
#[allow(clippy::multiple_unsafe_ops_per_block, reason = "calls that all have the same reason to be safe")]
fn wrong_arguments_have_a_status_and_nothing_is_written() {
    let bench = Bench::new();
    let handle = bench.open();
    let mut opened: *mut Slice = ptr::null_mut();
    // SAFETY: each function allows null for each pointer, and the other arguments are valid.
    let said = unsafe {
        [
            gpuslice_open(ptr::null(), &raw mut opened),
            gpuslice_open(c"".as_ptr(), &raw mut opened),
            gpuslice_open(c"name".as_ptr(), ptr::null_mut()),
            gpuslice_epoch(ptr::null(), ptr::null_mut()),
            gpuslice_device_count(ptr::null(), ptr::null_mut()),
            gpuslice_process_count(ptr::null(), ptr::null_mut()),
            gpuslice_reap(ptr::null(), ptr::null_mut()),
            gpuslice_read_device(ptr::null(), 0, ptr::null_mut(), 0),
            gpuslice_read_device(handle.0, 0, ptr::null_mut(), 176),
            gpuslice_read_processes(ptr::null(), 0, ptr::null_mut(), 0, 0, ptr::null_mut()),
            gpuslice_read_processes(handle.0, 0, ptr::null_mut(), 88, 1, ptr::null_mut()),
        ]
    };
    assert_eq!(said, [Status::Argument.number(); 11]);
    // SAFETY: each of these functions allows null.
    let names = unsafe {
        gpuslice_close(ptr::null_mut());
        [gpuslice_name(ptr::null()), gpuslice_path(ptr::null())]
    };
    assert_eq!(names, [ptr::null(); 2]);
    assert_eq!(handle.device(1).unwrap_err(), Status::NoDevice.number());
    assert_eq!(handle.device(u32::MAX).unwrap_err(), Status::NoDevice.number());
    // A caller that wants no number passes null.
    // SAFETY: the handle is open, and the function allows null for the count.
    assert_eq!(unsafe { gpuslice_device_count(handle.0, ptr::null_mut()) }, Status::OK);
}

#[test]
fn each_failure_to_open_has_its_own_status() {
    let bench = Bench::new();
    let other = bench.folder.path().join("other");
    let status = |path: &Path| Handle::open(path).err();
    assert_eq!(status(&other), Some(Status::NoSlice.number()));
    assert_eq!(status(Path::new("no-slice-has-this-name")), Some(Status::NoSlice.number()));
    assert_eq!(status(bench.folder.path()), Some(Status::NotARegion.number()));
    std::os::unix::fs::symlink(bench.path(), &other).unwrap();
    assert_eq!(status(&other), Some(Status::NotARegion.number()));
    fs::remove_file(&other).unwrap();
    fs::write(&other, "notes").unwrap();
    assert_eq!(status(&other), Some(Status::NotARegion.number()));
    fs::copy(bench.path(), &other).unwrap();
    let file = OpenOptions::new().write(true).open(&other).unwrap();
    file.write_at(&(VERSION + 1).to_ne_bytes(), 8).unwrap();
    assert_eq!(status(&other), Some(Status::Version.number()));
    file.write_at(&VERSION.to_ne_bytes(), 8).unwrap();
    file.set_len(4096).unwrap();
    assert_eq!(status(&other), Some(Status::Damaged.number()));
    // A folder of the path is a file. The system sets `errno`.
    assert_eq!(status(&other.join("region")), Some(Status::System.number()));
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOTDIR));
}

#[test]
fn every_function_reports_a_region_that_changes_under_its_reader() {
    type Mishap = fn(&Path);
    fn file(path: &Path) -> fs::File {
        OpenOptions::new().write(true).open(path).unwrap()
    }
    let mishaps: [(&str, Mishap, Status); 6] = [
        ("removed", |path| fs::remove_file(path).unwrap(), Status::Replaced),
        (
            "replaced",
            |path| {
                fs::copy(path, path.with_extension("new")).unwrap();
                fs::rename(path.with_extension("new"), path).unwrap();
            },
            Status::Replaced,
        ),
        (
            "moved away, another there",
            |path| {
                fs::rename(path, path.with_extension("old")).unwrap();
                fs::write(path, "notes").unwrap();
            },
            Status::Replaced,
        ),
        ("shortened", |path| file(path).set_len(0).unwrap(), Status::Damaged),
        (
            "shortened and made longer again",
            |path| {
                let size = fs::metadata(path).unwrap().len();
                file(path).set_len(0).unwrap();
                file(path).set_len(size).unwrap();
            },
            Status::Damaged,
        ),
        ("overwritten", |path| assert_eq!(file(path).write_at(b"notes", 0).unwrap(), 5), Status::Damaged),
    ];
    for (what, mishap, expected) in mishaps {
        let bench = Bench::new();
        let handle = bench.open();
        assert_eq!(handle.statuses(), [Status::OK; 6], "before it is {what}");
        mishap(&bench.path());
        assert_eq!(handle.statuses(), [expected.number(); 6], "{what}");
    }
}

#[test]
fn a_region_that_is_made_anew_is_another_slice() {
    let bench = Bench::new();
    let (before, path) = (bench.open(), bench.path());
    let Bench { folder, member, .. } = bench;
    member.leave();
    // No process is alive in it, but it is still the same slice.
    assert_eq!(before.statuses(), [Status::OK; 6]);
    let (_member, _) = join(&path, limits());
    assert_eq!(before.statuses(), [Status::Renewed.number(); 6]);
    assert_eq!(Handle::open(&path).unwrap().statuses(), [Status::OK; 6]);
    drop(folder);
}

#[test]
fn a_slice_is_listed_and_opened_by_its_name() {
    let name = format!("reader-{}", std::process::id());
    // SAFETY: `geteuid` has no arguments and cannot fail.
    let path = format!("/dev/shm/gpuslice-{}-run-{name}", unsafe { libc::geteuid() });
    let (member, _) = join(Path::new(&path), limits());
    let mut needed = 0_usize;
    let mut paths = vec![0_u8; 1 << 20];
    // SAFETY: `paths` has room for its length.
    let status = unsafe { gpuslice_list(paths.as_mut_ptr().cast(), paths.len(), &raw mut needed) };
    // SAFETY: `gpuslice_list` allows null.
    let nothing = unsafe { gpuslice_list(ptr::null_mut(), 0, ptr::null_mut()) };
    let handle = Handle::open(Path::new(&name));
    let region = handle.as_ref().map_or_else(
        |_| String::new(),
        |handle| {
            // SAFETY: the handle is open.
            text(unsafe { gpuslice_path(handle.0) })
        },
    );
    let called = handle.as_ref().map_or_else(
        |_| String::new(),
        |handle| {
            // SAFETY: the handle is open.
            text(unsafe { gpuslice_name(handle.0) })
        },
    );
    fs::remove_file(&path).unwrap();
    drop(member);
    assert_eq!((status, nothing), (Status::OK, Status::Room.number()));
    let listed = String::from_utf8_lossy(&paths[..needed]).into_owned();
    assert!(listed.split('\0').any(|one| one == path), "{listed:?}");
    assert!(listed.ends_with("\0\0") || listed == "\0");
    assert_eq!((region, called), (path, name));
}

fn text(pointer: *const c_char) -> String {
    // SAFETY: the functions of the library return strings that end with a zero.
    unsafe { CStr::from_ptr(pointer) }.to_str().unwrap().to_owned()
}

#[test]
fn threads_read_one_handle_while_the_slice_works_and_its_region_goes() {
    struct Shared(Handle);
    // SAFETY: the header allows calls in all threads at the same time, except the one that closes the handle.
    unsafe impl Sync for Shared {}
    let bench = Bench::new();
    let shared = Shared(bench.open());
    std::thread::scope(|scope| {
        let shared = &shared;
        let readers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || {
                    loop {
                        match shared.0.device(0) {
                            Ok(read) => assert!(read.held <= LIMIT && read.total == TOTAL),
                            Err(status) => return status,
                        }
                    }
                })
            })
            .collect();
        for _ in 0..2000 {
            bench.member.reserve(bench.device, 10).unwrap();
            assert_eq!(bench.member.refund(bench.device, 10), 0);
        }
        OpenOptions::new().write(true).open(bench.path()).unwrap().set_len(0).unwrap();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), Status::Damaged.number());
        }
    });
}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Slice>();
};
