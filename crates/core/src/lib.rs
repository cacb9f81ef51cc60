//! What a batch job really used, and what to run it on next time.
//!
//! One flow, each stage in its own file: sources fill a [`snapshot::Snapshot`], two of them differ by a
//! row of the [`metric`] table, rows go to a journal, and everything people read is computed from there.
//! `ARCHITECTURE.md` in the repository draws it.

pub mod allocation;
pub mod catalog;
pub mod cloud;
#[cfg_attr(not(target_os = "linux"), path = "elsewhere/companion.rs")]
pub mod companion;
pub mod compare;
pub mod config;
#[cfg_attr(not(target_os = "linux"), path = "elsewhere/counter.rs")]
pub mod counter;
pub mod csv;
pub mod decimal;
pub mod diff;
pub mod error;
pub mod export;
pub mod follow;
pub mod frame;
pub mod grid;
pub mod history;
pub mod host;
pub mod human;
#[cfg(target_os = "linux")]
pub mod job;
pub mod journal;
pub mod ledger;
#[cfg(target_os = "linux")]
pub mod memory;
pub mod meter;
pub mod metric;
pub mod network;
pub mod output;
pub mod paths;
pub mod reading;
pub mod recommend;
pub mod record;
pub mod recording;
pub mod recover;
pub mod report;
pub mod root;
pub mod sampler;
pub mod session;
pub mod shared;
pub mod snapshot;
pub mod source;
pub mod stats;
pub mod step;
#[cfg(target_os = "linux")]
pub mod stolen;
pub mod summary;
pub mod sys;
pub mod tracker;
#[cfg(target_os = "linux")]
pub mod tree;
pub mod wrap;
