//! `companion`: the sampler of another program's recording, started by that program and by nobody else.

use resource_tracker::companion;

use crate::failure::Failure;

/// Records until the host says stop, or is no more.
pub fn serve(orders: &str) -> Result<u8, Failure> {
    companion::serve(orders).map(|()| 0).map_err(|error| Failure::new(error, None))
}
