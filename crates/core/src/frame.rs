//! Tables in memory: named columns of numbers, eight bytes a cell.
//!
//! In:  rows of the metric table, or columns read from a file.
//! Out: [`Frame`], its slices, and the combined table of a recording.
//! Not here: text forms (`csv`, `recording`), figures over a column (`stats`, `summary`).

use std::collections::HashSet;
use std::ops::Range;

use thiserror::Error;

use crate::metric::{Metric, Row, Table};

/// Why a frame cannot do what was asked of it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// There is no column of that name.
    #[error("column `{name}` not found")]
    UnknownColumn {
        /// As it was asked for.
        name: String,
    },
    /// Two columns would have one name.
    #[error("column `{name}` exists twice")]
    DuplicateColumn {
        /// The name in question.
        name: String,
    },
    /// A column does not fit beside the others.
    #[error("column `{name}` has {found} cells, the frame has {expected} rows")]
    Length {
        /// The column that does not fit.
        name: String,
        /// Its length.
        found: usize,
        /// The frame's length.
        expected: usize,
    },
}

/// One named column. A cell that was not measured is stored as NaN and given out as `None`.
#[derive(Clone, Debug)]
pub struct Column {
    name: String,
    metric: Option<Metric>,
    /// The GPU that it is a metric of, for those that every GPU has.
    gpu: Option<usize>,
    whole: bool,
    cells: Vec<f64>,
}

impl Column {
    /// A column of any name; cells that are not finite count as missing.
    #[must_use]
    pub fn new(name: impl Into<String>, mut cells: Vec<f64>) -> Self {
        for cell in &mut cells {
            *cell = stored(Some(*cell));
        }
        Self { name: name.into(), metric: None, gpu: None, whole: false, cells }
    }

    /// An empty column of the metric table.
    #[must_use]
    pub fn for_metric(metric: Metric) -> Self {
        Self {
            name: metric.column().to_owned(),
            metric: Some(metric),
            gpu: None,
            whole: metric.decimals() == 0,
            cells: Vec::new(),
        }
    }

    /// The column of one GPU, with as many missing cells.
    fn for_gpu(metric: Metric, gpu: usize, rows: usize) -> Self {
        let cells = vec![f64::NAN; rows];
        Self { name: metric.column_of_gpu(gpu), gpu: Some(gpu), cells, ..Self::for_metric(metric) }
    }

    /// The same cells as a column that a table knows by this name, if it does.
    #[must_use]
    pub fn of_table(mut self, table: Table) -> Self {
        self.metric = Metric::find(table, &self.name);
        if table == Table::Extra
            && let Some((metric, gpu)) = Metric::find_of_gpu(&self.name)
        {
            (self.metric, self.gpu) = (Some(metric), Some(gpu));
        }
        if let Some(metric) = self.metric {
            self.whole = metric.decimals() == 0;
        }
        self
    }

    /// The same cells, written without a point where they are whole.
    #[must_use]
    pub fn with_whole(mut self, whole: bool) -> Self {
        self.whole = whole;
        self
    }

    /// The column's name in this frame.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the column measures, where it comes from the metric table.
    #[must_use]
    pub fn metric(&self) -> Option<Metric> {
        self.metric
    }

    /// Holds whole numbers: CSV and JSON write them without a point.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Number of cells, missing ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Has no cells.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The cell of a row; `None` when it is missing or there is no such row.
    #[must_use]
    pub fn get(&self, row: usize) -> Option<f64> {
        self.cells.get(row).copied().filter(|cell| !cell.is_nan())
    }

    /// Every cell in order, `None` for the missing.
    pub fn iter(&self) -> impl Iterator<Item = Option<f64>> {
        self.cells.iter().map(|cell| Some(*cell).filter(|cell| !cell.is_nan()))
    }

    /// Every cell that was measured, in order.
    pub fn present(&self) -> impl Iterator<Item = f64> {
        self.cells.iter().copied().filter(|cell| !cell.is_nan())
    }

    /// The cells as they are stored, NaN for the missing; for fronts that take whole buffers.
    #[must_use]
    pub fn as_slice(&self) -> &[f64] {
        &self.cells
    }

    /// The cells themselves, NaN for the missing.
    #[must_use]
    pub fn into_cells(self) -> Vec<f64> {
        self.cells
    }

    /// Adds a cell below the last.
    pub fn push(&mut self, cell: Option<f64>) {
        self.cells.push(stored(cell));
    }

    fn slice(&self, rows: Range<usize>) -> Self {
        let cells = self.cells.get(rows).unwrap_or_default().to_vec();
        Self { name: self.name.clone(), cells, ..*self }
    }
}

fn stored(cell: Option<f64>) -> f64 {
    cell.filter(|cell| cell.is_finite()).unwrap_or(f64::NAN)
}

impl PartialEq for Column {
    /// Same name and same cells; two missing cells are equal.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.len() == other.len() && self.iter().eq(other.iter())
    }
}

/// Columns of one length, in an order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    columns: Vec<Column>,
}

impl Frame {
    /// An empty table with the columns that the metric table gives it.
    #[must_use]
    pub fn for_table(table: Table) -> Self {
        Self { columns: table.metrics().map(Column::for_metric).collect() }
    }

    /// Columns as they are, if they fit together.
    ///
    /// # Errors
    ///
    /// When lengths differ or a name comes twice.
    pub fn from_columns(columns: Vec<Column>) -> Result<Self, FrameError> {
        let mut names = HashSet::new();
        let expected = columns.first().map_or(0, Column::len);
        for column in &columns {
            if !names.insert(column.name.as_str()) {
                return Err(FrameError::DuplicateColumn { name: column.name.clone() });
            }
            if column.len() != expected {
                return Err(FrameError::Length { name: column.name.clone(), found: column.len(), expected });
            }
        }
        Ok(Self { columns })
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.columns.first().map_or(0, Column::len)
    }

    /// Has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All columns in order.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// All columns in order, for fronts that keep them apart.
    #[must_use]
    pub fn into_columns(self) -> Vec<Column> {
        self.columns
    }

    /// The columns' names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(Column::name)
    }

    /// The column of that name.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn column(&self, name: &str) -> Result<&Column, FrameError> {
        let found = self.columns.iter().find(|column| column.name == name);
        found.ok_or_else(|| FrameError::UnknownColumn { name: name.to_owned() })
    }

    /// The column of a metric, whatever it is called here.
    #[must_use]
    pub fn metric(&self, metric: Metric) -> Option<&Column> {
        self.columns.iter().find(|column| column.metric == Some(metric) && column.gpu.is_none())
    }

    /// The column of a metric that every GPU has.
    #[must_use]
    pub fn metric_of_gpu(&self, metric: Metric, gpu: usize) -> Option<&Column> {
        self.columns.iter().find(|column| column.metric == Some(metric) && column.gpu == Some(gpu))
    }

    /// Adds what a tick measured; columns that are no metric get a missing cell. A GPU that was not seen before adds
    /// its columns to the extra table.
    pub fn push(&mut self, row: &Row) {
        self.make_room_for_gpus(row.gpus.len());
        for column in &mut self.columns {
            column.push(column.metric.and_then(|metric| match column.gpu {
                Some(gpu) => row.get_of_gpu(metric, gpu),
                None => row.get(metric),
            }));
        }
    }

    fn make_room_for_gpus(&mut self, gpus: usize) {
        let known = self.columns.last().and_then(|column| column.gpu).map_or(0, |gpu| gpu + 1);
        if known >= gpus || self.metric(Metric::Elapsed).is_none() {
            return;
        }
        let rows = self.len();
        for gpu in known..gpus {
            self.columns.extend(Metric::PER_GPU.iter().map(|metric| Column::for_gpu(*metric, gpu, rows)));
        }
    }

    /// Adds a column on the right, or replaces the one of that name.
    ///
    /// # Errors
    ///
    /// When its length is not the frame's.
    pub fn set(&mut self, column: Column) -> Result<(), FrameError> {
        if !self.columns.is_empty() && column.len() != self.len() {
            let (found, expected) = (column.len(), self.len());
            return Err(FrameError::Length { name: column.name, found, expected });
        }
        match self.columns.iter_mut().find(|present| present.name == column.name) {
            Some(present) => *present = column,
            None => self.columns.push(column),
        }
        Ok(())
    }

    /// The rows of a range, as far as they exist.
    #[must_use]
    pub fn slice(&self, rows: Range<usize>) -> Self {
        let end = rows.end.min(self.len());
        let rows = rows.start.min(end)..end;
        Self { columns: self.columns.iter().map(|column| column.slice(rows.clone())).collect() }
    }
}

/// How the combined table names and counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CombinedOptions {
    /// Memory, VRAM and disk space in bytes instead of kB, MiB and GiB.
    pub bytes: bool,
    /// The names people read instead of the columns' own.
    pub human_names: bool,
    /// In place of `system_` or `System `.
    pub system_prefix: Option<String>,
    /// In place of `process_` or `Process `.
    pub process_prefix: Option<String>,
}

impl CombinedOptions {
    fn prefix(&self, table: Table) -> &str {
        let (given, human) = match table {
            Table::System => (&self.system_prefix, "System "),
            Table::Process => (&self.process_prefix, "Process "),
            Table::Every | Table::Extra | Table::Gpu => return "",
        };
        given.as_deref().unwrap_or(if self.human_names { human } else { table.prefix() })
    }

    fn name(&self, prefix: &str, column: &Column) -> String {
        let name =
            column.metric.filter(|_| self.human_names).map_or(column.name(), |metric| metric.human_name());
        format!("{prefix}{name}")
    }
}

/// Both tables side by side, row i of one beside row i of the other: `timestamp`, then the machine,
/// then the job. A table that is off has no columns; rows that only one side has are left out. Where the
/// prefixes asked for give two columns one name, the job's stands in the place of the machine's.
///
/// # Errors
///
/// When the columns of one table have several lengths.
pub fn combined(
    process: Option<&Frame>,
    system: Option<&Frame>,
    options: &CombinedOptions,
) -> Result<Frame, FrameError> {
    let tables = [(Table::System, system), (Table::Process, process)];
    let on = || tables.iter().filter_map(|(table, frame)| frame.map(|frame| (*table, frame)));
    let rows = on().map(|(_, frame)| frame.len()).min().unwrap_or(0);

    let mut both = Frame::default();
    if let Some(timestamp) = on().find_map(|(_, frame)| frame.metric(Metric::Timestamp)) {
        both.set(Column { name: options.name("", timestamp), ..timestamp.slice(0..rows) })?;
    }
    for (table, frame) in on() {
        let prefix = options.prefix(table);
        for column in frame.columns.iter().filter(|column| column.metric != Some(Metric::Timestamp)) {
            let mut copy = Column { name: options.name(prefix, column), ..column.slice(0..rows) };
            let factor =
                column.metric.filter(|_| options.bytes).and_then(|metric| metric.unit().byte_factor());
            if let Some(factor) = factor {
                copy.cells.iter_mut().for_each(|cell| *cell *= factor);
            }
            both.set(copy)?;
        }
    }
    Ok(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(timestamp: f64, memory_kib: Option<f64>) -> Row {
        let mut row = Row::default();
        row.set(Metric::Timestamp, Some(timestamp));
        row.set(Metric::ProcessMemory, memory_kib);
        row.set(Metric::DiskUsed, Some(1.5));
        row.set(Metric::SystemVram, Some(2.0));
        row
    }

    fn tables(rows: usize) -> (Frame, Frame) {
        let (mut process, mut system) = (Frame::for_table(Table::Process), Frame::for_table(Table::System));
        for number in 0..rows {
            #[expect(clippy::cast_precision_loss, reason = "a handful of rows")]
            let row = row(100.0 + number as f64, Some(1024.0));
            process.push(&row);
            system.push(&row);
        }
        (process, system)
    }

    #[test]
    fn what_was_not_measured_is_none_and_so_is_infinity() {
        let mut frame = Frame::for_table(Table::Process);
        frame.push(&row(1.0, None));
        frame.push(&row(2.0, Some(f64::INFINITY)));
        frame.push(&row(3.0, Some(0.0)));
        let cells: Vec<_> = frame.column("memory").unwrap().iter().collect();
        assert_eq!(cells, [None, None, Some(0.0)]);
        assert_eq!(frame.column("memory").unwrap().get(3), None);
    }

    #[test]
    fn a_gpu_that_comes_late_has_missing_cells_before_and_columns_in_the_extra_table_only() {
        let mut extra = Frame::for_table(Table::Extra);
        let once = extra.columns().len();
        extra.push(&row(1.0, None));
        let mut busy = [None; Metric::PER_GPU.len()];
        busy[Metric::GpuPower.place_of_gpu().unwrap()] = Some(70.5);
        let with = |gpus: Vec<_>| row(2.0, None).with_gpus(gpus);
        extra.push(&with(vec![busy]));
        extra.push(&with(vec![busy, busy]));
        extra.push(&row(4.0, None));
        assert_eq!(extra.columns().len(), once + 2 * Metric::PER_GPU.len());
        let power = |gpu| extra.metric_of_gpu(Metric::GpuPower, gpu).unwrap().iter().collect::<Vec<_>>();
        assert_eq!(power(0), [None, Some(70.5), Some(70.5), None]);
        assert_eq!(power(1), [None, None, Some(70.5), None]);
        assert_eq!(extra.column("gpu1_power").unwrap().iter().collect::<Vec<_>>(), power(1));
        let mut process = Frame::for_table(Table::Process);
        process.push(&with(vec![busy]));
        assert_eq!(process.columns().len(), 12);
    }

    #[test]
    fn a_slice_stops_at_the_ends() {
        let frame = tables(5).0;
        let times = |frame: &Frame| frame.column("timestamp").unwrap().present().collect::<Vec<_>>();
        assert_eq!(times(&frame.slice(0..2)), [100.0, 101.0]);
        assert_eq!(times(&frame.slice(3..99)), [103.0, 104.0]);
        assert_eq!((frame.slice(0..9).len(), frame.slice(7..9).len()), (5, 0));
        #[expect(clippy::reversed_empty_ranges, reason = "that is the case under test")]
        let backwards = frame.slice(4..2);
        assert!(backwards.is_empty() && backwards.columns().len() == 12);
    }

    #[test]
    fn a_column_that_is_missing_is_named() {
        let missing = tables(1).0.column("x").unwrap_err();
        assert_eq!(missing.to_string(), "column `x` not found");
    }

    #[test]
    fn a_column_of_another_length_is_refused() {
        let mut frame = tables(2).0;
        frame.set(Column::new("new", vec![1.0, 2.0])).unwrap();
        assert!(matches!(
            frame.set(Column::new("new", vec![1.0])),
            Err(FrameError::Length { found: 1, expected: 2, .. })
        ));
    }

    #[test]
    fn combined_has_timestamp_then_the_machine_then_the_job() {
        let (process, system) = tables(3);
        let frame = combined(Some(&process), Some(&system), &CombinedOptions::default()).unwrap();
        let names: Vec<_> = frame.names().collect();
        assert_eq!(names.len(), 1 + 20 + 11);
        assert_eq!(
            (names[0], names[1], names[20], names[21], names[31]),
            ("timestamp", "system_processes", "system_gpu_utilized", "process_pid", "process_gpu_utilized")
        );
    }

    #[test]
    fn combined_cuts_to_the_rows_that_both_sides_have() {
        let (process, _) = tables(3);
        let (_, system) = tables(2);
        assert_eq!(combined(Some(&process), Some(&system), &CombinedOptions::default()).unwrap().len(), 2);
    }

    #[test]
    fn a_table_that_is_off_has_no_columns() {
        let (process, system) = tables(2);
        let only = |process, system| combined(process, system, &CombinedOptions::default()).unwrap();
        assert!(only(Some(&process), None).names().skip(1).all(|name| name.starts_with("process_")));
        assert!(only(None, Some(&system)).names().skip(1).all(|name| name.starts_with("system_")));
        assert_eq!(only(None, Some(&system)).column("timestamp").unwrap().get(1), Some(101.0));
        assert!(only(None, None).columns().is_empty());
    }

    #[test]
    fn bytes_and_human_names_change_values_and_names_only_where_they_should() {
        let (process, system) = tables(1);
        let options = CombinedOptions { bytes: true, human_names: true, ..CombinedOptions::default() };
        let frame = combined(Some(&process), Some(&system), &options).unwrap();
        let cell = |name: &str| frame.column(name).unwrap().get(0);
        assert_eq!(cell("Timestamp"), Some(100.0));
        assert_eq!(cell("Process memory usage"), Some(1_048_576.0));
        assert_eq!(cell("System disk space used"), Some(1.5 * 1_073_741_824.0));
        assert_eq!(cell("System VRAM used"), Some(2_097_152.0));
        assert_eq!(cell("System processes"), None);
        let options = CombinedOptions { system_prefix: Some("host.".into()), ..CombinedOptions::default() };
        let frame = combined(Some(&process), Some(&system), &options).unwrap();
        assert!(frame.column("host.cpu_usage").is_ok() && frame.column("process_cpu_usage").is_ok());
    }

    #[test]
    fn where_names_collide_the_job_stands_in_the_place_of_the_machine() {
        let (process, system) = tables(1);
        let none = Some(String::new());
        let options =
            CombinedOptions { system_prefix: none.clone(), process_prefix: none, ..Default::default() };
        let frame = combined(Some(&process), Some(&system), &options).unwrap();
        let names: Vec<_> = frame.names().collect();
        assert_eq!((names.len(), names[1], names[2]), (1 + 20 + 5, "processes", "utime"));
        assert_eq!(frame.metric(Metric::ProcessUtime), frame.column("utime").ok());
        assert_eq!(frame.metric(Metric::SystemUtime), None);
    }
}
