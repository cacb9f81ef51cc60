//! Makes the rows of a recorded job. The stages are those of the tracker, but they read recorded files.
//!
//! In:  a folder with one folder per tick. Each has a file `time` (wall and monotonic ns) and the files that `Root`
//! reads. `fixtures/record.py` records such folders.
//! Out: the rows that a tracker would have made. The first tick is the baseline.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use resource_tracker::config::Config;
use resource_tracker::job::SamplerPlace;
use resource_tracker::job::procfs::Job;
use resource_tracker::job::usage::{Counter, ReadWindow};
use resource_tracker::metric::Row;
use resource_tracker::os::Moment;
use resource_tracker::os::root::Root;
use resource_tracker::probe::MachineProbe;
use resource_tracker::probe::gpu::{Figures, GpuState, Question, Reader};
use resource_tracker::sampler::diff::{self, Rates, Usage};
use resource_tracker::sampler::sample::Sample;

pub fn rows(folder: &Path, pid: u32, config: &Config) -> Vec<Row> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut ticks: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    ticks.sort();
    let root_of = |tick: &Path| Arc::new(Root::recorded(tick).unwrap());
    let first = root_of(&ticks[0]);
    let mut job = Job::new(&first, pid, config, None, None);
    let mut gpus = Reader::open(&first);
    let mut figures = Figures::default();
    let (mut process, mut system) = (Usage::default(), Usage::default());
    let mut before = Sample::default();
    let mut rows = Vec::new();
    for (number, tick) in ticks.iter().enumerate() {
        let root = root_of(tick);
        let mut after = Sample::default();
        let mut probe = MachineProbe::detect(Arc::clone(&root), config.track_system);
        probe.read(time_of(tick), &mut after.machine);
        job.read(&root, &after.machine, &[], SamplerPlace::OwnProcess).unwrap();
        if number == 0 {
            job.count_from_here(None);
        }
        let usage = job.read(&root, &after.machine, &[], SamplerPlace::OwnProcess).unwrap();
        after.job = Some(usage);
        if let Some(gpus) = &mut gpus {
            let members = job.members().iter().map(|member| member.pid).collect();
            let since_ns = Some(before.machine.at.monotonic_ns);
            let question = Question { members, root_pid: Some(pid), since_ns };
            let reading = gpus.read(&root, &question, after.machine.at);
            after.each_gpu = figures.add(&reading, 1.0);
            after.gpu = GpuState::Read(Arc::new(reading));
        }
        job.start_interval();
        let within = ReadWindow::at(after.machine.at.monotonic_ns);
        let cpu = after.machine.cpu;
        let rates = Rates {
            process_cores: process.add(within, usage.cpu.spent_ns, Counter::Stepping),
            system_cores: cpu.and_then(|cpu| system.add(within, cpu.busy_ns(), Counter::Stepping)),
            ..Rates::default()
        };
        if number > 0 {
            rows.push(diff::row(&before, &after, rates));
        }
        before = after;
    }
    rows
}

fn time_of(tick: &Path) -> Moment {
    let text = std::fs::read_to_string(tick.join("time")).unwrap();
    let numbers: Vec<u64> = text.split_ascii_whitespace().map(|number| number.parse().unwrap()).collect();
    Moment { wall_ns: numbers[0], monotonic_ns: numbers[1] }
}
