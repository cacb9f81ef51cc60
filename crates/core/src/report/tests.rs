//! The page as a whole: what it says of runs of every kind, and what it never does.

use base64::Engine as _;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::*;
use crate::config::Config;
use crate::metric::{Metric, Row};
use crate::record;
use crate::recording::OomKills;
use crate::recording::Run;

const START: f64 = 1_741_785_600.0;

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is no object"),
    }
}

fn recording(config: &Config, run: Run, rows: u32) -> Recording {
    let mut head = record::head(config, 4242, START, run);
    head.metadata.set_stop_time(START + f64::from(rows));
    head.server_info =
        Some(object(json!({"os": "linux", "vcpus": 4, "memory_mb": 8192.0, "cpu_limit": 2.0})));
    let mut recording = Recording::new(head);
    for number in 1..=rows {
        let mut row = Row::default();
        for metric in Metric::ALL {
            row.set(*metric, Some(1.0));
        }
        row.set(Metric::Timestamp, Some(START + f64::from(number)));
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

fn page_of(recording: &Recording, change: impl FnOnce(&mut Context)) -> String {
    let mut context = Context::new(recording, Vec::new(), START + 60.0, Zone::utc());
    change(&mut context);
    render(recording, &context)
}

fn page(run: Run, rows: u32) -> String {
    page_of(&recording(&Config::default(), run, rows), |_| {})
}

fn hash(text: &str) -> String {
    format!("'sha256-{}'", base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text)))
}

#[test]
fn the_policy_allows_this_style_and_this_script_and_nothing_else() {
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
fn the_same_input_gives_the_same_page() {
    let recording = recording(&Config::default(), finished(), 3);
    assert_eq!(page_of(&recording, |_| {}), page_of(&recording, |_| {}));
}

#[test]
fn a_job_that_was_killed_for_memory_is_said_to_be_and_what_to_try() {
    let oom_kills = Some(OomKills { processes: 1, certain: true });
    let page = page(Run { status: Some(Status::Killed), signal: Some(9), oom_kills, ..Run::default() }, 3);
    assert!(page.contains("Failed</strong> killed for memory after 3 s"));
    assert!(page.contains("it was killed for memory, at "));
}

#[test]
fn every_standing_has_its_word_and_its_ending() {
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
        "<strong class=\"badge bad\">Failed</strong> by signal 9 (SIGKILL) after 3 s"
    );
    assert_eq!(
        status(Some(Status::Running), None, None),
        "<strong class=\"badge open\">Pending</strong> still running, 3 s so far"
    );
    assert_eq!(
        status(Some(Status::Ended), None, None),
        "<strong class=\"badge good\">Finished</strong> after 3 s; its exit code is not known"
    );
    assert!(
        status(Some(Status::TrackerDied), None, None).contains("Pending</strong> the tracker itself ended")
    );
    assert!(status(Some(Status::Detached), None, None).contains("Pending</strong> tracking was stopped"));
    assert!(status(None, None, None).contains("Finished"));
    let recording = recording(&Config::default(), finished(), 3);
    assert!(page_of(&recording, |context| context.failed = true).contains("badge bad\">Failed"));
    assert!(page_of(&recording, |context| context.running = true).contains("badge open\">Pending"));
}

#[test]
fn the_footer_names_who_asked() {
    let recording = recording(&Config::default(), finished(), 1);
    let footer = |integration: &str| {
        let page = page_of(&recording, |context| context.integration = integration.to_owned());
        page.split("<footer>").nth(1).unwrap().split(',').next().unwrap().to_owned()
    };
    let plain = format!("Made by <code>resource-tracker</code> {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(footer("Standalone"), plain);
    assert_eq!(footer("r"), format!("{plain} from <code>R</code>"));
    assert_eq!(footer("METAFLOW"), format!("{plain} from <code>Metaflow</code>"));
    assert_eq!(footer("<b>"), format!("{plain} from <code>&lt;b&gt;</code>"));
}

#[test]
fn nothing_of_the_run_is_taken_for_markup() {
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
    assert!(page.matches("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;").count() >= 12);
    assert!(!page.contains("x<b>"));
}

#[test]
fn runs_with_little_in_them_have_a_page_that_says_so() {
    let none = page(finished(), 0);
    assert!(none.contains("Nothing can be recommended: No metrics collected (yet)."));
    assert!(none.contains("there is nothing to draw") && !none.contains("<figure"));
    assert!(none.contains("there are no figures"));

    let one = page(finished(), 1);
    assert_eq!(one.matches("<figure").count(), 5);
    assert!(one.contains("<path class=\"line\" d=\"M0 0h4000\"/>") || one.contains("h4000\"/>"));

    let without = |track_processes, track_system| {
        let config = Config { track_processes, track_system, ..Config::default() };
        page_of(&recording(&config, finished(), 3), |_| {})
    };
    let no_system = without(true, false);
    assert_eq!((no_system.matches("<figure").count(), no_system.contains("System CPU")), (3, false));
    let no_process = without(false, true);
    assert!(no_process.contains("Nothing can be recommended: the process table is off"));
    assert_eq!((no_process.matches("<figure").count(), no_process.contains("Process CPU")), (5, false));
}

#[test]
fn who_uses_the_machine_is_guessed_where_a_recording_does_not_say() {
    let mut recording = recording(&Config::default(), finished(), 3);
    assert!(page_of(&recording, |_| {}).contains("this job alone (dedicated)"));
    if let Some(info) = &mut recording.head.server_info {
        info.insert("allocation".to_owned(), json!("shared"));
    }
    assert!(page_of(&recording, |_| {}).contains("others too (shared)"));
}

#[test]
fn the_gpu_has_charts_where_there_is_one() {
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
    // Which of them the job left idle is seen where there are figures of each.
    for row in 1..=3 {
        let gpus = [0.75, 0.0].map(|share| [Some(share); Metric::PER_GPU.len()]);
        recording.push(&Row::of(|_| Some(f64::from(row))).with_gpus(gpus.to_vec()));
    }
    let page = page_of(&recording, |_| {});
    assert!(page.contains("id=\"chart-each-gpu\"") && page.contains("GPU 1 usage by the job"), "{page}");
}

#[test]
fn every_part_about_gpus_is_there_exactly_when_there_is_one() {
    // In the page's text, the figures, the charts, the advice and the table of single GPUs.
    let parts = [
        "<dt>GPUs</dt>",
        "GPU usage",
        "GPUs in use",
        "VRAM",
        "GPU by GPU",
        "never used it",
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
        run.gpus = vec![crate::source::gpu::GpuFigures {
            name: "<T4>".to_owned(),
            allowed: true,
            vram_total_mib: Some(15_360.0),
            job_usage_mean: Some(0.0),
            job_usage_max: Some(0.0),
            job_vram_max_mib: Some(0.0),
            usage_mean: Some(0.4),
            power_mean_w: Some(70.2),
            temperature_max_c: Some(61.0),
            ..crate::source::gpu::GpuFigures::default()
        }];
    }
    let page = page_of(&recording, |_| {});
    for part in parts {
        assert!(page.contains(part), "{part} with a GPU");
    }
    let row = "<tr><th scope=\"row\">0: &lt;T4&gt;</th><td>0 %</td><td>0 %</td><td>40 %</td><td>0 B</td>\
               <td>15.0 GiB</td><td>70 W</td><td>61 °C</td><td></td></tr>";
    assert!(page.contains(row), "{page}");
    // A GPU that another job could use is no reason to ask for less.
    if let Some(run) = &mut recording.head.run {
        run.gpus[0].allowed = false;
    }
    let page = page_of(&recording, |_| {});
    assert!(page.contains("not for the job") && !page.contains("never used it"));
}

#[test]
fn limits_and_the_peak_of_the_statistics_are_in_the_plot() {
    let page = page(finished(), 3);
    let cpu = page.split("id=\"chart-cpu\"").nth(1).unwrap().split("</figure>").next().unwrap();
    // One core used, two allowed of four: the axis ends at two, where the line is.
    assert!(cpu.contains("2 CPUs allowed, 4 CPUs</span>"), "{cpu}");
    assert!(cpu.contains("<path class=\"limit\" d=\"M0 0H4000\"/>"), "{cpu}");
    let memory = page.split("id=\"chart-memory\"").nth(1).unwrap().split("</figure>").next().unwrap();
    // 3 MiB at the end of an axis of 3 MiB, in the middle of the last of three rows.
    assert!(memory.contains("<path class=\"peak\" d=\"M3333 0h0\"/>"), "{memory}");
}

#[test]
fn a_peak_between_two_readings_is_drawn_too() {
    let mut recording = recording(&Config::default(), finished(), 1);
    let mut row = Row::default();
    row.set(Metric::Timestamp, Some(START + 2.0));
    row.set(Metric::ProcessCpu, Some(1.0));
    row.set(Metric::ProcessMemory, Some(1024.0));
    row.set(Metric::MemoryPeak, Some(8.0 * 1024.0));
    recording.push(&row);
    let page = page_of(&recording, |_| {});
    let memory = page.split("id=\"chart-memory\"").nth(1).unwrap().split("</figure>").next().unwrap();
    assert!(memory.contains("<path class=\"peak\" d=\"M3000 0h0\"/>"), "{memory}");
    assert!(memory.contains("class=\"band\"") && memory.contains("<td>8.00 MiB</td>"), "{memory}");
}

#[test]
fn servers_are_shown_with_savings_or_in_words() {
    let mut recording = recording(&Config::default(), finished(), 3);
    assert!(page_of(&recording, |_| {}).contains("No catalogue of servers was asked"));
    let offline = || {
        Catalog::new(crate::catalog::Settings {
            cache_dir: None,
            offline: true,
            keeper_url: String::new(),
            deadline: crate::catalog::DEADLINE,
        })
    };
    let info = json!({"vendor": "aws", "instance_type": "m5.4xlarge", "region": "us-east-1"});
    recording.head.cloud_info = Some(object(info));
    let head = recording.head.clone();
    let asked = page_of(&recording, |context| context.ask(&head, &mut offline()));
    assert!(asked.contains("this run would have cost"), "servers");
    assert!(asked.contains(" less</strong> than here"), "savings");
    assert!(asked.contains("Prices by the built-in catalogue"), "source");
    assert!(asked.contains("<dt>Cost of this run</dt>") && asked.contains("<dt>Cost here</dt>"), "cost");
    let nothing = page_of(&recording, |context| {
        context.ask(&head, &mut offline());
        if let Servers::Answered(answer) = &mut context.servers {
            answer.servers.clear();
        }
    });
    assert!(nothing.contains("No server in the catalogue has what is needed (1 CPU, 128 MiB)."));
}

#[test]
fn history_stands_beside_this_run() {
    let mut recording = recording(&Config::default(), finished(), 4);
    let earlier = recording.stats().unwrap();
    recording.head.metadata.start_time = Some(START - 4.0);
    let mut context = Context::new(&recording, vec![earlier.clone(), earlier], START, Zone::utc());
    context.title = Some("train".into());
    let page = render(&recording, &context);
    assert!(page.contains("colspan=\"3\">2 earlier runs</th>"));
    assert!(page.contains(
        "<tr><th scope=\"row\">Duration</th><td></td><td></td><td>8 s<small>+100 %</small></td><td></td><td></td><td>4 s</td></tr>"
    ));
    assert!(page.contains(
        "<tr><th scope=\"row\">CPU usage</th><td>1.00<small>±0 %</small></td><td>1.00<small>±0 %</small></td><td>8 s of CPU</td>"
    ));
    assert!(page.contains("mean use 1.00 over 3 runs"));
}

#[test]
fn what_was_asked_for_stands_beside_the_advice() {
    let recording = recording(&Config::default(), finished(), 20);
    let html =
        page_of(&recording, |context| context.requested = Some("@resources(cpu=2, note='<b>')".to_owned()));
    assert!(html.contains("Asked for this time: <code>@resources(cpu=2, note=&#39;&lt;b&gt;&#39;)</code>"));
    assert!(!page_of(&recording, |_| {}).contains("Asked for this time"));
}
