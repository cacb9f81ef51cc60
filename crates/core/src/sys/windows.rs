//! Windows' own calls: times and sizes of processes and of the machine, job objects, the console's Ctrl keys.
//!
//! One long file, since it is a list of calls that have nothing to do with each other.
#![expect(unsafe_code, reason = "the system's calls have no safe wrapper here")]

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::windows::fs::OpenOptionsExt as _;
use std::os::windows::io::{
    AsHandle as _, AsRawHandle as _, BorrowedHandle, FromRawHandle as _, OwnedHandle,
};
use std::os::windows::process::CommandExt as _;
use std::process::{Child, Command};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use windows_sys::Win32::Foundation::{FILETIME, HANDLE, INVALID_HANDLE_VALUE, SYSTEMTIME, WAIT_TIMEOUT};
use windows_sys::Win32::Storage::FileSystem::FILE_FLAG_OPEN_REPARSE_POINT;
use windows_sys::Win32::System::Console::SetConsoleCtrlHandler;
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, TH32CS_SNAPTHREAD, THREADENTRY32, Thread32First, Thread32Next,
};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_BREAKAWAY_OK,
    JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, JOBOBJECT_BASIC_AND_IO_ACCOUNTING_INFORMATION,
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JobObjectBasicAccountingInformation,
    JobObjectBasicAndIoAccountingInformation, JobObjectExtendedLimitInformation, QueryInformationJobObject,
    SetInformationJobObject,
};
use windows_sys::Win32::System::ProcessStatus::{
    K32GetPerformanceInfo, K32GetProcessMemoryInfo, PERFORMANCE_INFORMATION, PROCESS_MEMORY_COUNTERS,
    PROCESS_MEMORY_COUNTERS_EX2,
};
use windows_sys::Win32::System::SystemInformation::{
    GetSystemInfo, GlobalMemoryStatusEx, MEMORYSTATUSEX, SYSTEM_INFO,
};
use windows_sys::Win32::System::Threading::{
    CREATE_SUSPENDED, GetCurrentProcess, GetCurrentThread, GetProcessTimes, GetSystemTimes, GetThreadTimes,
    OpenProcess, OpenThread, PROCESS_QUERY_LIMITED_INFORMATION, ResumeThread, THREAD_SUSPEND_RESUME,
    WaitForSingleObject,
};
use windows_sys::Win32::System::Time::{
    FileTimeToSystemTime, SystemTimeToFileTime, SystemTimeToTzSpecificLocalTime,
};

/// The system counts time in steps of 100 ns.
const NS_PER_STEP: u64 = 100;
/// Steps from 1601, where file times begin, to 1970.
const STEPS_TO_1970: i64 = 116_444_736_000_000_000;

/// Now: nanoseconds since 1970, and by the clock that never goes back.
#[must_use]
pub fn now_ns() -> (u64, u64) {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Zero is no moment: the clock begins a second before the first one.
    let since_first = FIRST.get_or_init(Instant::now).elapsed() + Duration::from_secs(1);
    (ns(wall), ns(since_first))
}

const fn steps_of(time: FILETIME) -> u64 {
    (time.dwHighDateTime as u64) << 32 | time.dwLowDateTime as u64
}

fn ns_of(time: FILETIME) -> u64 {
    steps_of(time).saturating_mul(NS_PER_STEP)
}

const NO_TIME: FILETIME = FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 };

/// User and system time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// User mode.
    pub user_ns: u64,
    /// System mode.
    pub system_ns: u64,
}

/// The standard streams are no numbers here.
///
/// # Errors
/// Never.
pub fn above_stdio<F>(opened: F) -> io::Result<F> {
    Ok(opened)
}

/// CPU time in nanoseconds of the calling thread.
#[must_use]
pub fn thread_cpu_ns() -> Option<u64> {
    let [mut created, mut ended, mut kernel, mut user] = [NO_TIME; 4];
    // SAFETY: the pseudo handle of this thread, and four structures of ours to fill.
    let done = unsafe {
        GetThreadTimes(GetCurrentThread(), &raw mut created, &raw mut ended, &raw mut kernel, &raw mut user)
    };
    (done != 0).then(|| ns_of(kernel).saturating_add(ns_of(user)))
}

/// CPU time in nanoseconds of this process.
#[must_use]
pub fn own_cpu_ns() -> Option<u64> {
    // SAFETY: a pseudo handle, which is always valid.
    let times = times_of(unsafe { GetCurrentProcess() })?;
    Some(times.user_ns.saturating_add(times.system_ns))
}

fn times_of(process: HANDLE) -> Option<CpuTimes> {
    let [mut created, mut ended, mut kernel, mut user] = [NO_TIME; 4];
    // SAFETY: a handle that the caller holds open, and four structures of ours to fill.
    let done =
        unsafe { GetProcessTimes(process, &raw mut created, &raw mut ended, &raw mut kernel, &raw mut user) };
    (done != 0).then(|| CpuTimes { user_ns: ns_of(user), system_ns: ns_of(kernel) })
}

/// A process that we may ask for its figures; `None` where it is not there, or not ours to ask.
fn open_process(pid: u32) -> Option<OwnedHandle> {
    // SAFETY: takes integers by value.
    let handle = unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, 0, pid) };
    // SAFETY: the call succeeded, so this handle is open and nobody else's.
    (!handle.is_null()).then(|| unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// CPU time of a process that is there.
#[must_use]
pub fn process_times(pid: u32) -> Option<CpuTimes> {
    times_of(open_process(pid)?.as_raw_handle())
}

/// Memory that is in RAM and a process's alone; `None` before Windows 10 22H2, which does not tell.
#[must_use]
pub fn private_kib(pid: u32) -> Option<u64> {
    let process = open_process(pid)?;
    let mut counters = PROCESS_MEMORY_COUNTERS_EX2::default();
    let size = u32::try_from(mem::size_of_val(&counters)).ok()?;
    counters.cb = size;
    // SAFETY: a structure of the size that is named, which begins as the shorter one that the call declares.
    let done = unsafe { K32GetProcessMemoryInfo(process.as_raw_handle(), (&raw mut counters).cast(), size) };
    (done != 0 && counters.PrivateWorkingSetSize > 0).then_some(counters.PrivateWorkingSetSize as u64 / 1024)
}

/// Our resident memory.
#[must_use]
pub fn own_rss_kib() -> Option<u64> {
    let mut counters = PROCESS_MEMORY_COUNTERS::default();
    let size = u32::try_from(mem::size_of_val(&counters)).ok()?;
    // SAFETY: the pseudo handle of this process, and a structure of the size that is named.
    let done = unsafe { K32GetProcessMemoryInfo(GetCurrentProcess(), &raw mut counters, size) };
    (done != 0).then_some(counters.WorkingSetSize as u64 / 1024)
}

/// CPU time of the machine, without the time in which nothing ran.
///
/// # Errors
/// What the system says.
pub fn machine_times() -> io::Result<CpuTimes> {
    let [mut idle, mut kernel, mut user] = [NO_TIME; 3];
    // SAFETY: three structures of ours to fill.
    if unsafe { GetSystemTimes(&raw mut idle, &raw mut kernel, &raw mut user) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // Kernel time has the idle time in it.
    let system_ns = ns_of(kernel).saturating_sub(ns_of(idle));
    Ok(CpuTimes { user_ns: ns_of(user), system_ns })
}

/// Memory of the machine: all of it, and what a program could have at once.
///
/// # Errors
/// What the system says.
pub fn machine_memory_bytes() -> io::Result<(u64, u64)> {
    let mut status = MEMORYSTATUSEX::default();
    status.dwLength = u32::try_from(mem::size_of_val(&status)).map_err(io::Error::other)?;
    // SAFETY: a structure that names its own size.
    if unsafe { GlobalMemoryStatusEx(&raw mut status) } == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((status.ullTotalPhys, status.ullAvailPhys))
}

/// What the system's own cache of files holds.
#[must_use]
pub fn file_cache_bytes() -> Option<u64> {
    let mut about = PERFORMANCE_INFORMATION::default();
    let size = u32::try_from(mem::size_of_val(&about)).ok()?;
    // SAFETY: a structure of the size that is named.
    let done = unsafe { K32GetPerformanceInfo(&raw mut about, size) };
    (done != 0).then_some(())?;
    (about.SystemCache as u64).checked_mul(about.PageSize as u64)
}

fn system_info() -> SYSTEM_INFO {
    let mut info = SYSTEM_INFO::default();
    // SAFETY: a structure of ours to fill; the call cannot fail.
    unsafe { GetSystemInfo(&raw mut info) };
    info
}

/// CPUs of the machine.
#[must_use]
pub fn cpus() -> u32 {
    system_info().dwNumberOfProcessors
}

/// Bytes in a page of memory.
#[must_use]
pub fn page_bytes() -> u64 {
    u64::from(system_info().dwPageSize)
}

/// A group of processes that the system accounts for as one, those included that have ended.
#[derive(Debug)]
pub struct JobObject(OwnedHandle);

impl JobObject {
    /// An empty one, which holds nobody to anything: who wants to leave it may, as if it were not there.
    ///
    /// # Errors
    /// What the system says.
    pub fn create() -> io::Result<Self> {
        // SAFETY: no name and no security attributes: a new object of ours alone.
        let handle = unsafe { CreateJobObjectW(ptr::null(), ptr::null()) };
        if handle.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so this handle is open and nobody else's.
        let object = Self(unsafe { OwnedHandle::from_raw_handle(handle) });
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_BREAKAWAY_OK;
        let size = u32::try_from(mem::size_of_val(&limits)).map_err(io::Error::other)?;
        // SAFETY: an open job object, and a structure of the class and size that are named.
        let done = unsafe {
            SetInformationJobObject(
                object.0.as_raw_handle(),
                JobObjectExtendedLimitInformation,
                (&raw const limits).cast(),
                size,
            )
        };
        if done == 0 { Err(io::Error::last_os_error()) } else { Ok(object) }
    }

    /// Puts a process into it, and all that it starts from now on.
    ///
    /// # Errors
    /// What the system says.
    pub fn add(&self, process: &Child) -> io::Result<()> {
        // SAFETY: two handles that are open.
        let done = unsafe { AssignProcessToJobObject(self.0.as_raw_handle(), process.as_raw_handle()) };
        if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// CPU time of all who are or were in it.
    #[must_use]
    pub fn cpu_ns(&self) -> Option<u64> {
        let account: JOBOBJECT_BASIC_ACCOUNTING_INFORMATION =
            self.query(JobObjectBasicAccountingInformation)?;
        // One that nobody was ever in counts nothing, and neither does one that is only there in name.
        (account.TotalProcesses > 0).then_some(())?;
        let steps = account.TotalUserTime.checked_add(account.TotalKernelTime)?;
        u64::try_from(steps).ok()?.checked_mul(NS_PER_STEP)
    }

    /// What all who are or were in it have read and written, to files and to whatever else is written so.
    #[must_use]
    pub fn transferred_bytes(&self) -> Option<(u64, u64)> {
        let account: JOBOBJECT_BASIC_AND_IO_ACCOUNTING_INFORMATION =
            self.query(JobObjectBasicAndIoAccountingInformation)?;
        (account.BasicInfo.TotalProcesses > 0).then_some(())?;
        Some((account.IoInfo.ReadTransferCount, account.IoInfo.WriteTransferCount))
    }

    /// One of the structures of integers that a job object fills; `None` where the system does not know it.
    fn query<T: Default>(&self, class: i32) -> Option<T> {
        let mut found = T::default();
        let size = u32::try_from(mem::size_of::<T>()).ok()?;
        // SAFETY: an open job object, and a structure of the size that is named. One of another class than named has
        // another size, and is refused.
        let done = unsafe {
            QueryInformationJobObject(
                self.0.as_raw_handle(),
                class,
                (&raw mut found).cast(),
                size,
                ptr::null_mut(),
            )
        };
        (done != 0).then_some(found)
    }
}

/// Starts a command that waits for [`resume`].
///
/// # Errors
/// What the system says; the command then does not run.
pub fn spawn_suspended(command: &mut Command) -> io::Result<Child> {
    command.creation_flags(CREATE_SUSPENDED).spawn()
}

/// Lets a command run that was started to wait.
///
/// # Errors
/// Where its first thread is not found or does not go on.
pub fn resume(child: &Child) -> io::Result<()> {
    // SAFETY: takes integers by value.
    let list = unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0) };
    if list == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so this handle is open and nobody else's.
    let list = unsafe { OwnedHandle::from_raw_handle(list) };
    let mut entry = THREADENTRY32::default();
    entry.dwSize = u32::try_from(mem::size_of_val(&entry)).map_err(io::Error::other)?;
    // SAFETY: an open list, and a structure that names its own size.
    let mut found = unsafe { Thread32First(list.as_raw_handle(), &raw mut entry) };
    while found != 0 {
        if entry.th32OwnerProcessID == child.id() {
            return resume_thread(entry.th32ThreadID);
        }
        // SAFETY: as above.
        found = unsafe { Thread32Next(list.as_raw_handle(), &raw mut entry) };
    }
    Err(io::Error::other("its first thread is not listed"))
}

fn resume_thread(thread: u32) -> io::Result<()> {
    // SAFETY: takes integers by value.
    let handle = unsafe { OpenThread(THREAD_SUSPEND_RESUME, 0, thread) };
    if handle.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so this handle is open and nobody else's.
    let handle = unsafe { OwnedHandle::from_raw_handle(handle) };
    // SAFETY: an open handle with the right that the call needs.
    if unsafe { ResumeThread(handle.as_raw_handle()) } == u32::MAX {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Waits for a child's end for so long; whether it has ended.
#[must_use]
pub fn wait_for_child(child: &Child, timeout: Duration) -> bool {
    let ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX - 1);
    // SAFETY: a handle that the child holds open.
    unsafe { WaitForSingleObject(child.as_raw_handle(), ms) != WAIT_TIMEOUT }
}

/// CPU time of a child, which its handle still tells after its end.
#[must_use]
pub fn child_times(child: &Child) -> Option<CpuTimes> {
    times_of(child.as_raw_handle())
}

/// Somebody wants us to stop: Ctrl-C, Ctrl-Break, or the console is closed.
static IS_STOP_WANTED: AtomicBool = AtomicBool::new(false);

unsafe extern "system" fn take_note(_key: u32) -> windows_sys::core::BOOL {
    IS_STOP_WANTED.store(true, Ordering::Relaxed);
    // Handled: we are not ended. All programs on the console are told, the job too.
    1
}

/// From now on the console's keys do not end us; [`is_stop_wanted`] tells of them.
///
/// # Errors
/// What the system says.
pub fn receive_ctrl_keys() -> io::Result<()> {
    // SAFETY: the handler is a function that lives as long as the program, and only stores into an atomic.
    let done = unsafe { SetConsoleCtrlHandler(Some(take_note), 1) };
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether a key of the console was pressed that ends programs.
#[must_use]
pub fn is_stop_wanted() -> bool {
    IS_STOP_WANTED.load(Ordering::Relaxed)
}

/// There are no signals here.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// The time zone of this machine at a moment: seconds east of Greenwich. Zones have no abbreviations here.
#[must_use]
pub fn local_zone(unix_s: i64) -> Option<(i32, String)> {
    let steps = unix_s.checked_mul(10_000_000)?.checked_add(STEPS_TO_1970)?.cast_unsigned();
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of a number")]
    let time = FILETIME { dwLowDateTime: steps as u32, dwHighDateTime: (steps >> 32) as u32 };
    let (mut universal, mut local) =
        (MaybeUninit::<SYSTEMTIME>::zeroed(), MaybeUninit::<SYSTEMTIME>::zeroed());
    let mut back = NO_TIME;
    // SAFETY: reads one structure of ours and fills another.
    (unsafe { FileTimeToSystemTime(&raw const time, universal.as_mut_ptr()) } != 0).then_some(())?;
    // SAFETY: no zone means that of this machine; reads one structure of ours and fills another.
    (unsafe { SystemTimeToTzSpecificLocalTime(ptr::null(), universal.as_ptr(), local.as_mut_ptr()) } != 0)
        .then_some(())?;
    // SAFETY: filled by the call above; all zeroes is valid too.
    (unsafe { SystemTimeToFileTime(local.as_ptr(), &raw mut back) } != 0).then_some(())?;
    let east = steps_of(back).cast_signed().checked_sub(steps.cast_signed())?;
    // System times have no steps below a millisecond.
    Some((i32::try_from((east + 5_000_000).div_euclid(10_000_000)).ok()?, String::new()))
}

/// Another handle of standard output (1) or standard error (2).
///
/// # Errors
/// What the system says; other numbers are nobody's.
pub fn duplicate(descriptor: i32) -> io::Result<File> {
    let clone = |handle: BorrowedHandle<'_>| handle.try_clone_to_owned().map(File::from);
    match descriptor {
        1 => clone(io::stdout().as_handle()),
        2 => clone(io::stderr().as_handle()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// The user's own folders are closed to others already.
pub fn for_owner(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// The user's own folders are closed to others already.
#[must_use]
pub fn folder_for_owner() -> DirBuilder {
    DirBuilder::new()
}

/// A file that is opened under its own name, not where a link leads.
pub fn without_links(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT)
}

/// There are none among the files.
#[must_use]
pub const fn is_fifo(_found: &Metadata) -> bool {
    false
}

/// A file's owner is not among what is read of it here.
#[must_use]
pub const fn is_own_file(_found: &Metadata) -> bool {
    true
}

/// A file that is open cannot be removed here.
#[must_use]
pub const fn is_removed(_found: &Metadata) -> bool {
    false
}

/// Links that lead in a circle.
#[must_use]
pub fn too_many_links() -> io::Error {
    io::Error::other("too many links")
}

/// A stream that is closed stays so: handles are not numbered in order here.
pub const fn fill_standard_streams() {}

/// A reader that goes away is an error to be handled already.
pub const fn ignore_broken_pipes() {}

/// No signals, and so none that are ignored.
#[must_use]
pub const fn ignored_at_start() -> Vec<i32> {
    Vec::new()
}

/// There is one heap.
pub const fn share_one_heap() {}

/// The name of this machine.
#[must_use]
pub fn host_name() -> Option<String> {
    std::env::var("COMPUTERNAME").ok()
}

/// Who started us.
#[must_use]
pub fn parent_id() -> Option<u32> {
    crate::source::sysinfo::parent_of(std::process::id())
}

/// Whether a stream takes a few bytes within this time; not known here before it is tried.
#[must_use]
pub fn takes_text_within(_stream: &std::fs::File, _time: std::time::Duration) -> bool {
    true
}
