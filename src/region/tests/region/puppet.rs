//! Other processes for tests. A test starts this program again as a *puppet*. The puppet reads commands from its standard
//! input and answers each with one line.

use std::{
    env,
    ffi::OsStr,
    fs::OpenOptions,
    io::{BufRead as _, BufReader, Write as _, stdin, stdout},
    os::{
        fd::AsRawFd as _,
        unix::{ffi::OsStrExt as _, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use gpuslice_policy::compute::limiter::{lease, queue_bound};
use gpuslice_policy::time::{GpuTime, Monotonic};
use gpuslice_region::names::ProgramRegion;
use gpuslice_region::{ArbiterLeases, Device, DeviceRequest, IntervalLocks, Limits, Member, Trust, Uuid};

use crate::{limits, quota, reader, time};

const VARIABLE: &str = "GPUSLICE_TEST_PUPPET";
/// The device of most tests.
pub(crate) const UUID: Uuid = Uuid([7; 16]);
/// The size of the device [`UUID`], in bytes.
pub(crate) const TOTAL: u64 = 1 << 40;

/// Makes a directory for a region, on a file system that keeps locks.
pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

/// Makes a request for the device of most tests.
pub(crate) fn request(memory: u64) -> DeviceRequest {
    let limits = Limits { memory: Some(memory), cores_permille: 500, ..Limits::NONE };
    DeviceRequest { uuid: UUID, total: TOTAL, limits }
}

/// Joins with the device of most tests.
pub(crate) fn join(path: &Path, memory: u64) -> (Member, Device) {
    let (member, _) = Member::join(path, Trust::OwnerOnly, &[request(memory)]).unwrap();
    let device = member.device(&UUID).unwrap();
    (member, device)
}

/// Returns the size of the next lease of a process with one thread.
pub(crate) fn lease_size(member: &Member, device: Device, now: Monotonic) -> GpuTime {
    lease::size_for(&member.lease_situation(device, now), 1, queue_bound::MOST_BOUND)
}

/// Another process. Its drop kills it.
pub(crate) struct Puppet {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Puppet {
    pub(crate) fn start() -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .env(VARIABLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, commands, answers }
    }

    /// Starts a puppet and lets it join.
    pub(crate) fn joined(path: &Path, memory: u64) -> Self {
        let mut puppet = Self::start();
        assert!(puppet.ask(&format!("join {} {memory}", path.display())).starts_with("slot "));
        puppet
    }

    pub(crate) fn tell(&mut self, command: &str) {
        writeln!(self.commands, "{command}").unwrap();
    }

    pub(crate) fn hear(&mut self) -> String {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }

    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.hear()
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn signal(&self, signal: i32) {
        kill(self.pid(), signal);
    }

    /// Kills the puppet, and waits until it is dead.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Kills the puppet, and waits until it is dead but still has a process number.
    pub(crate) fn kill_to_zombie(&self) {
        self.signal(libc::SIGKILL);
        // SAFETY: `siginfo_t` is plain data, for which all zeroes are a valid value.
        let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
        let flags = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: `waitid` needs room for a `siginfo_t`, which `info` is.
        let status = unsafe { libc::waitid(libc::P_PID, self.child.id(), &raw mut info, flags) };
        assert_eq!(status, 0);
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process that a test started, and never to a process group.
pub(crate) fn kill(pid: i32, signal: i32) {
    assert!(pid > 0, "{pid} is no process");
    // SAFETY: `kill` takes numbers only.
    unsafe { libc::kill(pid, signal) };
}

/// Runs before `main` in every start of this program, and ends the process if it is a puppet. So the test harness, with its
/// threads and output, never runs in a puppet.
extern "C" fn become_puppet() {
    if env::var_os(VARIABLE).is_some() {
        let code = i32::from(std::panic::catch_unwind(obey).is_err());
        // SAFETY: `_exit` takes a number and does not return.
        unsafe { libc::_exit(code) };
    }
}

#[used]
// SAFETY: the loader calls each function pointer in this section once, and this static is a function pointer.
#[unsafe(link_section = ".init_array")]
static BECOME_PUPPET: extern "C" fn() = become_puppet;

fn answer(line: &str) {
    let mut out = stdout();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

/// Limits the size of the files that this process may make. Returns false if the kernel refuses the limit.
fn limit_files(bytes: u64) -> bool {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `setrlimit` needs a limit that can be read: `limit` is on this stack.
    unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) == 0 }
}

/// Takes interval locks of a file as slice 1, and keeps them. Returns whether the slice is alone.
fn publish(path: &Path) -> bool {
    let mut locks = IntervalLocks::open([path], UUID, 1).unwrap();
    locks.read(time::now(), |_| false, |_, _, _| ()).unwrap();
    let is_alone = !locks.has_others();
    core::mem::forget(locks);
    is_alone
}

/// Maps a file of `folder` whose name is not UTF-8, until the process ends. Returns `mapped` if the kernel maps it.
fn map_a_name_that_is_not_utf8(folder: &Path) -> &'static str {
    let path = folder.join(OsStr::from_bytes(b"\xff"));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
    file.set_len(4096).unwrap();
    let (rights, flags) = (libc::PROT_NONE, libc::MAP_SHARED);
    // SAFETY: `mmap` without `MAP_FIXED` touches no existing mapping: the kernel chooses the address.
    let start = unsafe { libc::mmap(core::ptr::null_mut(), 4096, rights, flags, file.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED { "no mapping" } else { "mapped" }
}

fn obey() {
    let mut place: Option<(Member, Device)> = None;
    for line in stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<u64>().unwrap();
        let at = || place.as_ref().unwrap();
        match words[0] {
            "join" => match Member::join(Path::new(words[1]), Trust::OwnerOnly, &requests(&words)) {
                Ok((member, _)) => {
                    answer(&format!("slot {}", member.slot()));
                    let device = member.device(&UUID).unwrap();
                    place = Some((member, device));
                }
                Err(error) => answer(&error.to_string()),
            },
            "program" => {
                let trust = if words[2] == "all" { Trust::AllUsers } else { Trust::OwnerOnly };
                let region = ProgramRegion { path: words[1].into(), trust, has_more_names: true };
                match Member::join_program(&region, &[request(1000)]) {
                    Ok((member, _)) => {
                        let device = member.device(&UUID).unwrap();
                        let (member, _) = place.insert((member, device));
                        answer(&member.path().display().to_string());
                    }
                    Err(error) => answer(&format!("refused: {error}")),
                }
            }
            "user" => answer(if become_user(number(1)) { "changed" } else { "not allowed" }),
            "check" => answer(&format!("{:?}", at().0.check())),
            "chroot" => answer(if change_root(words[1]) { "there" } else { "not allowed" }),
            "files" => answer(if limit_files(number(1)) { "limited" } else { "not allowed" }),
            "publish" => {
                answer(&publish(Path::new(words[1])).to_string());
            }
            "leases" => answer(&match ArbiterLeases::open(Path::new(words[1])) {
                Ok(_) => "opened".to_owned(),
                Err(error) => error.to_string(),
            }),
            "map" => answer(map_a_name_that_is_not_utf8(Path::new(words[1]))),
            "reserve" => {
                let result = at().0.reserve(at().1, number(1)).map_err(|refusal| refusal.why);
                answer(&format!("{result:?}"));
            }
            "measure" => {
                at().0.note_available(at().1, 0);
                answer("measured");
            }
            "back" => {
                at().0.reap().unwrap();
                answer(&at().0.end_leaving(at().1, || Some(u64::MAX)).to_string());
            }
            "context" => {
                at().0.begin_context(at().1, number(1));
                answer("said");
            }
            "taking" => {
                at().0.begin_memory_call();
                answer("begun");
            }
            "making" => {
                at().0.begin_context_creation();
                answer("begun");
            }
            "descriptors" => answer(&format!("{:?}", descriptors())),
            "close" => {
                // SAFETY: `close_range` must close no descriptor in use. A puppet uses only the standard ones, which stay
                // open.
                unsafe { libc::close_range(3, u32::MAX, 0) };
                answer("closed");
            }
            "mask" => {
                // SAFETY: `umask` takes a number.
                unsafe { libc::umask(0o777) };
                answer("masked");
            }
            "small" => answer(if mount_small(words[1], words[2]) { "mounted" } else { "not mounted" }),
            "use" => answer(&time::use_all(&at().0, at().1, number(1))),
            "lease" => answer(&time::take_and_keep(&at().0, at().1, number(1))),
            "sleep" => time::sleep(&at().0, at().1, number(1), answer),
            "crowd" => answer(&time::crowd(&at().0, at().1, Path::new(words[1]), number(2))),
            "overlay" => answer(if overlay(words[1]) { "mounted" } else { "not mounted" }),
            "fork" => answer(&fork().to_string()),
            "execute" => {
                answer("executing");
                let error = Command::new("cat").env_remove(VARIABLE).exec();
                panic!("{error}");
            }
            "lock" => {
                lock_byte_zero(Path::new(words[1]));
                answer("locked");
            }
            "take" => answer(&quota::take(&at().0, at().1, Path::new(words[1]), number(2))),
            "churn" => answer(&quota::churn(&at().0, at().1, Path::new(words[1]), number(2), number(3))),
            "grab" => answer(&quota::grab(&at().0, at().1, Path::new(words[1]), number(2))),
            "read" => answer(&reader::exhaust(Path::new(words[1]))),
            "limits" => answer(&limits::change(Path::new(words[1]), words[2])),
            "begin" => limits::begin(Path::new(words[1]), answer),
            "ping" => answer("pong"),
            other => panic!("no command: {other}"),
        }
    }
}

/// Returns requests for the device of most tests, and for one more device for each word after the quota.
fn requests(words: &[&str]) -> Vec<DeviceRequest> {
    let request = request(words[2].parse().unwrap());
    let others =
        words.iter().skip(3).map(|word| DeviceRequest { uuid: Uuid([word.parse().unwrap(); 16]), ..request });
    core::iter::once(request).chain(others).collect()
}

/// Mounts a tmpfs of `kibibytes` over a directory, for this process only.
fn mount_small(directory: &str, kibibytes: &str) -> bool {
    let text = |text: String| std::ffi::CString::new(text).unwrap();
    let (target, size) = (text(directory.to_owned()), text(format!("size={kibibytes}k")));
    let (kind, options) = (c"tmpfs".as_ptr(), size.as_ptr().cast());
    // SAFETY: `mount` needs strings that end with a zero; all live until after the call.
    has_own_mounts() && unsafe { libc::mount(kind, target.as_ptr(), kind, 0, options) } == 0
}

/// Mounts an overlay of the directories in `directory`, for this process only.
fn overlay(directory: &str) -> bool {
    let text = |text: String| std::ffi::CString::new(text).unwrap();
    let options =
        text(format!("lowerdir={directory}/lower,upperdir={directory}/upper,workdir={directory}/work"));
    let target = text(format!("{directory}/merged"));
    let (kind, options) = (c"overlay".as_ptr(), options.as_ptr().cast());
    // SAFETY: `mount` needs strings that end with a zero; all live until after the call.
    has_own_mounts() && unsafe { libc::mount(kind, target.as_ptr(), kind, 0, options) } == 0
}

/// Gives this process its own mount namespace, if the kernel allows it.
fn has_own_mounts() -> bool {
    let (none, private) = (core::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
    // SAFETY: `unshare` takes a number; a puppet has one thread.
    let alone = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
    // SAFETY: `mount` needs strings that end with a zero or null; all are one of the two.
    alone && unsafe { libc::mount(none, c"/".as_ptr(), none, private, core::ptr::null()) } == 0
}

/// Makes an empty directory and changes the root to it.
fn change_root(path: &str) -> bool {
    let name = std::ffi::CString::new(path).unwrap();
    std::fs::create_dir(path).unwrap();
    // SAFETY: `chroot` needs a string that ends with a zero, which a `CString` is.
    unsafe { libc::chroot(name.as_ptr()) == 0 }
}

/// Becomes another user for good.
fn become_user(user: u64) -> bool {
    let user = u32::try_from(user).unwrap();
    // SAFETY: `setresuid` takes numbers.
    let is_other = unsafe { libc::setresuid(user, user, user) } == 0;
    // The kernel gives the files in `/proc` of a process that changes its user to root.
    // SAFETY: `prctl` takes numbers here.
    is_other && unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) } == 0
}

/// Forks a child that only waits. Returns its number.
fn fork() -> i32 {
    // SAFETY: `fork` needs a child that relies on no other thread. A puppet has one thread, and its child only waits.
    match unsafe { libc::fork() } {
        0 => loop {
            // SAFETY: `pause` has no arguments.
            unsafe { libc::pause() };
        },
        pid if pid > 0 => pid,
        _ => panic!("cannot fork"),
    }
}

fn descriptors() -> Vec<PathBuf> {
    let names = std::fs::read_dir("/proc/self/fd").unwrap();
    let mut paths: Vec<_> = names.filter_map(|name| std::fs::read_link(name.unwrap().path()).ok()).collect();
    paths.sort();
    paths
}

/// Takes the join lock as `include/gpuslice.h` describes it, and keeps it.
fn lock_byte_zero(path: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    // SAFETY: `flock` is plain data, for which all zeroes are a valid value: the file from its start.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    (lock.l_type, lock.l_len) = (i16::try_from(libc::F_WRLCK).unwrap(), 1);
    // SAFETY: `F_OFD_SETLK` needs an open descriptor, which `file` owns, and a `flock` to read, which `lock` is.
    let status = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    assert_eq!(status, 0);
    core::mem::forget(file);
}
