//! Laws of the memory advice.

use proptest::prelude::*;

use super::memory::{LAST_RUNS, MemoryAdvice, MemorySizing, Reason};
use super::past_run::{Ending, PastRun};
use super::replay::after_kill_bytes;
use super::rule::Rule;

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1024.0 * MIB;

/// Runs of an hour, one after the other, from peak and input in GiB.
fn history(runs: &[(f64, Option<f64>)]) -> Vec<PastRun> {
    let run = |(number, (peak, input)): (usize, &(f64, Option<f64>))| PastRun {
        #[expect(clippy::cast_precision_loss, reason = "few runs")]
        start_s: number as f64 * 4000.0,
        duration_s: 3600.0,
        peak_bytes: peak * GIB,
        input_bytes: input.map(|input| input * GIB),
        ending: Ending::Finished,
    };
    runs.iter().enumerate().map(run).collect()
}

fn peaks(peaks: &[f64]) -> Vec<PastRun> {
    history(&peaks.iter().map(|peak| (*peak, None)).collect::<Vec<_>>())
}

fn advise(history: &[PastRun], input: Option<f64>) -> MemoryAdvice {
    MemorySizing::of(history, LAST_RUNS).unwrap().advise(input.map(|input| input * GIB))
}

fn killed(history: &mut [PastRun], numbers: &[usize], limit: f64) {
    for number in numbers {
        history[*number].ending = Ending::OutOfMemory { limit_bytes: Some(limit * GIB) };
    }
}

#[test]
fn one_run_gets_a_fifth_more_than_its_peak_rounded_up() {
    let advice = advise(&peaks(&[5.0]), None);
    assert_eq!((advice.memory_bytes, advice.reason, advice.runs), (6.0 * GIB, Reason::FewRuns, 1));
    assert_eq!(advice.why, "1.2 × the peak of 5.00 GiB, rounded up");
    assert_eq!(advice.risk, None);
    assert_eq!(advise(&peaks(&[0.001]), None).memory_bytes, 128.0 * MIB, "the smallest size");
}

#[test]
fn history_without_a_measured_peak_gives_no_advice() {
    assert!(MemorySizing::of(&[], LAST_RUNS).is_none());
    assert!(MemorySizing::of(&peaks(&[f64::NAN, 0.0, -1.0, f64::INFINITY]), LAST_RUNS).is_none());
}

#[test]
fn steady_peaks_get_less_headroom() {
    let advice = advise(&peaks(&[19.0; 8]), None);
    assert_eq!((advice.memory_bytes, advice.rule), (20.0 * GIB, Some(Rule::MaximumPlus5)));
    assert!(
        advice.why.starts_with("1.05 × the highest peak of 8 runs, 19.0 GiB, rounded up; "),
        "{}",
        advice.why
    );
}

#[test]
fn growing_peaks_keep_their_headroom() {
    let growing: Vec<f64> = (0..12).map(|number| 10.0 * 1.08_f64.powi(number)).collect();
    let advice = advise(&peaks(&growing), None);
    assert!(advice.memory_bytes >= 1.08 * growing[11] * GIB, "{advice:?}");
}

#[test]
fn memory_that_grows_with_the_input_is_advised_by_input() {
    let runs: Vec<_> = (1..=12).map(|n| f64::from(n * 5 % 13)).map(|n| (1.0 + 1.4 * n, Some(n))).collect();
    let at_8 = advise(&history(&runs), Some(8.0));
    assert_eq!(at_8.memory_bytes, 13.0 * GIB, "{at_8:?}");
    assert!(
        at_8.why.starts_with("at 8.00 GiB of input request 13.0 GiB: memory grew with the input in 12 runs"),
        "{}",
        at_8.why
    );
    assert_eq!((at_8.would_have_failed, at_8.input_bytes), (0, Some(8.0 * GIB)));
    assert!(at_8.risk.unwrap().contains("the highest peak so far was 17.8 GiB"));
    let unknown = advise(&history(&runs), None);
    assert_eq!(unknown.input_bytes, Some(12.0 * GIB), "the largest input counts");
    let larger = advise(&history(&runs), Some(100.0));
    assert!(larger.memory_bytes <= 22.0 * GIB, "past runs say nothing about larger inputs: {larger:?}");
    assert_eq!(
        larger.risk.as_deref(),
        Some("100 GiB of input is more than any past run had (12.0 GiB): the run may need more memory")
    );
}

#[test]
fn inputs_that_contradict_each_other_are_not_used() {
    let runs: Vec<_> = (0..10).map(|n| (if n % 2 == 0 { 2.0 } else { 20.0 }, Some(5.0))).collect();
    let advice = advise(&history(&runs), Some(5.0));
    assert_eq!(advice.input_bytes, None);
    assert!(advice.memory_bytes >= 20.0 * GIB, "{advice:?}");
    let falling: Vec<_> = (1..10).map(f64::from).map(|n| (30.0 - n, Some(n))).collect();
    assert_eq!(advise(&history(&falling), Some(5.0)).input_bytes, None);
    let invalid = history(&[(5.0, Some(f64::NAN)), (5.0, Some(-1.0)), (5.0, Some(0.0))]);
    assert_eq!(advise(&invalid, Some(f64::NAN)).memory_bytes, 6.0 * GIB);
}

#[test]
fn out_of_memory_kill_starts_a_ladder() {
    let mut runs = peaks(&[3.0, 3.5, 4.0]);
    killed(&mut runs, &[2], 4.0);
    let first = advise(&runs, None);
    assert_eq!((first.memory_bytes, first.reason, first.rule), (5.0 * GIB, Reason::AfterKill, None));
    assert!(first.why.starts_with("the last run was out of memory at 4.00 GiB, "), "{}", first.why);
    let mut runs = peaks(&[3.5, 4.0, 5.0]);
    killed(&mut runs, &[1], 4.0);
    killed(&mut runs, &[2], 5.0);
    assert_eq!(advise(&runs, None).memory_bytes, 10.0 * GIB, "doubled after a second kill");
    let mut runs = peaks(&[4.0, 6.0]);
    killed(&mut runs, &[0], 4.0);
    assert_eq!(advise(&runs, None).memory_bytes, 8.0 * GIB, "a later success ends the ladder");
    assert_eq!(after_kill_bytes(5.0 * GIB, 6.0 * GIB, 1), 8.0 * GIB, "never the size that was not enough");
}

#[test]
fn failed_runs_count_only_if_no_run_has_finished() {
    let mut runs = peaks(&[5.0, 40.0]);
    runs[1].ending = Ending::Failed;
    let advice = advise(&runs, None);
    assert_eq!(advice.memory_bytes, 6.0 * GIB);
    assert_eq!(
        advice.risk.as_deref(),
        Some("a run that failed had a peak of 40.0 GiB, which is more than this request")
    );
    runs[0].ending = Ending::Failed;
    let advice = advise(&runs, None);
    assert_eq!(advice.memory_bytes, 48.0 * GIB);
    assert_eq!(advice.risk.as_deref(), Some("no run has finished: a complete run may need more memory"));
}

#[test]
fn runs_that_started_together_do_not_judge_rules_by_each_other() {
    // Twenty equal runs of one batch: no run had ended when another started, so nothing is known about any rule.
    let mut batch = peaks(&[19.0; 20]);
    for run in &mut batch {
        run.start_s = 0.0;
    }
    assert_eq!(advise(&batch, None).rule, Some(Rule::ALL[0]));
}

proptest! {
    /// The order of the runs in the list does not matter, only their times.
    #[test]
    fn advice_does_not_depend_on_the_order_of_the_list(
        runs in proptest::collection::vec((0.01_f64..64.0, 0.1_f64..64.0), 1..30),
        input in 0.1_f64..64.0,
    ) {
        let runs: Vec<_> = runs.into_iter().map(|(peak, input)| (peak, Some(input))).collect();
        let mut list = history(&runs);
        let advice = advise(&list, Some(input));
        list.reverse();
        prop_assert_eq!(advise(&list, Some(input)), advice);
    }

    /// Advice is never below what the runs needed unless it shows a risk, and never far above.
    #[test]
    fn advice_covers_past_runs_or_shows_a_risk(
        runs in proptest::collection::vec((0.01_f64..64.0, 0.1_f64..64.0), 1..40),
        input in proptest::option::of(0.1_f64..64.0),
    ) {
        let runs: Vec<_> = runs.into_iter().map(|(peak, input)| (peak, Some(input))).collect();
        let advice = advise(&history(&runs), input);
        let highest = runs.iter().map(|(peak, _)| peak * GIB).fold(0.0, f64::max);
        prop_assert!(advice.memory_bytes >= highest || advice.risk.is_some());
        prop_assert!(advice.memory_bytes <= (1.2 * highest + GIB).max(128.0 * MIB));
        prop_assert!(advice.would_have_failed <= advice.runs);
        prop_assert_eq!(advice.memory_bytes % (128.0 * MIB), 0.0);
    }

    /// More memory in every run never lowers the advice, and a larger input never lowers it.
    #[test]
    fn advice_grows_with_peaks_and_input(
        few in proptest::collection::vec(0.01_f64..64.0, 1..5),
        factor in 1.0_f64..4.0,
        runs in proptest::collection::vec((0.01_f64..64.0, 0.1_f64..64.0), 1..30),
        inputs in (0.1_f64..64.0, 0.1_f64..64.0),
    ) {
        let more: Vec<f64> = few.iter().map(|peak| peak * factor).collect();
        prop_assert!(advise(&peaks(&more), None).memory_bytes >= advise(&peaks(&few), None).memory_bytes);
        let runs: Vec<_> = runs.into_iter().map(|(peak, input)| (peak, Some(input))).collect();
        let sizing = MemorySizing::of(&history(&runs), LAST_RUNS).unwrap();
        let at = |input: f64| sizing.advise(Some(input * GIB)).memory_bytes;
        prop_assert!(at(inputs.0.max(inputs.1)) >= at(inputs.0.min(inputs.1)));
    }

    /// A kill always leads to a larger request than the killed run had.
    #[test]
    fn request_after_a_kill_is_larger(
        finished in proptest::collection::vec(0.01_f64..64.0, 0..10),
        limits in proptest::collection::vec(0.01_f64..64.0, 1..5),
    ) {
        let mut runs = peaks(&[finished.clone(), limits.clone()].concat());
        for (number, limit) in limits.iter().enumerate() {
            killed(&mut runs, &[finished.len() + number], *limit);
        }
        prop_assert!(advise(&runs, None).memory_bytes > limits[limits.len() - 1] * GIB);
    }
}
