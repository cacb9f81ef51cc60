//! What each phase of a job used. A phase lasts from its mark to the next one; phases of the same name are one phase.
//!
//! In:  marks and rows, in the order of time. Out: [`PhaseFigures`] and [`PlacedMark`]s, stored under `run.phases` and
//! `run.marks` of a recording.
//! Not here: where marks come from (`marks`), when a row is made at a mark (`thread`).
//!
//! The sampler makes a row at a mark, so that most rows are of one phase. A row with several phases (marks in quick
//! succession) is divided by time; its peaks belong to the phase with the longest part.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::marks::{Mark, MarksReader, START};
use crate::human::{self, Scale};
use crate::metric::{Metric, Row};

/// Phases with figures of their own. Later ones are added up as [`OTHER_PHASES`].
const MOST_PHASES: usize = 50;
pub const OTHER_PHASES: &str = "other phases";
/// A peak up to this multiple of another one is taken for the same.
const NEAR_PEAK: f64 = 1.1;
/// Marks that are stored with their time.
pub const MOST_MARKS: usize = 1000;

/// Usage of the phases of one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseFigures {
    pub name: String,
    /// How often the phase began.
    pub times: u64,
    pub seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// Mean number of CPUs in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_usage: Option<f64>,
    /// Unknown for a phase that had no row of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak_kib: Option<f64>,
    /// Mean number of GPUs in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_usage: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vram_peak_mib: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_bytes: Option<f64>,
    /// Network traffic of the machine, without that of the tracker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recv_bytes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<f64>,
}

/// A mark of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlacedMark {
    /// Seconds from the start of the recording.
    pub seconds: f64,
    pub name: String,
}

impl PhaseFigures {
    const COLUMNS: [&str; 10] = [
        "phase",
        ">duration",
        ">CPU time",
        ">CPUs",
        ">peak memory",
        ">GPUs",
        ">peak VRAM",
        ">read",
        ">written",
        ">network",
    ];

    /// The phases as text: headings, then a row for each phase; empty without phases. Columns of numbers begin with `>`, as in
    /// the tables of the command. Columns without a figure are left out.
    pub fn table(phases: &[Self]) -> Vec<Vec<String>> {
        let rows: Vec<_> = phases.iter().map(Self::cells).collect();
        let has_figures = |column: &usize| rows.iter().any(|row| !row[*column].is_empty());
        let columns: Vec<usize> = (0..Self::COLUMNS.len()).filter(has_figures).collect();
        let picked =
            |cells: &[String]| columns.iter().map(|column| cells[*column].clone()).collect::<Vec<_>>();
        let headings = Self::COLUMNS.map(str::to_owned);
        if rows.is_empty() {
            return Vec::new();
        }
        std::iter::once(&headings).chain(&rows).map(|cells| picked(cells)).collect()
    }

    /// Which phases decide how large the machine has to be; `None` without phases.
    pub fn sentence(phases: &[Self]) -> Option<String> {
        let highest = |of: fn(&Self) -> Option<f64>| {
            let known = phases.iter().filter_map(|phase| Some((phase, of(phase)?)));
            known.max_by(|a, b| a.1.total_cmp(&b.1))
        };
        let (longest, seconds) = highest(|phase| Some(phase.seconds))?;
        let mut parts = vec![format!("longest `{}` ({})", longest.name, human::duration(seconds))];
        if let Some((phase, cores)) = highest(|phase| phase.cpu_usage) {
            parts.push(format!("most CPUs in `{}` ({cores:.2})", phase.name));
        }
        if let Some((phase, kib)) = highest(|phase| phase.memory_peak_kib) {
            let others = phases.iter().filter(|other| other.name != phase.name);
            let others_kib = others.filter_map(|other| other.memory_peak_kib).reduce(f64::max);
            let show = |kib: f64| Scale::Bytes.show(kib * 1024.0);
            let rest =
                others_kib.map_or_else(String::new, |kib| format!("; the others at most {}", show(kib)));
            parts.push(format!("memory peak in `{}` ({}{rest})", phase.name, show(kib)));
        }
        if let Some((phase, mib)) = highest(|phase| phase.vram_peak_mib).filter(|(_, mib)| *mib > 0.0) {
            parts.push(format!("VRAM peak in `{}` ({})", phase.name, human::megabytes(mib)));
        }
        Some(parts.join(", "))
    }

    /// The row as text. A phase without a GPU has no figures of it.
    fn cells(&self) -> [String; 10] {
        let show =
            |value: Option<f64>, scale: Scale| value.map(|value| scale.show(value)).unwrap_or_default();
        let network = add(self.recv_bytes, self.sent_bytes);
        let used = |value: Option<f64>| value.filter(|value| *value > 0.0);
        [
            self.name.clone(),
            human::duration(self.seconds),
            self.cpu_seconds.map(human::duration).unwrap_or_default(),
            self.cpu_usage.map(|cores| format!("{cores:.2}")).unwrap_or_default(),
            show(self.memory_peak_kib.map(|kib| kib * 1024.0), Scale::Bytes),
            used(self.gpu_usage).map(|gpus| format!("{gpus:.2}")).unwrap_or_default(),
            used(self.vram_peak_mib).map(human::megabytes).unwrap_or_default(),
            show(self.read_bytes, Scale::Bytes),
            show(self.write_bytes, Scale::Bytes),
            show(network, Scale::Bytes),
        ]
    }
}

fn add(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.zip(b).map(|(a, b)| a + b).or(a).or(b)
}

/// The phases of a job so far. Memory does not depend on the number of marks.
#[derive(Debug, Default)]
pub struct Phases {
    began_ns: u64,
    /// End of the last part: the last mark, or the last row.
    at_ns: u64,
    /// The current phase in `sums`.
    current: usize,
    sums: Vec<Sums>,
    /// The phases since the last row, with their time.
    parts: Vec<(usize, u64)>,
    marks: Vec<PlacedMark>,
    has_marks: bool,
    /// Whether a mark was made since the last row.
    is_marked: bool,
}

/// `gpu_usage` of the figures is the mean times `gpu_s` until it is shown; the other figures are sums and peaks.
#[derive(Debug, Default)]
struct Sums {
    figures: PhaseFigures,
    duration_ns: u64,
    gpu_s: f64,
}

impl Phases {
    /// Begins with the phase [`START`].
    pub fn begin(at_ns: u64) -> Self {
        let mut phases = Self { began_ns: at_ns, at_ns, ..Self::default() };
        phases.enter(START);
        phases
    }

    fn enter(&mut self, name: &str) {
        let known = |sums: &[Sums], name: &str| sums.iter().position(|sums| sums.figures.name == name);
        let index = known(&self.sums, name).or_else(|| {
            let name = if self.sums.len() < MOST_PHASES { name } else { OTHER_PHASES };
            known(&self.sums, name).or_else(|| {
                let figures = PhaseFigures { name: name.to_owned(), ..PhaseFigures::default() };
                self.sums.push(Sums { figures, ..Sums::default() });
                Some(self.sums.len() - 1)
            })
        });
        self.current = index.unwrap_or_default();
        if let Some(sums) = self.sums.get_mut(self.current) {
            sums.figures.times += 1;
        }
    }

    /// Starts a phase, if it is not the current one. Returns whether this is the first mark since the last row.
    pub fn mark(&mut self, mark: &Mark) -> bool {
        if self.sums.get(self.current).is_none_or(|sums| sums.figures.name == mark.name) {
            return false;
        }
        self.end_part(mark.at_ns);
        self.enter(&mark.name);
        if self.marks.len() < MOST_MARKS {
            let seconds = Duration::from_nanos(self.at_ns.saturating_sub(self.began_ns)).as_secs_f64();
            self.marks.push(PlacedMark { seconds, name: mark.name.clone() });
        }
        self.has_marks = true;
        !std::mem::replace(&mut self.is_marked, true)
    }

    /// A mark that is found late belongs to the time after the last part.
    fn end_part(&mut self, at_ns: u64) {
        let length_ns = at_ns.saturating_sub(self.at_ns);
        self.at_ns = self.at_ns.max(at_ns);
        match self.parts.iter_mut().find(|(phase, _)| *phase == self.current) {
            Some((_, ns)) => *ns += length_ns,
            None => self.parts.push((self.current, length_ns)),
        }
    }

    /// Whether a mark was made since the last row.
    pub fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// Divides a row that ended at `end_ns` among the phases since the last row.
    #[expect(clippy::cast_precision_loss, reason = "shares of a row")]
    pub fn add_row(&mut self, row: &Row, end_ns: u64) {
        self.end_part(end_ns);
        self.is_marked = false;
        let whole_ns: u64 = self.parts.iter().map(|(_, ns)| ns).sum();
        let longest = self.parts.iter().max_by_key(|(_, ns)| *ns).map(|(phase, _)| *phase);
        for (phase, ns) in self.parts.drain(..) {
            let Some(sums) = self.sums.get_mut(phase) else { continue };
            sums.duration_ns += ns;
            if whole_ns > 0 {
                sums.add(row, ns as f64 / whole_ns as f64, ns as f64 / 1e9);
            }
            if longest == Some(phase) {
                sums.add_peaks(row);
            }
        }
    }

    /// Adds a row with the highest memory of the whole run, which the kernel tells when the job ends. If it is near the
    /// highest peak of the phases, it is that one.
    pub fn add_row_with_late_peak(&mut self, row: &Row, end_ns: u64) {
        let mut row = row.clone();
        let peak_kib = row.get(Metric::MemoryPeak).unwrap_or(0.0);
        let peaks = self.sums.iter_mut().filter_map(|sums| sums.figures.memory_peak_kib.as_mut());
        let highest = peaks.max_by(|a, b| a.total_cmp(b));
        let is_near = |highest: &f64| *highest < peak_kib * NEAR_PEAK && peak_kib < *highest * NEAR_PEAK;
        if let Some(highest) = highest.filter(|highest| is_near(highest)) {
            *highest = highest.max(peak_kib);
            row.set(Metric::MemoryPeak, None);
        }
        self.add_row(&row, end_ns);
    }

    /// Figures of each phase, in the order of their first marks; empty without marks.
    pub fn figures(&self) -> Vec<PhaseFigures> {
        let all = self.sums.iter().filter(|sums| sums.duration_ns > 0 || sums.figures.name != START);
        all.filter(|_| self.has_marks).map(Sums::figures).collect()
    }

    pub fn marks(&self) -> Vec<PlacedMark> {
        self.marks.clone()
    }
}

/// The phases of a run whose tracker died: made again from its rows and the file with its marks, which begins with the mark
/// of the start.
#[derive(Debug, Default)]
pub struct Replay {
    phases: Phases,
    marks: VecDeque<Mark>,
    end_ns: u64,
}

impl Replay {
    /// Empty without the file.
    pub fn open(path: PathBuf) -> Self {
        let marks = VecDeque::from(MarksReader::new(path, false).read());
        let end_ns = marks.front().map_or(0, |start| start.at_ns);
        Self { phases: Phases::begin(end_ns), marks, end_ns }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the length of a row, at least 0"
    )]
    pub fn add(&mut self, row: &Row) {
        self.end_ns = self.end_ns.saturating_add((row.get(Metric::Elapsed).unwrap_or(0.0) * 1e9) as u64);
        while let Some(mark) = self.marks.pop_front_if(|mark| mark.at_ns <= self.end_ns) {
            self.phases.mark(&mark);
        }
        self.phases.add_row(row, self.end_ns);
    }

    pub fn finish(self) -> (Vec<PhaseFigures>, Vec<PlacedMark>) {
        (self.phases.figures(), self.phases.marks())
    }
}

impl Sums {
    fn add(&mut self, row: &Row, share: f64, part_s: f64) {
        let of = |metric| row.get(metric).map(|value| value * share);
        let without = |metric, own| of(metric).map(|bytes| bytes - of(own).unwrap_or(0.0));
        let Self { figures, gpu_s, .. } = self;
        figures.cpu_seconds =
            add(figures.cpu_seconds, add(of(Metric::ProcessUtime), of(Metric::ProcessStime)));
        figures.read_bytes = add(figures.read_bytes, of(Metric::ProcessRead));
        figures.write_bytes = add(figures.write_bytes, of(Metric::ProcessWrite));
        figures.recv_bytes = add(figures.recv_bytes, without(Metric::NetRecv, Metric::TrackerRecv));
        figures.sent_bytes = add(figures.sent_bytes, without(Metric::NetSent, Metric::TrackerSent));
        if let Some(gpus) = row.get(Metric::ProcessGpu) {
            figures.gpu_usage = add(figures.gpu_usage, Some(gpus * part_s));
            *gpu_s += part_s;
        }
    }

    fn add_peaks(&mut self, row: &Row) {
        let highest = |a: Option<f64>, metric| a.into_iter().chain(row.get(metric)).reduce(f64::max);
        let memory_kib = highest(self.figures.memory_peak_kib, Metric::ProcessMemory);
        self.figures.memory_peak_kib = highest(memory_kib, Metric::MemoryPeak);
        self.figures.vram_peak_mib = highest(self.figures.vram_peak_mib, Metric::ProcessVram);
    }

    fn figures(&self) -> PhaseFigures {
        let seconds = Duration::from_nanos(self.duration_ns).as_secs_f64();
        let whole = |bytes: Option<f64>| bytes.map(|bytes| bytes.round().max(0.0));
        let figures = &self.figures;
        PhaseFigures {
            seconds,
            cpu_usage: figures.cpu_seconds.filter(|_| seconds > 0.0).map(|cpu_s| cpu_s / seconds),
            gpu_usage: figures.gpu_usage.filter(|_| self.gpu_s > 0.0).map(|gpus| gpus / self.gpu_s),
            read_bytes: whole(figures.read_bytes),
            write_bytes: whole(figures.write_bytes),
            recv_bytes: whole(figures.recv_bytes),
            sent_bytes: whole(figures.sent_bytes),
            ..figures.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn row(cpu_s: f64, memory_kib: f64) -> Row {
        let mut row = Row::default();
        for (metric, value) in [
            (Metric::ProcessUtime, cpu_s),
            (Metric::ProcessStime, 0.0),
            (Metric::ProcessMemory, memory_kib),
            (Metric::ProcessGpu, cpu_s),
            (Metric::NetRecv, 100.0),
            (Metric::TrackerRecv, 40.0),
        ] {
            row.set(metric, Some(value));
        }
        row
    }

    fn mark(at_s: f64, name: &str) -> Mark {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
        Mark { at_ns: (at_s * 1e9) as u64, name: name.to_owned() }
    }

    #[test]
    fn phases_of_one_name_are_one_phase_and_have_the_rows_between_their_marks() {
        let mut phases = Phases::begin(10 * SECOND);
        phases.add_row(&row(0.5, 10.0), 11 * SECOND);
        assert_eq!(phases.figures(), [], "no mark");
        assert!(phases.mark(&mark(12.0, "train")));
        assert!(!phases.mark(&mark(12.0, "train")), "goes on");
        phases.add_row(&row(1.0, 20.0), 12 * SECOND);
        phases.add_row(&row(4.0, 90.0), 14 * SECOND);
        phases.mark(&mark(14.0, START));
        phases.add_row(&row(0.0, 30.0), 14 * SECOND);
        phases.add_row(&row(0.0, 30.0), 15 * SECOND);
        let [start, train] = phases.figures().try_into().unwrap();
        assert_eq!((start.times, start.seconds, start.cpu_seconds), (2, 3.0, Some(1.5)));
        assert_eq!((start.memory_peak_kib, start.cpu_usage), (Some(30.0), Some(0.5)));
        assert_eq!((train.times, train.seconds, train.cpu_seconds), (1, 2.0, Some(4.0)));
        assert_eq!((train.memory_peak_kib, train.gpu_usage), (Some(90.0), Some(4.0)));
        assert_eq!(
            (train.recv_bytes, train.read_bytes),
            (Some(60.0), None),
            "without the tracker; not measured"
        );
        let marks: Vec<_> = phases.marks().into_iter().map(|mark| (mark.seconds, mark.name)).collect();
        assert_eq!(marks, [(2.0, "train".to_owned()), (4.0, START.to_owned())]);
    }

    #[test]
    fn row_of_several_phases_is_divided_by_time_and_its_peak_belongs_to_the_longest() {
        let mut phases = Phases::begin(0);
        for (at_s, name) in [(0.1, "a"), (0.2, "b"), (0.9, "a"), (0.85, "c")] {
            phases.mark(&mark(at_s, name));
        }
        phases.add_row(&row(1.0, 50.0), SECOND);
        let figures = phases.figures();
        let found = |name: &str| figures.iter().find(|phase| phase.name == name).unwrap();
        assert!((found("b").cpu_seconds.unwrap() - 0.7).abs() < 1e-9);
        assert_eq!(found("b").memory_peak_kib, Some(50.0));
        assert_eq!(found("a").memory_peak_kib, None);
        assert!((found("c").seconds - 0.1).abs() < 1e-9, "time does not go back: {figures:?}");
        let cpu_s: f64 = figures.iter().filter_map(|phase| phase.cpu_seconds).sum();
        assert!((cpu_s - 1.0).abs() < 1e-9);
    }

    #[test]
    fn highest_memory_of_the_run_belongs_to_the_phase_with_the_highest_memory() {
        for (proved_kib, peaks) in
            [(105.0, [105.0, 20.0]), (99.0, [100.0, 20.0]), (200.0, [100.0, 200.0]), (50.0, [100.0, 50.0])]
        {
            let mut phases = Phases::begin(0);
            phases.add_row(&row(1.0, 100.0), SECOND);
            phases.mark(&mark(1.0, "save"));
            phases.add_row(&row(1.0, 20.0), 2 * SECOND);
            let mut last = row(1.0, 20.0);
            last.set(Metric::MemoryPeak, Some(proved_kib));
            phases.add_row_with_late_peak(&last, 3 * SECOND);
            let found: Vec<_> = phases.figures().iter().map(|phase| phase.memory_peak_kib.unwrap()).collect();
            assert_eq!(found, peaks);
        }
    }

    #[test]
    fn flood_of_marks_is_bounded_and_adds_up() {
        let mut phases = Phases::begin(0);
        for number in 0..100_000_u64 {
            phases.mark(&Mark { at_ns: number * 1000, name: format!("phase {}", number % 70) });
        }
        phases.add_row(&row(1.0, 50.0), SECOND);
        let figures = phases.figures();
        assert_eq!(phases.marks().len(), MOST_MARKS);
        assert!(figures.len() <= MOST_PHASES + 1 && figures.iter().any(|phase| phase.name == OTHER_PHASES));
        let seconds: f64 = figures.iter().map(|phase| phase.seconds).sum();
        assert!((seconds - 1.0).abs() < 1e-9, "{seconds}");
    }
}
