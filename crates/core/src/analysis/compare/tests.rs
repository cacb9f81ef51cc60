//! Marks of known runs, and rates of false and missed marks over simulated runs.

use std::fmt::Write as _;

use super::*;
use crate::config::Config;
use crate::market::catalog::Settings;
use crate::metric::{Metric, Row};
use crate::store::history::Entry;
use crate::store::recording::{Head, Run};

fn catalog() -> Catalog {
    Catalog::new(Settings { cache_dir: None, ..Settings::offline() })
}

/// A recording of one row: `seconds` long, half of them on the CPU, with `seconds` KiB of memory.
fn recording(id: &str, job: Option<&str>, status: Status, seconds: f64) -> Recording {
    let run = Run {
        id: Some(id.to_owned()),
        job: job.map(ToOwned::to_owned),
        status: Some(status),
        ..Run::default()
    };
    let mut recording = Recording::new(Head::new(&Config::default(), 1, 100.0, run));
    let mut row = Row::default();
    for (metric, value) in [
        (Metric::Timestamp, 100.0 + seconds),
        (Metric::ProcessUtime, seconds / 2.0),
        (Metric::ProcessStime, 0.0),
        (Metric::ProcessMemory, seconds),
    ] {
        row.set(metric, Some(value));
    }
    recording.push(&row);
    recording
}

fn save(history: &History, recording: &Recording) {
    let id = recording.head.run.as_ref().unwrap().id.clone().unwrap();
    let entry = Entry::new(&id, &recording.head, &recording.summary());
    history.store(&entry, |file| recording.write(file)).unwrap();
}

fn run(recording: Recording) -> Selection {
    Selection::Run { name: "run".to_owned(), recording: Box::new(recording) }
}

#[test]
fn runs_of_a_job_are_its_finished_runs_without_the_compared_ones() {
    let folder = tempfile::tempdir().unwrap();
    let history = History::at(folder.path());
    let sort = |id: &str, status| recording(id, Some("sort"), status, 10.0);
    let nested = {
        let mut nested = sort("n", Status::Finished);
        nested.head.run.as_mut().unwrap().parent = Some("c".to_owned());
        nested
    };
    for recording in [
        &sort("a", Status::Finished),
        &sort("b", Status::Finished),
        &sort("c", Status::Finished),
        &sort("d", Status::Failed),
        &sort("e", Status::Finished),
        &nested,
        &recording("o", Some("other"), Status::Finished, 10.0),
        &recording("p", None, Status::Finished, 10.0),
    ] {
        save(&history, recording);
    }
    std::fs::write(history.recording_path("e"), "damaged").unwrap();
    let selections = [
        run(sort("a", Status::Finished)),
        Selection::Job("sort".to_owned()),
        run(recording("p", None, Status::Finished, 10.0)),
    ];
    let comparison = Comparison::of(&selections, Some(&history), 100, &mut catalog());
    let ids = |side: &Side| -> String { side.runs.iter().map(|run| run["id"].as_str().unwrap()).collect() };
    let of_sides: Vec<_> = comparison.sides.iter().map(ids).collect();
    assert_eq!(of_sides, ["a", "cb", "p"]);
    let earlier: Vec<_> = comparison.sides.iter().map(|side| side.earlier_runs).collect();
    assert_eq!(earlier, [2, 0, 0]);
    assert_eq!(comparison.unreadable, ["e"]);
    assert!(comparison.figures.iter().all(|(figure, _)| figure.key != "cost_usd"), "the price is unknown");
    let latest = Comparison::of(&selections, Some(&history), 2, &mut catalog());
    assert_eq!((ids(&latest.sides[1]), latest.unreadable), ("c".to_owned(), vec!["e".to_owned()]));
}

#[test]
fn run_of_a_job_is_compared_with_all_runs_of_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let history = History::at(folder.path());
    for (id, seconds) in [("a", 10.0), ("b", 10.2), ("c", 9.8), ("d", 10.1)] {
        save(&history, &recording(id, Some("sort"), Status::Finished, seconds));
    }
    let mark = |first: Recording, other: Recording| {
        let comparison = Comparison::of(&[run(first), run(other)], Some(&history), 100, &mut catalog());
        comparison.figures[0].1[1].is_significant
    };
    let sort = |id: &str, seconds| recording(id, Some("sort"), Status::Finished, seconds);
    let alone = |seconds| recording("x", None, Status::Finished, seconds);
    assert_eq!(mark(sort("a", 10.0), alone(12.0)), Some(true));
    assert_eq!(mark(sort("a", 10.0), alone(10.3)), Some(false));
    assert_eq!(mark(alone(12.0), sort("a", 10.0)), Some(true), "the other run has a history");
    assert_eq!(mark(alone(12.0), alone(10.0)), None);
    assert_eq!(mark(sort("a", 10.0), sort("b", 20.0)), None, "two other runs are too few");
    assert_eq!(mark(sort("x", 12.0), alone(12.0)), Some(false), "the change from the baseline is 0");
    assert_eq!(mark(sort("x", 12.2), alone(12.0)), Some(false), "the baseline is further from the others");
}

/// A side of runs with the same value in all figures.
fn side(values: &[f64]) -> Side {
    Side { values: values.iter().map(|value| [Some(*value); FIGURES.len()]).collect(), ..Side::default() }
}

fn marks(first: Side, other: Side) -> Vec<Option<bool>> {
    let comparison = Comparison::of_sides(vec![first, other]);
    comparison.figures.iter().map(|(_, cells)| cells[1].is_significant).collect()
}

#[test]
fn fewer_than_three_runs_are_never_marked() {
    let cases: [(&[f64], &[f64]); 5] = [
        (&[1.0], &[9.0]),
        (&[1.0, 1.1], &[9.0]),
        (&[1.0, 1.1], &[9.0, 9.1]),
        (&[1.0, 1.1, 1.2], &[9.0, 9.1]),
        (&[], &[9.0, 9.1, 9.2]),
    ];
    for (first, other) in cases {
        assert_eq!(marks(side(first), side(other)), [None; FIGURES.len()], "{first:?} {other:?}");
        assert_eq!(marks(side(other), side(first)), [None; FIGURES.len()], "{other:?} {first:?}");
    }
    assert_eq!(marks(side(&[1.0, 1.1, 1.2]), side(&[9.0])), [Some(true); FIGURES.len()]);
}

#[test]
fn change_from_zero_has_no_percentage_and_equal_runs_no_mark() {
    let cells = cells(&[side(&[0.0; 3]), side(&[5.0; 3])], 0);
    assert_eq!((cells[1].change_percent, cells[1].is_significant), (None, Some(true)));
    assert_eq!(marks(side(&[3.0; 3]), side(&[3.0 + 1e-9; 3])), [Some(false); FIGURES.len()]);
    let unused = Comparison::of_sides(vec![side(&[0.0; 3]), side(&[0.0; 3])]);
    assert_eq!(unused.figures.len(), FIGURES.len() - 3, "GPU, VRAM and cost are unknown or 0");
}

/// Normal random numbers, by a xorshift generator and the Box-Muller transform.
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        #[expect(clippy::cast_precision_loss, reason = "53 bits")]
        let bits = (self.0 >> 11) as f64;
        (bits + 0.5) / 9_007_199_254_740_992.0
    }

    /// Runs with a noise of 2 % in each figure.
    fn runs(&mut self, count: usize, mean: f64) -> Vec<Values> {
        let mut value = || {
            let radius = (-2.0 * self.uniform().ln()).sqrt();
            Some(mean * (1.0 + 0.02 * radius * (std::f64::consts::TAU * self.uniform()).cos()))
        };
        (0..count).map(|_| std::array::from_fn(|_| value())).collect()
    }
}

/// Makes two sides, the second with this mean.
type Pair<'a> = dyn Fn(&mut Noise, f64) -> (Side, Side) + 'a;

#[test]
#[expect(clippy::print_stdout, reason = "shows the rates")]
fn equal_jobs_are_rarely_marked_and_a_tenth_more_nearly_always() {
    const PAIRS: usize = 1000;
    let mut noise = Noise(0x2545_F491_4F6C_DD1D);
    let mut rates = |make: &Pair<'_>, change: f64| {
        let mut counts = [0; FIGURES.len()];
        for _ in 0..PAIRS {
            let (first, other) = make(&mut noise, 100.0 * (1.0 + change));
            for (count, mark) in counts.iter_mut().zip(marks(first, other)) {
                *count += i32::from(mark == Some(true));
            }
        }
        let percent = counts.map(|count| f64::from(count) * 100.0 / 1000.0);
        let (least, most) = percent
            .iter()
            .fold((100.0_f64, 0.0_f64), |(least, most), rate| (least.min(*rate), most.max(*rate)));
        (least, most)
    };
    let group = |values: Vec<Values>| Side { values, ..Side::default() };
    let mut report = String::new();
    for earlier in [3, 5, 10] {
        let jobs = |noise: &mut Noise, mean: f64| {
            (group(noise.runs(earlier, 100.0)), group(noise.runs(earlier, mean)))
        };
        let run_and_job =
            |noise: &mut Noise, mean: f64| (group(noise.runs(earlier, 100.0)), group(noise.runs(1, mean)));
        let runs = |noise: &mut Noise, mean: f64| {
            let job_values = noise.runs(earlier + 1, 100.0);
            (Side { values: vec![job_values[0]], job_values, ..Side::default() }, group(noise.runs(1, mean)))
        };
        let cases: [(&str, &Pair<'_>); 3] =
            [("job against job", &jobs), ("run against job", &run_and_job), ("run against run", &runs)];
        for (name, make) in cases {
            let (_, false_marks) = rates(make, 0.0);
            let (power, _) = rates(make, 0.1);
            let _ = writeln!(
                report,
                "{name}, {earlier} runs: at most {false_marks:.1} % false marks, at least {power:.1} % of real changes"
            );
            assert!(false_marks <= 7.0, "{report}");
            assert!(power >= 90.0 || earlier == 3 && name != "job against job", "{report}");
        }
    }
    // The power of one run against three is shown here, and not bounded.
    println!("{report}");
}
