//! Settings of a recording, validated before it starts.

use std::num::NonZeroU64;

use thiserror::Error;

/// Time between two rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval(NonZeroU64);

/// The reason why a setting is invalid.
#[derive(Debug, Error, PartialEq)]
pub enum ConfigError {
    #[error("interval `{seconds}` is out of range")]
    Interval { seconds: f64 },
    #[error("backend `{name}` is not available on this system")]
    Backend { name: String },
}

impl ConfigError {
    /// What the user can do about the invalid setting.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Interval { .. } => "use 0.001 to 86400 seconds",
            Self::Backend { .. } if cfg!(target_os = "linux") => "use `procfs` or `sysinfo`",
            Self::Backend { .. } => "use `sysinfo`",
        }
    }
}

impl Interval {
    pub const DEFAULT: Self = Self(NonZeroU64::new(1_000_000_000).expect("not zero"));

    /// Accepts 0.001 to 86,400 seconds.
    pub fn from_seconds(seconds: f64) -> Result<Self, ConfigError> {
        let out_of_range = ConfigError::Interval { seconds };
        if !(0.001..=86_400.0).contains(&seconds) {
            return Err(out_of_range);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 10^6 and 10^14 by the check above"
        )]
        let ns = (seconds * 1e9).round() as u64;
        NonZeroU64::new(ns).map(Self).ok_or(out_of_range)
    }

    /// The interval in nanoseconds.
    pub const fn ns(self) -> NonZeroU64 {
        self.0
    }

    /// The interval in seconds.
    #[expect(clippy::cast_precision_loss, reason = "at most 10^14, exact in a double")]
    pub fn seconds(self) -> f64 {
        self.0.get() as f64 / 1e9
    }
}

/// Sources for the job's CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuSource {
    /// The best available source: inherited perf counter, cgroup, `/proc`.
    #[default]
    Best,
    /// As `Best`, without the inherited perf counter.
    Cgroup,
    /// Only `/proc` and the times of reaped children.
    Procfs,
}

/// The interface that reads the machine and the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Linux files and counters. Exact, also for processes that end between two samples.
    Procfs,
    /// The crate sysinfo, for all systems. Misses processes that end between two samples.
    Sysinfo,
}

impl Backend {
    /// The default of this system.
    pub const BEST: Self = if cfg!(target_os = "linux") { Self::Procfs } else { Self::Sysinfo };

    /// Environment variable that selects a backend.
    pub const VARIABLE: &str = "RESOURCE_TRACKER_BACKEND";

    /// Name in recordings and options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Procfs => "procfs",
            Self::Sysinfo => "sysinfo",
        }
    }

    /// The backend with this name. Fails if this system does not have it.
    pub fn from_name(name: &str) -> Result<Self, ConfigError> {
        let all = [Self::Sysinfo, Self::BEST];
        let found = all.into_iter().find(|backend| backend.name() == name);
        found.ok_or_else(|| ConfigError::Backend { name: name.to_owned() })
    }

    /// The backend that the environment variable names; without the variable, the default of this system.
    pub fn from_env() -> Result<Self, ConfigError> {
        match std::env::var_os(Self::VARIABLE).filter(|name| !name.is_empty()) {
            Some(name) => Self::from_name(&name.to_string_lossy()),
            None => Ok(Self::BEST),
        }
    }
}

/// Settings of a recording.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Config {
    pub interval: Interval,
    /// Include descendants of the process.
    pub children: bool,
    /// Record the process table.
    pub track_processes: bool,
    /// Record the system table.
    pub track_system: bool,
    pub cpu_source: CpuSource,
    pub backend: Backend,
    /// Follow memory between rows. Otherwise peaks between rows are known only from high-water marks.
    pub memory_between_rows: bool,
    /// In-process mode. The host may close or reuse any descriptor, so the tracker keeps few descriptors open.
    pub in_process: bool,
    /// Reset the high-water mark of this process at the start, so that a recording of a few milliseconds has an exact
    /// peak. The process then reads a lower `ru_maxrss` of itself.
    pub resets_peak: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interval: Interval::DEFAULT,
            children: true,
            track_processes: true,
            track_system: true,
            cpu_source: CpuSource::Best,
            backend: Backend::BEST,
            memory_between_rows: true,
            in_process: false,
            resets_peak: false,
        }
    }
}

impl Config {
    /// Environment variable that switches off samples of memory between rows.
    pub const ROWS_ONLY_VARIABLE: &str = "RESOURCE_TRACKER_ROWS_ONLY";

    /// The defaults, with the settings of the environment for trackers inside Python and R.
    pub fn from_env() -> Self {
        let is_off = |value: &std::ffi::OsString| value.is_empty() || value == "0" || value == "false";
        let rows_only = std::env::var_os(Self::ROWS_ONLY_VARIABLE).is_some_and(|value| !is_off(&value));
        Self { memory_between_rows: !rows_only, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_are_found_by_name() {
        for backend in [Backend::BEST, Backend::Sysinfo] {
            assert_eq!(Backend::from_name(backend.name()), Ok(backend));
        }
        for wrong in ["", "psutil", "Procfs"] {
            assert!(Backend::from_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn interval_must_be_in_range() {
        assert_eq!(Interval::from_seconds(0.001).map(|interval| interval.ns().get()), Ok(1_000_000));
        assert_eq!(Interval::from_seconds(86_400.0).map(Interval::seconds), Ok(86_400.0));
        for wrong in [0.0, -1.0, 0.000_999, 86_401.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(Interval::from_seconds(wrong).is_err(), "{wrong}");
        }
    }
}
