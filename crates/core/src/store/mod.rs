//! Storage of rows, on disk and in memory: journal, recordings, history, tables and statistics.

pub mod cpu_profile;
pub mod csv;
pub mod decimal;
pub mod export;
pub mod frame;
pub mod history;
pub mod journal;
pub mod plausible;
pub mod recent_memory;
pub mod recording;
pub mod recover;
pub mod row_sink;
pub mod rows;
pub mod stats;
pub mod summary;
