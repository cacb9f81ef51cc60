//! The whole page, for runs of every kind.

use base64::Engine as _;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::*;
use crate::config::Config;
use crate::metric::{Metric, Row};
use crate::probe::cgroup::OomKills;
use crate::sampler::evidence::{Evidence, SignalReceived};
use crate::store::recording::{Head, Run};

const START: f64 = 1_741_785_600.0;

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is no object"),
    }
}

fn recording(config: &Config, run: Run, rows: u32) -> Recording {
    let mut head = Head::new(config, 4242, START, run);
    head.metadata.set_stop_time(START + f64::from(rows), 0.0);
    head.server_info =
        Some(object(json!({"os": "linux", "vcpus": 4, "memory_mb": 8192.0, "cpu_limit": 2.0})));
    let mut recording = Recording::new(head);
    for number in 1..=rows {
        let mut row = Row::default();
        for metric in Metric::ALL {
            row.set(*metric, Some(1.0));
        }
        row.set(Metric::Timestamp, Some(START + f64::from(number)));
        row.set(Metric::ProcessStime, Some(0.0));
        row.set(Metric::ProcessMemory, Some(1024.0 * f64::from(number)));
        row.set(Metric::MemoryPeak, Some(1024.0 * f64::from(number)));
        for gpu in [Metric::ProcessGpu, Metric::ProcessVram, Metric::ProcessGpus] {
            row.set(gpu, Some(0.0));
        }
        for gpu in [Metric::SystemGpu, Metric::SystemVram, Metric::SystemGpus] {
            row.set(gpu, Some(0.0));
        }
        recording.push(&row);
    }
    recording
}

fn finished() -> Run {
    Run { status: Some(Status::Finished), exit_code: Some(0), ..Run::default() }
}

fn context_of(recording: &Recording, history: Vec<Stats>) -> Context {
    let options = AdviceOptions::default();
    Context::of(&recording.head, recording.summary(), history.into(), &options, START + 60.0, Zone::utc())
}

fn page_of(recording: &Recording, change: impl FnOnce(&mut Context)) -> String {
    let mut context = context_of(recording, Vec::new());
    change(&mut context);
    context.render(recording)
}

fn page(run: Run, rows: u32) -> String {
    page_of(&recording(&Config::default(), run, rows), |_| {})
}

fn hash(text: &str) -> String {
    format!("'sha256-{}'", base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text)))
}

#[test]
fn policy_allows_only_the_style_and_script_of_the_page() {
    let policy = format!(
        "default-src 'none'; style-src {}; script-src {}; img-src data:; base-uri 'none'; form-action 'none'\n",
        hash(include_str!("page.css")),
        hash(include_str!("page.js")),
    );
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/report/policy.txt");
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(path, &policy).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), policy, "run `make generate`");
}

#[test]
fn same_input_gives_the_same_page() {
    let recording = recording(&Config::default(), finished(), 3);
    assert_eq!(page_of(&recording, |_| {}), page_of(&recording, |_| {}));
}

#[test]
fn verdict_and_its_evidence_are_below_the_status_and_escaped() {
    let sender = Some("<b>".to_owned());
    let signal = SignalReceived { signal: 15, at: START + 2.0, sender_pid: Some(7), sender };
    let evidence = Some(Evidence { signals: vec![signal], ..Evidence::default() });
    let page = page(Run { status: Some(Status::Killed), signal: Some(15), evidence, ..Run::default() }, 3);
    let status = page.find("ended by signal 15 (SIGTERM)").unwrap();
    let why =
        page.find("SIGTERM from `&lt;b&gt;` ended the job: this signal asks a program to end.").unwrap();
    assert!(status < why);
    assert!(page.contains("the tracker received SIGTERM from process 7 (`&lt;b&gt;`)"));
}

#[test]
fn oom_kill_is_reported_with_more_memory_to_request() {
    let oom_kills = Some(OomKills { processes: 1, certain: true, limit_bytes: None });
    let page = page(Run { status: Some(Status::Killed), signal: Some(9), oom_kills, ..Run::default() }, 3);
    assert!(page.contains("Failed</strong> killed (out of memory) after 3 s"));
    assert!(page.contains("the OOM killer ended the job at "));
    assert!(page.contains("so the request is an estimate"));
}

#[test]
fn every_status_has_a_badge_and_an_ending() {
    let status = |status, exit_code, signal| {
        let page = page(Run { status, exit_code, signal, ..Run::default() }, 3);
        let from = page.find("<p class=\"status\">").unwrap();
        page[from..].split("</p>").next().unwrap().replace("<p class=\"status\">", "")
    };
    assert_eq!(
        status(Some(Status::Finished), Some(0), None),
        "<strong class=\"badge good\">Finished</strong> after 3 s"
    );
    assert_eq!(
        status(Some(Status::Failed), Some(3), None),
        "<strong class=\"badge bad\">Failed</strong> with exit code 3 after 3 s"
    );
    assert_eq!(
        status(Some(Status::Killed), None, Some(9)),
        "<strong class=\"badge bad\">Failed</strong> ended by signal 9 (SIGKILL) after 3 s"
    );
    assert_eq!(
        status(Some(Status::Running), None, None),
        "<strong class=\"badge open\">Pending</strong> running for 3 s"
    );
    assert_eq!(
        status(Some(Status::Ended), None, None),
        "<strong class=\"badge good\">Finished</strong> after 3 s; exit code unknown"
    );
    assert_eq!(
        status(Some(Status::TrackerDied), None, None),
        "<strong class=\"badge bad\">Tracker died</strong> after 3 s; the result of the job is unknown"
    );
    assert!(
        status(Some(Status::Detached), None, None).contains("Pending</strong> tracking stopped after 3 s")
    );
    assert!(status(None, None, None).contains("Finished"));
    let recording = recording(&Config::default(), finished(), 3);
    assert!(page_of(&recording, |context| context.failed = true).contains("badge bad\">Failed"));
    assert!(page_of(&recording, |context| context.running = true).contains("badge open\">Pending"));
}

#[test]
fn footer_names_the_integration() {
    let recording = recording(&Config::default(), finished(), 1);
    let footer = |integration: &str| {
        let page = page_of(&recording, |context| context.integration = integration.to_owned());
        page.split("<footer>").nth(1).unwrap().split(',').next().unwrap().to_owned()
    };
    let plain = format!("Generated by <code>resource-tracker</code> {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(footer("Standalone"), plain);
    assert_eq!(footer("r"), format!("{plain} from <code>R</code>"));
    assert_eq!(footer("METAFLOW"), format!("{plain} from <code>Metaflow</code>"));
    assert_eq!(footer("<b>"), format!("{plain} from <code>&lt;b&gt;</code>"));
    let page = page_of(&recording, |context| {
        (context.integration, context.integration_version) = ("R".into(), Some("4.3 <".into()));
    });
    assert!(page.contains(&format!("{plain} from <code>R</code> 4.3 &lt;")), "{page}");
}

#[test]
fn text_of_the_run_is_escaped() {
    let evil = "<script>alert(1)</script>\"'&";
    let run = Run {
        job: Some(evil.into()),
        id: Some(evil.into()),
        host: Some(format!("<img src=x onerror={evil}>")),
        command: Some(vec![evil.into(), "</script>".into()]),
        tags: [(evil.to_owned(), evil.to_owned())].into(),
        notes: vec![evil.into()],
        cpu_source: Some(evil.into()),
        ..finished()
    };
    let mut recording = recording(&Config::default(), run, 2);
    let info = json!({"vendor": evil, "instance_type": evil, "region": evil});
    recording.head.cloud_info = Some(object(info));
    recording.head.metadata.resource_tracker.version = evil.into();
    if let Some(info) = &mut recording.head.server_info {
        info.extend(object(json!({"os": evil, "allocation": evil, "gpu_count": 1, "gpu_names": [evil]})));
    }
    let page = page_of(&recording, |context| {
        context.names = vec![(evil.into(), evil.into())];
        context.zone.abbreviation = "x<b>".into();
        context.servers = Servers::Unanswered { reason: evil.into() };
    });
    let own = page.matches("<script").count();
    assert_eq!((own, page.matches("</script").count(), page.matches("<img").count()), (2, 2, 0));
    assert!(page.matches("&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&amp;").count() >= 12);
    assert!(!page.contains("x<b>"));
}

#[test]
fn run_without_samples_or_tables_has_a_page() {
    let none = page(finished(), 0);
    assert!(none.contains("No recommendation: No metrics collected (yet)."));
    assert_eq!(none.matches("No samples were recorded.").count(), 2);
    assert!(!none.contains("<figure"));

    let one = page(finished(), 1);
    assert_eq!(one.matches("<figure").count(), 5);
    assert!(one.contains("h4000\"></path>"));

    let without = |track_processes, track_system| {
        let config = Config { track_processes, track_system, ..Config::default() };
        page_of(&recording(&config, finished(), 3), |_| {})
    };
    let no_system = without(true, false);
    assert_eq!((no_system.matches("<figure").count(), no_system.contains("System CPU")), (3, false));
    let no_process = without(false, true);
    assert!(no_process.contains("No recommendation: process tracking was off."));
    assert_eq!((no_process.matches("<figure").count(), no_process.contains("Process CPU")), (5, false));
}

#[test]
fn allocation_is_guessed_if_the_recording_has_none() {
    let mut recording = recording(&Config::default(), finished(), 3);
    assert!(page_of(&recording, |_| {}).contains("dedicated to this job"));
    if let Some(info) = &mut recording.head.server_info {
        info.insert("allocation".to_owned(), json!("shared"));
    }
    assert!(page_of(&recording, |_| {}).contains("shared with other jobs"));
}

#[test]
fn gpu_charts_need_a_gpu() {
    let mut recording = recording(&Config::default(), finished(), 3);
    assert!(!page_of(&recording, |_| {}).contains("chart-vram"));
    if let Some(info) = &mut recording.head.server_info {
        info.extend(object(
            json!({"gpu_count": 2, "gpu_names": ["Tesla T4", "Tesla T4"], "gpu_memory_mb": 30_720.0}),
        ));
    }
    let page = page_of(&recording, |_| {});
    for id in ["chart-gpu", "chart-gpus", "chart-vram"] {
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
    }
    assert!(page.contains("2 Tesla T4, 30.0 GiB") && !page.contains("chart-each-gpu"));
    // Figures per GPU add a chart that shows idle GPUs.
    for row in 1..=3 {
        let gpus = [0.75, 0.0].map(|share| [Some(share); Metric::PER_GPU.len()]);
        recording.push(&Row::of(|_| Some(f64::from(row))).with_gpus(gpus.to_vec()));
    }
    let page = page_of(&recording, |_| {});
    assert!(page.contains("id=\"chart-each-gpu\"") && page.contains("GPU 1 usage by the job"), "{page}");
}

#[test]
fn gpu_parts_of_the_page_need_a_gpu() {
    let parts = [
        "<dt>GPUs</dt>",
        "GPU usage",
        "GPUs in use",
        "VRAM",
        "Usage per GPU",
        "did not use its GPU",
        "id=\"chart-gpu",
    ];
    let mut recording = recording(&Config::default(), finished(), 3);
    let without = page_of(&recording, |_| {});
    for part in parts {
        assert!(!without.contains(part), "{part} without a GPU");
    }
    if let Some(info) = &mut recording.head.server_info {
        info.extend(object(json!({"gpu_count": 1, "gpu_names": ["<T4>"], "gpu_memory_mb": 15_360.0})));
    }
    if let Some(run) = &mut recording.head.run {
        run.gpus = vec![crate::probe::gpu::GpuFigures {
            name: "<T4>".to_owned(),
            allowed: true,
            vram_total_mib: Some(15_360.0),
            job_usage_mean: Some(0.0),
            job_usage_max: Some(0.0),
            job_vram_max_mib: Some(0.0),
            usage_mean: Some(0.4),
            power_mean_w: Some(70.2),
            temperature_max_c: Some(61.0),
            ..crate::probe::gpu::GpuFigures::default()
        }];
    }
    let page = page_of(&recording, |_| {});
    for part in parts {
        assert!(page.contains(part), "{part} with a GPU");
    }
    let row = "<tr><th scope=\"row\">0: &lt;T4&gt;</th><td>0 %</td><td>0 %</td><td>40 %</td><td>0 B</td>\
               <td>15.0 GiB</td><td>70 W</td><td>61 °C</td><td></td></tr>";
    assert!(page.contains(row), "{page}");
    // A GPU that is not available to the job gives no finding.
    if let Some(run) = &mut recording.head.run {
        run.gpus[0].allowed = false;
    }
    let page = page_of(&recording, |_| {});
    assert!(page.contains("not available to the job") && !page.contains("did not use its GPU"));
}

#[test]
fn chart_shows_limits_and_the_peak_of_the_statistics() {
    let page = page(finished(), 3);
    let cpu = page.split("id=\"chart-cpu\"").nth(1).unwrap().split("</figure>").next().unwrap();
    // Usage is 1 CPU, the limit is 2 of 4 CPUs: the axis ends at the limit.
    assert!(cpu.contains("2 CPUs (limit), 4 CPUs</span>"), "{cpu}");
    assert!(cpu.contains("<path class=\"limit\" d=\"M0 0H4000\"></path>"), "{cpu}");
    let memory = page.split("id=\"chart-memory\"").nth(1).unwrap().split("</figure>").next().unwrap();
    // The peak is 3 MiB on an axis of 3 MiB, in the middle of the last of three rows.
    assert!(memory.contains("<path class=\"peak\" d=\"M3333 0h0\"></path>"), "{memory}");
}

#[test]
fn peak_between_two_readings_is_drawn() {
    let mut recording = recording(&Config::default(), finished(), 1);
    let mut row = Row::default();
    row.set(Metric::Timestamp, Some(START + 2.0));
    row.set(Metric::ProcessCpu, Some(1.0));
    row.set(Metric::ProcessMemory, Some(1024.0));
    row.set(Metric::MemoryPeak, Some(8.0 * 1024.0));
    recording.push(&row);
    let page = page_of(&recording, |_| {});
    let memory = page.split("id=\"chart-memory\"").nth(1).unwrap().split("</figure>").next().unwrap();
    assert!(memory.contains("<path class=\"peak\" d=\"M3000 0h0\"></path>"), "{memory}");
    assert!(memory.contains("class=\"band\"") && memory.contains("<td>8.00 MiB</td>"), "{memory}");
}

#[test]
fn servers_are_shown_with_savings() {
    let mut recording = recording(&Config::default(), finished(), 3);
    assert!(page_of(&recording, |_| {}).contains("Servers were not searched"));
    let offline = || {
        Catalog::new(crate::market::catalog::Settings {
            cache_dir: None,
            offline: true,
            keeper_url: String::new(),
            deadline: crate::market::catalog::DEADLINE,
        })
    };
    let info = json!({"vendor": "aws", "instance_type": "m5.4xlarge", "region": "us-east-1"});
    recording.head.cloud_info = Some(object(info));
    let head = recording.head.clone();
    let asked = page_of(&recording, |context| context.ask(&head, &mut offline()));
    assert!(asked.contains("this run would have cost"), "servers");
    assert!(asked.contains(" less</strong> than on its own machine"), "savings");
    assert!(asked.contains("Prices from the built-in catalogue"), "source");
    assert!(asked.matches("<dt>Cost of this run</dt>").count() == 2, "cost");
    let nothing = page_of(&recording, |context| {
        context.ask(&head, &mut offline());
        if let Servers::Answered(offers) = &mut context.servers {
            offers.here = None;
            offers.anywhere.servers.clear();
        }
    });
    assert!(nothing.contains("No server in the catalogue fits (1 CPU, 128 MiB)."));
}

#[test]
fn earlier_runs_are_shown_beside_this_run() {
    let mut earlier = recording(&Config::default(), finished(), 4).stats().unwrap();
    // Earlier runs had 64 GiB of memory, this run has 8 GiB.
    earlier.set("process_memory", "max", Some(64.0 * 1024.0 * 1024.0));
    let mut recording = recording(&Config::default(), finished(), 8);
    let info = json!({ "vcpus": 4, "memory_mb": 8192.0 });
    recording.head.server_info = info.as_object().cloned();
    let mut context = context_of(&recording, vec![earlier.clone(), earlier]);
    context.title = Some("train".into());
    let page = context.render(&recording);
    assert!(page.contains("colspan=\"3\">2 earlier runs</th>"));
    assert!(page.contains(
        "<tr><th scope=\"row\">Duration</th><td></td><td></td><td>8 s<small>+100 %</small></td><td></td><td></td><td>4 s</td></tr>"
    ));
    assert!(page.contains(
        "<tr><th scope=\"row\">CPU usage</th><td>1.00<small>±0 %</small></td><td>1.00<small>±0 %</small></td><td>8 s CPU time</td>"
    ));
    assert!(page.contains("at 1.00 busy CPUs on average (25 % of the available CPUs used)"));
    assert!(page.contains(
        "1.2 × the highest peak of 3 runs, 64.0 GiB, rounded up; it would have failed 0 of 3 past runs and wasted "
    ));
    assert!(page.contains(" (under 1 % of the available memory used)"));
}

#[test]
fn requested_resources_are_shown_beside_the_advice() {
    let recording = recording(&Config::default(), finished(), 20);
    let html =
        page_of(&recording, |context| context.requested = Some("@resources(cpu=2, note='<b>')".to_owned()));
    assert!(html.contains("Requested for this run: <code>@resources(cpu=2, note='&lt;b&gt;')</code>"));
    assert!(!page_of(&recording, |_| {}).contains("Requested for this run"));
}
