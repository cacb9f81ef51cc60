//! R binding of the core: functions for the R6 class of the package.
//!
//! In:  R values. Out: R values; errors are values too (`failure`), which the R function `core()` raises.
//! Not here: decisions, which the core makes for all fronts.
//!
//! The sampling thread never calls R.
#![expect(clippy::used_underscore_binding, reason = "in code made by extendr's macros")]
#![expect(clippy::needless_pass_by_value, reason = "arguments come from R as values")]

mod failure;
mod frame;
mod session;
mod value;

use extendr_api::prelude::*;

extendr_module! {
    mod resource_tracker;
    use frame;
    use session;
}
