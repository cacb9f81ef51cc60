//! "GPU by GPU": what each GPU did, and what of it was the job's.
//!
//! In:  the figures that the recording has of every GPU. Out: a table; nothing where there is no GPU.

use std::fmt::Write as _;

use crate::recording::Head;

use super::html::Text;
use crate::human as format;

/// Writes the section.
pub(super) fn write(html: &mut String, head: &Head) {
    let gpus = head.run.as_ref().map_or(&[][..], |run| run.gpus.as_slice());
    if gpus.is_empty() {
        return;
    }
    html.push_str(
        "<section aria-labelledby=\"gpus\">\n<h2 id=\"gpus\">GPU by GPU</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"group\" \
         aria-label=\"GPUs\"><table class=\"figures\"><thead><tr>\
         <th scope=\"col\">GPU</th><th scope=\"col\">Job, mean</th><th scope=\"col\">Job, most</th>\
         <th scope=\"col\">All, mean</th><th scope=\"col\">Job’s VRAM, peak</th><th scope=\"col\">VRAM</th>\
         <th scope=\"col\">Power, mean</th><th scope=\"col\">Hottest</th><th scope=\"col\">Clock, mean</th></tr></thead>\n\
         <tbody>\n",
    );
    for (number, gpu) in gpus.iter().enumerate() {
        let kept_from = if gpu.allowed { "" } else { "<small>not for the job</small>" };
        let estimate = if gpu.estimated { "<small>estimate</small>" } else { "" };
        let _ = write!(html, "<tr><th scope=\"row\">{number}: {}{kept_from}</th>", Text(&gpu.name));
        let share = |value: Option<f64>| value.map(format::percent).unwrap_or_default();
        let unit = |value: Option<f64>, unit: &str| {
            value.map_or_else(String::new, |value| format!("{value:.0} {unit}"))
        };
        let memory = |mib: Option<f64>| mib.map(format::megabytes).unwrap_or_default();
        for (cell, mark) in [
            (share(gpu.job_usage_mean), estimate),
            (share(gpu.job_usage_max), ""),
            (share(gpu.usage_mean), ""),
            (memory(gpu.job_vram_max_mib), estimate),
            (memory(gpu.vram_total_mib), ""),
            (unit(gpu.power_mean_w, "W"), ""),
            (unit(gpu.temperature_max_c, "°C"), ""),
            (unit(gpu.clock_mean_mhz, "MHz"), ""),
        ] {
            let _ = write!(html, "<td>{cell}{mark}</td>");
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n</section>\n");
}
