//! What a user may choose about a recording, checked before anything starts.

use std::num::NonZeroU64;

use thiserror::Error;

/// Time between two rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval(NonZeroU64);

/// Why a setting cannot be used.
#[derive(Debug, Error, PartialEq)]
pub enum ConfigError {
    /// Not a length of time that can be kept.
    #[error("interval `{seconds}` is out of range")]
    Interval {
        /// What was asked for.
        seconds: f64,
    },
    /// No backend of that name, or none on this system.
    #[error("there is no backend `{name}` here")]
    Backend {
        /// What was asked for.
        name: String,
    },
}

impl ConfigError {
    /// What can be done about it.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Interval { .. } => "give seconds between 0.001 and 86400",
            Self::Backend { .. } if cfg!(target_os = "linux") => "there are `procfs` and `sysinfo`",
            Self::Backend { .. } => "on this system there is `sysinfo`",
        }
    }
}

impl Interval {
    /// One second.
    pub const DEFAULT: Self = Self(NonZeroU64::new(1_000_000_000).expect("not zero"));

    /// From seconds, 0.001 to 86,400.
    ///
    /// # Errors
    /// For anything else, NaN and infinity included.
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

    /// In nanoseconds.
    #[must_use]
    pub const fn ns(self) -> NonZeroU64 {
        self.0
    }

    /// In seconds.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "at most 10^14, exact in a double")]
    pub fn seconds(self) -> f64 {
        self.0.get() as f64 / 1e9
    }
}

/// Which sources of the job's CPU time may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuSource {
    /// The inherited counter, else a cgroup, else `/proc`.
    #[default]
    Best,
    /// Not the inherited counter.
    Cgroup,
    /// Neither counter nor cgroup: only what `/proc` and waiting tell.
    Procfs,
}

/// What reads the machine and the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Linux's own files and counters: exact, also for processes that end between two looks.
    Procfs,
    /// What every system can tell of the processes that are there at a look.
    Sysinfo,
}

impl Backend {
    /// The best one of this system.
    pub const BEST: Self = if cfg!(target_os = "linux") { Self::Procfs } else { Self::Sysinfo };

    /// The variable that names one.
    pub const VARIABLE: &str = "RESOURCE_TRACKER_BACKEND";

    /// As recordings and options name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Procfs => "procfs",
            Self::Sysinfo => "sysinfo",
        }
    }

    /// The backend of that name, if this system has it.
    ///
    /// # Errors
    /// [`ConfigError::Backend`] where it does not.
    pub fn from_name(name: &str) -> Result<Self, ConfigError> {
        let all = [Self::Sysinfo, Self::BEST];
        let found = all.into_iter().find(|backend| backend.name() == name);
        found.ok_or_else(|| ConfigError::Backend { name: name.to_owned() })
    }

    /// The one that the environment names, else the best.
    ///
    /// # Errors
    /// [`ConfigError::Backend`] where this system does not have it.
    pub fn from_env() -> Result<Self, ConfigError> {
        match std::env::var_os(Self::VARIABLE).filter(|name| !name.is_empty()) {
            Some(name) => Self::from_name(&name.to_string_lossy()),
            None => Ok(Self::BEST),
        }
    }
}

/// What to record.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what a user switches on and off")]
pub struct Config {
    /// Time between two rows.
    pub interval: Interval,
    /// Follow descendants too.
    pub children: bool,
    /// Record the process table.
    pub track_processes: bool,
    /// Record the system table.
    pub track_system: bool,
    /// Where CPU time may come from.
    pub cpu_source: CpuSource,
    /// What reads the machine and the job.
    pub backend: Backend,
    /// We run inside of somebody else's process, who may close or reuse any descriptor: as few as can be are kept.
    pub as_guest: bool,
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
            as_guest: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_has_its_name_and_there_is_no_other() {
        for backend in [Backend::BEST, Backend::Sysinfo] {
            assert_eq!(Backend::from_name(backend.name()), Ok(backend));
        }
        for wrong in ["", "psutil", "Procfs"] {
            assert!(Backend::from_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_lengths_that_can_be_kept_are_taken() {
        assert_eq!(Interval::from_seconds(0.001).map(|interval| interval.ns().get()), Ok(1_000_000));
        assert_eq!(Interval::from_seconds(86_400.0).map(Interval::seconds), Ok(86_400.0));
        for wrong in [0.0, -1.0, 0.000_999, 86_401.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(Interval::from_seconds(wrong).is_err(), "{wrong}");
        }
    }
}
