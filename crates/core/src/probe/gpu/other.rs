//! Systems other than Linux: GPUs are not supported yet and are reported as absent.

use super::{GpuReading, Question};
use crate::os::Moment;
use crate::os::root::Root;

/// No value of this type exists.
#[derive(Debug)]
pub enum Reader {}

impl Reader {
    pub const fn open(_root: &Root) -> Option<Self> {
        None
    }

    pub fn read(&mut self, _root: &Root, _question: &Question, _at: Moment) -> GpuReading {
        match *self {}
    }
}

pub(super) const fn names_by_kernel(_root: &Root) -> Option<Vec<String>> {
    None
}
