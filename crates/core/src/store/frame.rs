//! Tables in memory: named columns of doubles.
//!
//! In:  rows of the metric table, or columns read from a file.
//! Out: [`Frame`], its slices, and the combined table of a recording.
//! Not here: text formats (`csv`, `recording`), statistics (`stats`, `summary`).

use std::collections::HashSet;
use std::ops::Range;

use thiserror::Error;

use crate::metric::{Metric, Row, Table};

/// Why a table cannot be built or read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("column `{name}` not found")]
    UnknownColumn { name: String },
    #[error("duplicate column `{name}`")]
    DuplicateColumn { name: String },
    #[error("column `{name}` has {found} cells, the frame has {expected} rows")]
    Length { name: String, found: usize, expected: usize },
}

/// A named column. A cell that was not measured is stored as NaN and returned as `None`.
#[derive(Clone, Debug)]
pub struct Column {
    name: String,
    metric: Option<Metric>,
    /// Index of the GPU, for a column of one GPU.
    gpu: Option<usize>,
    whole: bool,
    cells: Vec<f64>,
}

impl Column {
    /// A column without a metric. NaN and infinite cells become missing cells.
    pub fn new(name: impl Into<String>, mut cells: Vec<f64>) -> Self {
        for cell in &mut cells {
            *cell = stored(Some(*cell));
        }
        Self { name: name.into(), metric: None, gpu: None, whole: false, cells }
    }

    fn for_metric(metric: Metric) -> Self {
        Self {
            name: metric.column().to_owned(),
            metric: Some(metric),
            gpu: None,
            whole: metric.decimals() == 0,
            cells: Vec::new(),
        }
    }

    /// A column for one GPU, with `rows` missing cells.
    fn for_gpu(metric: Metric, gpu: usize, rows: usize) -> Self {
        let cells = vec![f64::NAN; rows];
        Self { name: metric.column_of_gpu(gpu), gpu: Some(gpu), cells, ..Self::for_metric(metric) }
    }

    /// Sets the metric of the column if `table` has a column of the same name.
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

    /// Sets whether whole numbers are written without a decimal point.
    pub fn with_whole(mut self, whole: bool) -> Self {
        self.whole = whole;
        self
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// `None` for a column that is not in the metric table.
    pub fn metric(&self) -> Option<Metric> {
        self.metric
    }

    /// Whether CSV and JSON write whole numbers of this column without a decimal point.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    pub fn len(&self) -> usize {
        self.cells.len()
    }

    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The cell of a row; `None` if the cell is missing or the row does not exist.
    pub fn get(&self, row: usize) -> Option<f64> {
        self.cells.get(row).copied().filter(|cell| !cell.is_nan())
    }

    /// All cells. Missing cells are `None`.
    pub fn iter(&self) -> impl Iterator<Item = Option<f64>> {
        self.cells.iter().map(|cell| Some(*cell).filter(|cell| !cell.is_nan()))
    }

    /// All measured cells, without missing cells.
    pub fn present(&self) -> impl Iterator<Item = f64> {
        self.cells.iter().copied().filter(|cell| !cell.is_nan())
    }

    /// All cells. Missing cells are NaN.
    pub fn as_slice(&self) -> &[f64] {
        &self.cells
    }

    /// All cells. Missing cells are NaN.
    pub fn into_cells(self) -> Vec<f64> {
        self.cells
    }

    fn push(&mut self, cell: Option<f64>) {
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
    /// Compares names and cells. Two missing cells are equal.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.len() == other.len() && self.iter().eq(other.iter())
    }
}

/// Ordered columns of the same length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    columns: Vec<Column>,
}

impl Frame {
    /// A frame without rows that has the columns of `table`.
    pub fn for_table(table: Table) -> Self {
        Self { columns: table.metrics().map(Column::for_metric).collect() }
    }

    /// Fails if two columns have the same name or different lengths.
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

    pub fn len(&self) -> usize {
        self.columns.first().map_or(0, Column::len)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub fn into_columns(self) -> Vec<Column> {
        self.columns
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(Column::name)
    }

    pub fn column(&self, name: &str) -> Result<&Column, FrameError> {
        let found = self.columns.iter().find(|column| column.name == name);
        found.ok_or_else(|| FrameError::UnknownColumn { name: name.to_owned() })
    }

    /// The column of a metric. In the combined table its name differs from the name of the metric.
    pub fn metric(&self, metric: Metric) -> Option<&Column> {
        self.columns.iter().find(|column| column.metric == Some(metric) && column.gpu.is_none())
    }

    /// The column of a metric for one GPU.
    pub fn metric_of_gpu(&self, metric: Metric, gpu: usize) -> Option<&Column> {
        self.columns.iter().find(|column| column.metric == Some(metric) && column.gpu == Some(gpu))
    }

    /// Appends a row. Columns without a metric get a missing cell. A new GPU adds its columns to the extra table.
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

    /// Appends a column, or replaces the column of the same name.
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

    /// Appends the columns of a table with names and units of the combined table. If the table is shorter, so is the
    /// result.
    pub(crate) fn append(
        &mut self,
        table: Table,
        frame: &Self,
        options: &CombinedOptions,
    ) -> Result<(), FrameError> {
        if frame.len() < self.len() {
            *self = self.slice(0..frame.len());
        }
        let rows = if self.columns.is_empty() { frame.len() } else { self.len() };
        let prefix = options.prefix(table);
        for column in frame.columns.iter().filter(|column| column.metric != Some(Metric::Timestamp)) {
            let mut copy = Column { name: options.name(prefix, column), ..column.slice(0..rows) };
            let factor =
                column.metric.filter(|_| options.bytes).and_then(|metric| metric.unit().byte_factor());
            if let Some(factor) = factor {
                copy.cells.iter_mut().for_each(|cell| *cell *= factor);
            }
            self.set(copy)?;
        }
        Ok(())
    }

    /// A frame with the rows of a range. Rows that do not exist are ignored.
    pub fn slice(&self, rows: Range<usize>) -> Self {
        let end = rows.end.min(self.len());
        let rows = rows.start.min(end)..end;
        Self { columns: self.columns.iter().map(|column| column.slice(rows.clone())).collect() }
    }
}

/// Names and units of the combined table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CombinedOptions {
    /// Show memory, VRAM and disk space in bytes instead of KiB, MiB and GiB.
    pub bytes: bool,
    /// Use human-readable column names.
    pub human_names: bool,
    /// Replaces the prefix `system_` or `System `.
    pub system_prefix: Option<String>,
    /// Replaces the prefix `process_` or `Process `.
    pub process_prefix: Option<String>,
    /// Add the columns of the extra table.
    pub extra: bool,
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
        match (column.metric.filter(|_| self.human_names), column.gpu) {
            (Some(metric), Some(gpu)) => format!("GPU {gpu} {}", metric.human_name()),
            (metric, _) => format!("{prefix}{}", metric.map_or(column.name(), |metric| metric.human_name())),
        }
    }
}

/// Joins both tables by row number. The columns are `timestamp`, those of the machine, and those of the job.
///
/// A table that is not recorded has no columns. Rows that only one table has are dropped. If the prefixes give two
/// columns the same name, the column of the job replaces the column of the machine.
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
        both.append(table, &frame.slice(0..rows), options)?;
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
    fn missing_and_infinite_cells_are_none() {
        let mut frame = Frame::for_table(Table::Process);
        frame.push(&row(1.0, None));
        frame.push(&row(2.0, Some(f64::INFINITY)));
        frame.push(&row(3.0, Some(0.0)));
        let cells: Vec<_> = frame.column("memory").unwrap().iter().collect();
        assert_eq!(cells, [None, None, Some(0.0)]);
        assert_eq!(frame.column("memory").unwrap().get(3), None);
    }

    #[test]
    fn new_gpu_adds_columns_to_the_extra_table_only() {
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
    fn slice_ignores_rows_that_do_not_exist() {
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
    fn error_names_the_unknown_column() {
        let missing = tables(1).0.column("x").unwrap_err();
        assert_eq!(missing.to_string(), "column `x` not found");
    }

    #[test]
    fn column_of_another_length_is_an_error() {
        let mut frame = tables(2).0;
        frame.set(Column::new("new", vec![1.0, 2.0])).unwrap();
        assert!(matches!(
            frame.set(Column::new("new", vec![1.0])),
            Err(FrameError::Length { found: 1, expected: 2, .. })
        ));
    }

    #[test]
    fn combined_table_has_timestamp_then_machine_then_job() {
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
    fn combined_table_drops_rows_that_only_one_table_has() {
        let (process, _) = tables(3);
        let (_, system) = tables(2);
        assert_eq!(combined(Some(&process), Some(&system), &CombinedOptions::default()).unwrap().len(), 2);
    }

    #[test]
    fn table_that_is_not_recorded_has_no_columns() {
        let (process, system) = tables(2);
        let only = |process, system| combined(process, system, &CombinedOptions::default()).unwrap();
        assert!(only(Some(&process), None).names().skip(1).all(|name| name.starts_with("process_")));
        assert!(only(None, Some(&system)).names().skip(1).all(|name| name.starts_with("system_")));
        assert_eq!(only(None, Some(&system)).column("timestamp").unwrap().get(1), Some(101.0));
        assert!(only(None, None).columns().is_empty());
    }

    #[test]
    fn bytes_and_human_names_change_values_and_names() {
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
    fn column_of_the_job_replaces_a_column_of_the_machine_with_the_same_name() {
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
