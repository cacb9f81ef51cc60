//! The core for Python: `resource_tracker._native`.
//!
//! In:  Python values. Out: Python values, and the core's errors as Python's own.
//! Not here: anything that decides; what two languages need is done once, in the core.
//!
//! The interpreter's lock is released around all that reads, writes or waits, and the sampling thread never takes it.

mod arrow;
mod column;
mod error;
mod facts;
mod looks;
mod session;
mod value;

use pyo3::prelude::*;

/// The native part of `resource_tracker`; use the package's own modules.
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
            "resource_tracker does not support subinterpreters: use it in the main interpreter, which sees them all",
        ))
    }

    #[pymodule_export]
    use crate::arrow::arrow_stream;
    #[pymodule_export]
    use crate::column::{Column, number_as_text, read_csv, write_csv};
    #[pymodule_export]
    use crate::facts::{
        aggregate_stats, allocation_checks, cloud_info, instance_price, is_partition, keeper_request,
        metrics, recommended_servers, round_memory, save_text, server_info, stats_of_step, step_history,
        step_stats, version, zfs_pools,
    };
    #[pymodule_export]
    use crate::looks::{Meter, process_stats, system_stats};
    #[pymodule_export]
    use crate::session::Session;
}
