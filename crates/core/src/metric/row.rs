//! A row of a recording: a cell a metric, and one a GPU for those that every GPU has.

use super::{FIRST_OF_GPU, Metric};

/// The cells of one GPU, in the order of [`Metric::PER_GPU`].
pub type GpuCells = [Option<f64>; Metric::PER_GPU.len()];

/// One tick of a recording: a cell for every metric, `None` where nothing was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    cells: [Option<f64>; FIRST_OF_GPU],
    /// Every GPU, numbered as in `run.gpus`.
    pub gpus: Vec<GpuCells>,
}

impl Default for Row {
    fn default() -> Self {
        Self { cells: [None; FIRST_OF_GPU], gpus: Vec::new() }
    }
}

impl Row {
    /// The row of these cells, without a GPU.
    #[must_use]
    pub fn of(mut cell: impl FnMut(Metric) -> Option<f64>) -> Self {
        let mut row = Self::default();
        for metric in Metric::ONCE {
            row.set(*metric, cell(*metric));
        }
        row
    }

    /// The same with these GPUs.
    #[must_use]
    pub fn with_gpus(self, gpus: Vec<GpuCells>) -> Self {
        Self { gpus, ..self }
    }

    /// The cell of a metric; those that every GPU has are in [`Row::gpus`].
    #[must_use]
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.cells.get(metric as usize).copied().flatten()
    }

    /// The cell of a metric that every GPU has.
    #[must_use]
    pub fn get_of_gpu(&self, metric: Metric, gpu: usize) -> Option<f64> {
        self.gpus.get(gpu)?.get(metric.place_of_gpu()?).copied().flatten()
    }

    /// The cells of [`Metric::ONCE`], in that order.
    #[must_use]
    pub const fn cells(&self) -> &[Option<f64>] {
        &self.cells
    }

    /// Fills the cell of a metric.
    pub fn set(&mut self, metric: Metric, value: Option<f64>) {
        if let Some(cell) = self.cells.get_mut(metric as usize) {
            *cell = value;
        }
    }
}
