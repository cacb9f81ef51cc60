//! "Was it the right size?": what to ask for next time, why, and how far to trust that.
//!
//! In:  the advice. Out: its section of the page, with blocks to paste and servers that fit (`money`).

use std::fmt::Write as _;

use crate::recommend::Advice;
use crate::recording::Head;

use super::html::Text;
use super::{Context, Standing, limits, money, snippets};
use crate::human::{self as format, Scale};

/// Writes the section.
pub(super) fn write(html: &mut String, head: &Head, context: &Context) {
    html.push_str("<section aria-labelledby=\"size\">\n<h2 id=\"size\">Was it the right size?</h2>\n");
    match &context.advice {
        Ok(advice) => write_advice(html, head, context, advice),
        Err(error) => {
            let reason = error.to_string();
            let _ = writeln!(html, "<p class=\"empty\">Nothing can be recommended: {}.</p>", Text(&reason));
        }
    }
    html.push_str("</section>\n");
}

fn write_advice(html: &mut String, head: &Head, context: &Context, advice: &Advice) {
    let (resources, basis, had) = (advice.to_ask(), &advice.basis, limits(head));
    let over = match basis.runs {
        1 => String::new(),
        runs => format!(" over {runs} runs"),
    };
    html.push_str(
        "<div class=\"cards size\">\n<div class=\"card\"><h3>Ask for this next time</h3>\n<dl class=\"needs\">\n",
    );
    let mut need = |label: &str, value: &str, why: &str, share: Option<f64>| {
        let _ = write!(html, "<div><dt>{label}</dt><dd><b>{value}</b>");
        if let Some(share) = share {
            let _ = write!(
                html,
                "<svg class=\"bar\" aria-hidden=\"true\"><rect width=\"{:.1}%\" height=\"100%\"/></svg>",
                (share * 100.0).clamp(0.5, 100.0)
            );
        }
        let _ = writeln!(html, "<span>{why}</span></dd></div>");
    };
    let used = |share: Option<f64>| {
        share.map_or_else(String::new, |share| format!("; it used {} of what it had", format::percent(share)))
    };
    let cpu_share = basis.cpu_mean_cores.zip(had.cpu_cores).map(|(mean, had)| mean / had);
    let mean = basis.cpu_mean_cores.map_or_else(String::new, |mean| Scale::Cores.show(mean));
    need(
        "CPU",
        &format!("{} CPU{}", resources.cpu, if resources.cpu == 1 { "" } else { "s" }),
        &format!("mean use {mean}{over}{}", used(cpu_share)),
        cpu_share,
    );
    let peak_mb = basis.memory_peak_kib.map(|kib| kib / 1024.0);
    let memory_share = peak_mb.zip(had.memory_mb).map(|(peak, had)| peak / had);
    let peak = peak_mb.map_or_else(String::new, format::megabytes);
    need(
        "Memory",
        &memory(resources.memory_mb),
        &format!("peak {peak}{over}, 20 % on top, rounded up{}", used(memory_share)),
        memory_share,
    );
    if resources.gpu > 0 {
        let mean = basis.gpu_mean.map_or_else(String::new, |mean| Scale::Cores.show(mean));
        need(
            "GPU",
            &format!("{} GPU{}", resources.gpu, if resources.gpu == 1 { "" } else { "s" }),
            &format!("mean use {mean}{over}"),
            None,
        );
    }
    if resources.vram_mb > 0 {
        let peak = basis.vram_peak_mib.map_or_else(String::new, format::megabytes);
        need(
            "VRAM",
            &memory(resources.vram_mb),
            &format!("peak {peak}{over}, 20 % on top, rounded up"),
            None,
        );
    }
    html.push_str("</dl>\n");
    if let Some(requested) = &context.requested {
        let _ = writeln!(html, "<p class=\"note\">Asked for this time: <code>{}</code></p>", Text(requested));
    }
    if !advice.findings.is_empty() {
        html.push_str("<h4>What can be better</h4>\n<ul class=\"weak\">");
        for finding in &advice.findings {
            let _ = write!(html, "<li>{}</li>", Text(&finding.to_string()));
        }
        html.push_str("</ul>\n");
    }
    let standing = match Standing::of(head, context) {
        Standing::Failed => Some("the run failed, so a run that succeeds may need more".to_owned()),
        Standing::Pending => Some("the run is not over, so these are its figures so far".to_owned()),
        Standing::Finished => None,
    };
    let weak: Vec<String> =
        standing.into_iter().chain(advice.warnings.iter().map(ToString::to_string)).collect();
    if !weak.is_empty() {
        html.push_str("<h4>How far to trust this</h4>\n<ul class=\"weak\">");
        for warning in &weak {
            let _ = write!(html, "<li>{}</li>", Text(warning));
        }
        html.push_str("</ul>\n");
    }
    html.push_str("</div>\n<div class=\"card\"><h3>Ready to paste</h3>\n");
    for snippets::Snippet { name, text } in snippets::snippets(&resources) {
        let _ = writeln!(
            html,
            "<div class=\"snippet\"><h4>{name}</h4><pre tabindex=\"0\" aria-label=\"{name} block\">{}</pre></div>",
            Text(&text)
        );
    }
    html.push_str("</div>\n");
    money::write_servers(html, context);
    html.push_str("</div>\n");
}

/// A recommended size: whole MiB, or whole GiB above 2 of them.
fn memory(mb: u32) -> String {
    if mb.is_multiple_of(1024) {
        format!("{} GiB <small>{mb} MB</small>", mb / 1024)
    } else {
        format!("{mb} MiB")
    }
}
