//! The core for R: what the R6 class of the package calls.
//!
//! In:  R values. Out: R values; an error of the core is a value too (`failure`), which R raises in one place.
//! Not here: anything that decides; what two languages need is done once, in the core.
//!
//! The sampling thread never calls R, so R is free to do what it likes meanwhile.
#![expect(missing_docs, clippy::used_underscore_binding, reason = "in what extendr's macros make")]
#![expect(clippy::needless_pass_by_value, reason = "arguments come from R as values")]

mod failure;
mod frame;
mod session;
mod value;

use extendr_api::prelude::*;

extendr_module! {
    mod resource_tracker;
    use session;
}
