//! The section "Usage per GPU": a table with a row for each GPU. Empty on a machine without GPUs.

use maud::{Markup, html};

use crate::human;
use crate::probe::gpu::GpuFigures;
use crate::store::recording::Head;

const COLUMNS: [&str; 9] = [
    "GPU",
    "Job, mean",
    "Job, max",
    "All processes, mean",
    "Job VRAM, peak",
    "VRAM size",
    "Power, mean",
    "Temperature, max",
    "Clock, mean",
];

pub(super) fn section(head: &Head) -> Markup {
    let gpus = head.run.as_ref().map_or(&[][..], |run| run.gpus.as_slice());
    html! {
        @if !gpus.is_empty() {
            section aria-labelledby="gpus" {
                h2 #gpus { "Usage per GPU" }
                div.scroll tabindex="0" role="group" aria-label="GPUs" {
                    table.figures {
                        thead { tr { @for column in COLUMNS { th scope="col" { (column) } } } }
                        tbody { @for (number, gpu) in gpus.iter().enumerate() { (row(number, gpu)) } }
                    }
                }
            }
        }
    }
}

fn row(number: usize, gpu: &GpuFigures) -> Markup {
    let share = |value: Option<f64>| value.map(human::percent).unwrap_or_default();
    let memory = |mib: Option<f64>| mib.map(human::megabytes).unwrap_or_default();
    let unit =
        |value: Option<f64>, unit: &str| value.map_or_else(String::new, |value| format!("{value:.0} {unit}"));
    let cells = [
        (share(gpu.job_usage_mean), gpu.estimated),
        (share(gpu.job_usage_max), false),
        (share(gpu.usage_mean), false),
        (memory(gpu.job_vram_max_mib), gpu.estimated),
        (memory(gpu.vram_total_mib), false),
        (unit(gpu.power_mean_w, "W"), false),
        (unit(gpu.temperature_max_c, "°C"), false),
        (unit(gpu.clock_mean_mhz, "MHz"), false),
    ];
    html! {
        tr {
            th scope="row" {
                (number) ": " (gpu.name)
                @if !gpu.allowed { small { "not available to the job" } }
            }
            @for (cell, is_estimate) in cells {
                td { (cell) @if is_estimate { small { "estimate" } } }
            }
        }
    }
}
