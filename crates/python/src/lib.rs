//! Python binding of the core: `resource_tracker._native`.
//!
//! In:  Python values. Out: Python values; errors of the core become Python exceptions.
//! Not here: decisions, which the core makes for all fronts.
//!
//! The GIL is released around every read, write and wait. The sampling thread never takes it.

mod arrow;
mod column;
mod error;
mod fleet;
mod functions;
mod readings;
mod session;
mod value;

use pyo3::prelude::*;

/// Native part of `resource_tracker`; programs import the package's modules instead.
#[pymodule]
mod _native {
    use pyo3::exceptions::PyImportError;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        if crate::arrow::is_main_interpreter(module.py()) {
            return Ok(());
        }
        Err(PyImportError::new_err(
            "resource_tracker does not support subinterpreters; a tracker in the main interpreter measures the whole process",
        ))
    }

    #[pymodule_export]
    use crate::arrow::arrow_stream;
    #[pymodule_export]
    use crate::column::{Column, number_as_text, read_csv, write_csv};
    #[pymodule_export]
    use crate::fleet::Fleet;
    #[pymodule_export]
    use crate::functions::{
        aggregate_stats, allocation_checks, cloud_info, history, human_duration, human_memory,
        instance_price, is_partition, keeper_request, mark, metrics, recommended_servers, round_memory,
        save_text, server_info, stats_of_step, step_history, step_stats, version, zfs_pools,
    };
    #[pymodule_export]
    use crate::readings::{Meter, process_stats, system_stats};
    #[pymodule_export]
    use crate::session::Session;
}
