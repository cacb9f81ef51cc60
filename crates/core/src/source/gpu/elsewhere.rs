//! GPUs of systems other than Linux: none is read yet, as if there were none.

use super::{GpuReading, Question};
use crate::root::Root;
use crate::snapshot::Moment;

/// Reads all GPUs of a host; none can be made.
#[derive(Debug)]
pub struct Reader {
    never: std::convert::Infallible,
}

impl Reader {
    /// `None`.
    #[must_use]
    pub fn open(_root: &Root, _may_start_processes: bool) -> Option<Self> {
        None
    }

    /// Looks at all GPUs.
    pub fn read(&mut self, _root: &Root, _question: &Question, _at: Moment) -> GpuReading {
        match self.never {}
    }
}

pub(super) fn names_by_kernel(_root: &Root) -> Option<Vec<String>> {
    None
}
