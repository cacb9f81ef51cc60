//! System calls of Windows: usage of processes and of the machine, job objects, console control events.
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

use windows_sys::Win32::Foundation::{FILETIME, HANDLE, INVALID_HANDLE_VALUE, WAIT_TIMEOUT};
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

/// The unit of `FILETIME`: 100 ns.
const NS_PER_STEP: u64 = 100;

/// Nanoseconds of the wall clock (since 1970) and of the monotonic clock.
pub fn now_ns() -> (u64, u64) {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // The monotonic clock starts at 1 s, since 0 stands for an unknown moment.
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    pub user_ns: u64,
    pub system_ns: u64,
}

/// No effect: on Windows, standard streams have no fixed handle.
pub fn above_stdio<F>(opened: F) -> io::Result<F> {
    Ok(opened)
}

/// CPU time of the calling thread.
pub fn thread_cpu_ns() -> Option<u64> {
    let [mut created, mut ended, mut kernel, mut user] = [NO_TIME; 4];
    // SAFETY: the pseudo handle of this thread, and four structures to fill.
    let done = unsafe {
        GetThreadTimes(GetCurrentThread(), &raw mut created, &raw mut ended, &raw mut kernel, &raw mut user)
    };
    (done != 0).then(|| ns_of(kernel).saturating_add(ns_of(user)))
}

/// CPU time of this process.
pub fn own_cpu_ns() -> Option<u64> {
    // SAFETY: a pseudo handle, which is always valid.
    let times = times_of(unsafe { GetCurrentProcess() })?;
    Some(times.user_ns.saturating_add(times.system_ns))
}

fn times_of(process: HANDLE) -> Option<CpuTimes> {
    let [mut created, mut ended, mut kernel, mut user] = [NO_TIME; 4];
    // SAFETY: a handle that the caller holds open, and four structures to fill.
    let done =
        unsafe { GetProcessTimes(process, &raw mut created, &raw mut ended, &raw mut kernel, &raw mut user) };
    (done != 0).then(|| CpuTimes { user_ns: ns_of(user), system_ns: ns_of(kernel) })
}

/// A handle to query a process; `None` if the process does not exist, or without permission.
fn open_process(pid: u32) -> Option<OwnedHandle> {
    // SAFETY: takes integers by value.
    let handle = unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, 0, pid) };
    // SAFETY: the call succeeded, so the handle is open and has no other owner.
    (!handle.is_null()).then(|| unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// CPU time of a running process.
pub fn process_times(pid: u32) -> Option<CpuTimes> {
    times_of(open_process(pid)?.as_raw_handle())
}

/// Private working set of a process; `None` before Windows 10 22H2.
pub fn private_kib(pid: u32) -> Option<u64> {
    let process = open_process(pid)?;
    let mut counters = PROCESS_MEMORY_COUNTERS_EX2::default();
    let size = u32::try_from(mem::size_of_val(&counters)).ok()?;
    counters.cb = size;
    // SAFETY: a structure of the given size, which starts with the fields of the structure that the call declares.
    let done = unsafe { K32GetProcessMemoryInfo(process.as_raw_handle(), (&raw mut counters).cast(), size) };
    (done != 0 && counters.PrivateWorkingSetSize > 0).then_some(counters.PrivateWorkingSetSize as u64 / 1024)
}

/// Resident memory of this process.
pub fn own_rss_kib() -> Option<u64> {
    let mut counters = PROCESS_MEMORY_COUNTERS::default();
    let size = u32::try_from(mem::size_of_val(&counters)).ok()?;
    // SAFETY: the pseudo handle of this process, and a structure of the given size.
    let done = unsafe { K32GetProcessMemoryInfo(GetCurrentProcess(), &raw mut counters, size) };
    (done != 0).then_some(counters.WorkingSetSize as u64 / 1024)
}

/// CPU time of the machine without idle time.
pub fn machine_times() -> io::Result<CpuTimes> {
    let [mut idle, mut kernel, mut user] = [NO_TIME; 3];
    // SAFETY: three structures to fill.
    if unsafe { GetSystemTimes(&raw mut idle, &raw mut kernel, &raw mut user) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // Kernel time includes idle time.
    let system_ns = ns_of(kernel).saturating_sub(ns_of(idle));
    Ok(CpuTimes { user_ns: ns_of(user), system_ns })
}

/// Total and available physical memory of the machine.
pub fn machine_memory_bytes() -> io::Result<(u64, u64)> {
    let mut status = MEMORYSTATUSEX::default();
    status.dwLength = u32::try_from(mem::size_of_val(&status)).map_err(io::Error::other)?;
    // SAFETY: the structure holds its own size.
    if unsafe { GlobalMemoryStatusEx(&raw mut status) } == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((status.ullTotalPhys, status.ullAvailPhys))
}

/// Size of the system file cache.
pub fn file_cache_bytes() -> Option<u64> {
    let mut about = PERFORMANCE_INFORMATION::default();
    let size = u32::try_from(mem::size_of_val(&about)).ok()?;
    // SAFETY: a structure of the given size.
    let done = unsafe { K32GetPerformanceInfo(&raw mut about, size) };
    (done != 0).then_some(())?;
    (about.SystemCache as u64).checked_mul(about.PageSize as u64)
}

fn system_info() -> SYSTEM_INFO {
    let mut info = SYSTEM_INFO::default();
    // SAFETY: a structure to fill; the call cannot fail.
    unsafe { GetSystemInfo(&raw mut info) };
    info
}

pub fn cpus() -> u32 {
    system_info().dwNumberOfProcessors
}

pub fn page_bytes() -> u64 {
    u64::from(system_info().dwPageSize)
}

/// A job object: usage of a group of processes, including ended processes.
#[derive(Debug)]
pub struct JobObject(OwnedHandle);

impl JobObject {
    /// A job object without processes and limits. Processes may break away from it.
    pub fn create() -> io::Result<Self> {
        // SAFETY: without a name and security attributes, the call creates a private object.
        let handle = unsafe { CreateJobObjectW(ptr::null(), ptr::null()) };
        if handle.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so the handle is open and has no other owner.
        let object = Self(unsafe { OwnedHandle::from_raw_handle(handle) });
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_BREAKAWAY_OK;
        let size = u32::try_from(mem::size_of_val(&limits)).map_err(io::Error::other)?;
        // SAFETY: an open job object, and a structure of the given class and size.
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

    /// Adds a process and all processes that it starts from now on.
    pub fn add(&self, process: &Child) -> io::Result<()> {
        // SAFETY: two open handles.
        let done = unsafe { AssignProcessToJobObject(self.0.as_raw_handle(), process.as_raw_handle()) };
        if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// CPU time of all current and past processes; `None` if no process was ever added.
    pub fn cpu_ns(&self) -> Option<u64> {
        let account: JOBOBJECT_BASIC_ACCOUNTING_INFORMATION =
            self.query(JobObjectBasicAccountingInformation)?;
        (account.TotalProcesses > 0).then_some(())?;
        let steps = account.TotalUserTime.checked_add(account.TotalKernelTime)?;
        u64::try_from(steps).ok()?.checked_mul(NS_PER_STEP)
    }

    /// Bytes read and written by all current and past processes, to files, pipes and devices.
    pub fn transferred_bytes(&self) -> Option<(u64, u64)> {
        let account: JOBOBJECT_BASIC_AND_IO_ACCOUNTING_INFORMATION =
            self.query(JobObjectBasicAndIoAccountingInformation)?;
        (account.BasicInfo.TotalProcesses > 0).then_some(())?;
        Some((account.IoInfo.ReadTransferCount, account.IoInfo.WriteTransferCount))
    }

    /// Reads a structure of a job object, which consists of integers only; `None` if the system does not know `class`.
    fn query<T: Default>(&self, class: i32) -> Option<T> {
        let mut found = T::default();
        let size = u32::try_from(mem::size_of::<T>()).ok()?;
        // SAFETY: an open job object, and a structure of the given size. A class of another size is refused.
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

/// Starts a command suspended, until [`resume`].
pub fn spawn_suspended(command: &mut Command) -> io::Result<Child> {
    command.creation_flags(CREATE_SUSPENDED).spawn()
}

/// Resumes a suspended command.
pub fn resume(child: &Child) -> io::Result<()> {
    // SAFETY: takes integers by value.
    let list = unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0) };
    if list == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the handle is open and has no other owner.
    let list = unsafe { OwnedHandle::from_raw_handle(list) };
    let mut entry = THREADENTRY32::default();
    entry.dwSize = u32::try_from(mem::size_of_val(&entry)).map_err(io::Error::other)?;
    // SAFETY: an open list, and a structure that holds its own size.
    let mut found = unsafe { Thread32First(list.as_raw_handle(), &raw mut entry) };
    while found != 0 {
        if entry.th32OwnerProcessID == child.id() {
            return resume_thread(entry.th32ThreadID);
        }
        // SAFETY: as above.
        found = unsafe { Thread32Next(list.as_raw_handle(), &raw mut entry) };
    }
    Err(io::Error::other("the first thread of the command is not listed"))
}

fn resume_thread(thread: u32) -> io::Result<()> {
    // SAFETY: takes integers by value.
    let handle = unsafe { OpenThread(THREAD_SUSPEND_RESUME, 0, thread) };
    if handle.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the handle is open and has no other owner.
    let handle = unsafe { OwnedHandle::from_raw_handle(handle) };
    // SAFETY: an open handle with the required access right.
    if unsafe { ResumeThread(handle.as_raw_handle()) } == u32::MAX {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Waits for the end of a child; false after the timeout.
pub fn wait_for_child(child: &Child, timeout: Duration) -> bool {
    let ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX - 1);
    // SAFETY: `child` holds the handle open.
    unsafe { WaitForSingleObject(child.as_raw_handle(), ms) != WAIT_TIMEOUT }
}

/// CPU time of a child, also after its end.
pub fn child_times(child: &Child) -> Option<CpuTimes> {
    times_of(child.as_raw_handle())
}

/// Set by Ctrl-C, Ctrl-Break and a closed console.
static IS_STOP_WANTED: AtomicBool = AtomicBool::new(false);

unsafe extern "system" fn on_ctrl_event(_key: u32) -> windows_sys::core::BOOL {
    IS_STOP_WANTED.store(true, Ordering::Relaxed);
    // 1 means handled, so this process does not end. All programs of the console receive the event, the job too.
    1
}

/// Handles console control events: they no longer end this process, and [`is_stop_wanted`] then returns true.
pub fn receive_ctrl_keys() -> io::Result<()> {
    // SAFETY: the handler is a static function and only stores to an atomic.
    let done = unsafe { SetConsoleCtrlHandler(Some(on_ctrl_event), 1) };
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether Ctrl-C or Ctrl-Break was pressed, or the console closed.
pub fn is_stop_wanted() -> bool {
    IS_STOP_WANTED.load(Ordering::Relaxed)
}

/// Runs `work`: Windows has no signals to block.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Duplicates the handle of standard output (1) or standard error (2).
pub fn duplicate(descriptor: i32) -> io::Result<File> {
    let clone = |handle: BorrowedHandle<'_>| handle.try_clone_to_owned().map(File::from);
    match descriptor {
        1 => clone(io::stdout().as_handle()),
        2 => clone(io::stderr().as_handle()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// No effect: the folders of a user are private by default.
pub fn for_owner(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// No effect: the folders of a user are private by default.
pub fn folder_for_owner() -> DirBuilder {
    DirBuilder::new()
}

/// Opens a symbolic link itself, not its target.
pub fn without_links(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT)
}

/// Files inherit the permissions of their folder on Windows.
pub const fn share_with_folder(_file: &File, _folder: &Metadata) -> io::Result<()> {
    Ok(())
}

/// Always false: named pipes are not in the file system of Windows.
pub const fn is_fifo(_found: &Metadata) -> bool {
    false
}

pub fn open_regular(path: &std::path::Path) -> io::Result<File> {
    File::open(path)
}

pub fn open_regular_to_lock(path: &std::path::Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

pub fn open_regular_to_append(path: &std::path::Path, creates: bool) -> io::Result<File> {
    OpenOptions::new().append(true).create(creates).open(path)
}

/// Always an error: a lock on Windows would prevent other processes from reading the file.
pub fn try_lock(_file: &File) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

pub const fn unlock(_file: &File) {}

/// Always true: on Windows, `Metadata` does not have the owner of a file.
pub const fn have_same_owner(_one: &Metadata, _other: &Metadata) -> bool {
    true
}

/// Always true: on Windows, `Metadata` does not have the owner of a file.
pub const fn is_mine(_found: &Metadata) -> bool {
    true
}

/// Always true: on Windows, `Metadata` does not have the owner of a file.
pub const fn is_own_file(_found: &Metadata) -> bool {
    true
}

/// Always false: on Windows, an open file cannot be deleted.
pub const fn is_removed(_found: &Metadata) -> bool {
    false
}

/// No effect: a new handle never replaces a closed standard stream.
pub const fn fill_standard_streams() {}

/// No effect: on Windows, a write to a closed pipe returns an error.
pub const fn ignore_signals_of_writes() {}

/// Nothing: Windows has no low limit of open files.
pub const fn reserve_descriptors() {}

/// Runs a command in place of this program: Windows cannot replace a program. Returns only if this fails.
pub fn exec(command: &mut Command, _ignored: Vec<i32>) -> io::Error {
    match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
}

/// No effect: a process on Windows is not ended by a signal.
pub const fn end_by_signal(_signal: i32) {}

pub const fn ignored_at_start() -> Vec<i32> {
    Vec::new()
}

pub const fn share_one_heap() {}

pub fn host_name() -> Option<String> {
    std::env::var("COMPUTERNAME").ok()
}

/// Name of the user of this process; empty if it is unknown.
pub fn user_name() -> String {
    std::env::var("USERNAME").unwrap_or_default()
}

pub fn parent_id() -> Option<u32> {
    use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};
    let own = Pid::from_u32(std::process::id());
    let mut system = System::new().ok()?;
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[own]), true, ProcessRefreshKind::nothing());
    system.process(own)?.parent().map(Pid::as_u32)
}

/// Always true: Windows cannot check this without a write.
pub fn takes_text_within(_stream: &std::fs::File, _time: std::time::Duration) -> bool {
    true
}
