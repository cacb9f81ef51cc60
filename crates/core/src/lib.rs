//! What a batch job really used, and what to run it on next time.
//!
//! The core of resource-tracker: the fronts (the command, Python, R) convert and print, and decide nothing. Its modules
//! are private but for [`human`], one folder per stage of the flow (`ARCHITECTURE.md`); this page is the whole API.
//!
//! ```
//! use resource_tracker::{Config, Plan, Session};
//!
//! let mut session = Session::new(Plan::new(Config::default(), std::process::id()));
//! session.start()?;
//! let total: u64 = (0..1_000_000).sum();
//! session.stop();
//! println!("{total}, peak {:?} kB", session.stats()?.get("process_memory", "max"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// Every module is declared twice: public with the feature `internals`, for tests and benches outside the crate, and
// private for users.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod analysis;
#[cfg(not(feature = "internals"))]
mod analysis;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod config;
#[cfg(not(feature = "internals"))]
mod config;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod error;
#[cfg(not(feature = "internals"))]
mod error;
#[cfg(all(feature = "internals", feature = "parquet"))]
#[doc(hidden)]
pub mod fleet;
#[cfg(all(not(feature = "internals"), feature = "parquet"))]
mod fleet;
pub mod human;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod job;
#[cfg(not(feature = "internals"))]
mod job;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod market;
#[cfg(not(feature = "internals"))]
mod market;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod metric;
#[cfg(not(feature = "internals"))]
mod metric;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod os;
#[cfg(not(feature = "internals"))]
mod os;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod probe;
#[cfg(not(feature = "internals"))]
mod probe;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod report;
#[cfg(not(feature = "internals"))]
mod report;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod run;
#[cfg(not(feature = "internals"))]
mod run;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod sampler;
#[cfg(not(feature = "internals"))]
mod sampler;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod store;
#[cfg(not(feature = "internals"))]
mod store;

pub use analysis::allocation::CHECKS as ALLOCATION_CHECKS;
pub use analysis::check::{Budget, Check};
pub use analysis::compare::{Comparison, Selection};
pub use analysis::recommend::{Advice, AdviceOptions, RecommendError, Resources, Warning};
pub use config::{Backend, Config, ConfigError, CpuSource, Interval};
pub use error::{SourceError, with_causes};
#[cfg(feature = "parquet")]
pub use fleet::{By as FleetBy, Fleet, FleetError, Telemetry};
pub use market::catalog::{
    Answer, Catalog, CatalogError, Filters, Query, Server, Settings as CatalogSettings,
    Source as CatalogSource,
};
pub use market::cloud::CloudInfo;
pub use metric::{Metric, Row, Table, Unit};
pub use os::output::Output;
pub use os::paths::config_folder;
pub use os::{is_own_file, parent_id, without_signals};
pub use probe::host::server_info;
pub use probe::snapshot::DiskSpace;
pub use report::Context as ReportContext;
pub use run::command::{Done as FinishedJob, Hooks, WrapError, attach, run as run_command, watch_machine};
pub use run::info::HostInfo;
pub use run::inputs::Inputs;
pub use run::meter::Meter;
pub use run::plan::Plan;
pub use run::session::{Note as SessionNote, ReportOptions, Session, SessionError};
pub use run::shared::Shared;
pub use run::sidecar::{SidecarError, serve as serve_sidecar};
pub use run::start_up::start_up;
pub use run::tracker::TrackerError;
pub use sampler::Sink;
pub use sampler::progress::State;
pub use sampler::reading::{ProcessReading, SystemReading};
pub use store::csv::{AnyColumn, Other as OtherCell};
pub use store::decimal::write as write_decimal;
pub use store::export::{ExportError, Format as ExportFormat, export};
pub use store::frame::{Column, CombinedOptions, Frame, FrameError};
pub use store::history::{Entry as HistoryEntry, History, HistoryError};
pub use store::recording::{Head, LoadError, Recording, Run, SnapshotError, Status};
pub use store::row_sink::{RowFormat, RowSink};
pub use store::rows::Rows;
pub use store::stats::{Aggregate, Spec, Stats, StatsError};
pub use store::summary::Summary;

/// Version of resource-tracker, as recordings and reports show it.
pub(crate) const PROGRAM_VERSION: &str = env!("CARGO_PKG_VERSION");
