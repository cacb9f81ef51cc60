//! Calls of NVML that the newer ones replaced, for drivers that have only these.
//!
//! In:  a device. Out: its memory, its processes.
//!
//! The second file with `unsafe` in this crate: the safe wrapper has no way to these functions, and a driver of 2020
//! has no others (`nvmlDeviceGetMemoryInfo_v2` came with 510, `…RunningProcesses_v2` with 470).
#![expect(unsafe_code, reason = "functions of a C library that its safe wrapper leaves out")]

use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlMemory_t, nvmlProcessInfo_v1_t, nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE,
    nvmlReturn_enum_NVML_SUCCESS,
};

use super::share::GpuProcess;

/// More processes than this on one GPU are not believed.
const MOST_PROCESSES: u32 = 65_536;

/// Processes that may start between two calls.
const HEADROOM: u32 = 8;

/// The functions, found once.
pub(super) struct OldCalls {
    library: &'static NvmlLib,
}

impl std::fmt::Debug for OldCalls {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("OldCalls").finish_non_exhaustive()
    }
}

impl OldCalls {
    /// Looked up when the first newer call is missing.
    pub(super) fn loaded(calls: &mut Option<Self>) -> Option<&Self> {
        if calls.is_none() {
            // SAFETY: the wrapper has loaded this very library already, so no code runs now that did not run then.
            let library = unsafe { NvmlLib::new("libnvidia-ml.so.1") }.ok()?;
            // Never unloaded, like the wrapper's own.
            *calls = Some(Self { library: Box::leak(Box::new(library)) });
        }
        calls.as_ref()
    }

    /// Total and used bytes.
    pub(super) fn memory(&self, device: &Device<'static>) -> Option<(u64, u64)> {
        let call = self.library.nvmlDeviceGetMemoryInfo.as_ref().ok()?;
        let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
        // SAFETY: the handle came from this library, which stays initialised, and is only handed back to it.
        let handle = unsafe { device.handle() };
        // SAFETY: the function fills one such structure, which lives until it returns.
        let code = unsafe { call(handle, &raw mut memory) };
        (code == nvmlReturn_enum_NVML_SUCCESS).then_some((memory.total, memory.used))
    }

    /// Processes with a compute context.
    pub(super) fn compute_processes(&self, device: &Device<'static>) -> Option<Vec<GpuProcess>> {
        let call = self.library.nvmlDeviceGetComputeRunningProcesses.as_ref().ok()?;
        // SAFETY: the handle came from this library, which stays initialised, and is only handed back to it.
        let handle = unsafe { device.handle() };
        let mut count = 0;
        // SAFETY: with a count of 0 the function writes no process, only how many there are.
        let code = unsafe { call(handle, &raw mut count, std::ptr::null_mut()) };
        if code == nvmlReturn_enum_NVML_SUCCESS {
            return Some(Vec::new());
        }
        if code != nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE || count > MOST_PROCESSES {
            return None;
        }
        count += HEADROOM;
        let mut found = vec![nvmlProcessInfo_v1_t { pid: 0, usedGpuMemory: 0 }; count as usize];
        // SAFETY: `found` has room for `count` processes, and the function writes no more than that.
        let code = unsafe { call(handle, &raw mut count, found.as_mut_ptr()) };
        if code != nvmlReturn_enum_NVML_SUCCESS {
            return None;
        }
        found.truncate(count as usize);
        // All bits set: `NVML_VALUE_NOT_AVAILABLE`.
        let known = |bytes: u64| (bytes != u64::MAX).then_some(bytes);
        let process =
            |info: &nvmlProcessInfo_v1_t| GpuProcess { pid: info.pid, vram_bytes: known(info.usedGpuMemory) };
        Some(found.iter().map(process).collect())
    }
}
