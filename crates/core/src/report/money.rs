//! Servers and prices on the page.
//!
//! In:  what the catalogue said. Out: facts about the cloud it ran in; servers that would do, with what this run
//!      would have cost on each. What is not known is said to be so, never shown as 0.

use std::fmt::Write as _;

use crate::catalog::{Answer, Server, Source};
use crate::recommend::Advice;
use crate::recording::Head;

use super::html::{Text, text};
use super::page::Facts;
use super::{Context, Servers, cloud};
use crate::human::{self as format, Scale};

/// The cloud it ran in, and the cost of the run there.
pub(super) fn add_cloud(facts: &mut Facts, head: &Head, context: &Context) {
    let Some(info) = &head.cloud_info else {
        facts.add("Cloud", Some("not looked for"));
        return;
    };
    let Some(vendor) = cloud(head, "vendor") else {
        let found = info.get("vendor").is_some();
        facts.add("Cloud", Some(if found { "none that we know" } else { "not looked for" }));
        return;
    };
    facts.add("Cloud", Some(vendor));
    facts.add("Instance type", Some(cloud(head, "instance_type").unwrap_or("not known")));
    facts.add("Region", Some(cloud(head, "region").unwrap_or("not known")));
    let Some((price, cost)) = context.price.as_ref().zip(context.cost(None).current) else {
        facts.add("Cost of this run", Some("not known: no price for this instance type"));
        return;
    };
    let elsewhere =
        if price.in_asked_region { String::new() } else { format!(" (price of {})", price.region) };
    let usd = format!("{} at {} an hour{elsewhere}", format::usd(cost.usd), format::usd(cost.usd_per_hour));
    facts.add("Cost of this run", Some(&usd));
}

/// The card with servers that fit.
pub(super) fn write_servers(html: &mut String, context: &Context) {
    html.push_str("<div class=\"card wide\"><h3>Cheapest servers that fit</h3>\n");
    let needs = context.advice.as_ref().map(Advice::to_ask).map_or_else(
        |_| String::new(),
        |needs| {
            let gpu = if needs.gpu > 0 { format!(", {} GPU", needs.gpu) } else { String::new() };
            format!("{} CPU, {}{gpu}", needs.cpu, format::megabytes(f64::from(needs.memory_mb)))
        },
    );
    match &context.servers {
        Servers::NotAsked => {
            html.push_str("<p class=\"empty\">No catalogue of servers was asked for this report.</p>\n");
        }
        Servers::Unanswered { reason } => {
            let _ = writeln!(html, "<p class=\"empty\">No server can be recommended: {}.</p>", Text(reason));
        }
        Servers::Answered(answer) if answer.servers.is_empty() => {
            let _ = writeln!(
                html,
                "<p class=\"empty\">No server in the catalogue has what is needed ({}).</p>",
                Text(&needs)
            );
            write_source(html, answer);
        }
        Servers::Answered(answer) => {
            write_savings(html, context);
            write_table(html, context, &answer.servers);
            write_source(html, answer);
        }
    }
    html.push_str("</div>\n");
}

/// What the cheapest would have cost, in one sentence.
fn write_savings(html: &mut String, context: &Context) {
    let Some(server) = context.server() else { return };
    let cost = context.cost(Some(server));
    let name = format!("<strong><bdi>{}</bdi></strong> of {}", Text(server.name()), Text(vendor(server)));
    let Some(there) = cost.recommended else {
        let _ = writeln!(html, "<p class=\"lead\">{name} would do; its price is not known.</p>");
        return;
    };
    let _ = write!(
        html,
        "<p class=\"lead\">On {name}, this run would have cost <strong>{}</strong>",
        format::usd(there.usd)
    );
    match cost.savings {
        Some(savings) if savings.usd > 0.0 => {
            let _ = write!(
                html,
                ": <strong class=\"saved\">{} less</strong> than here ({:.0} % saved)",
                format::usd(savings.usd),
                savings.percent
            );
        }
        Some(savings) if savings.usd < 0.0 => {
            let _ = write!(html, ", {} more than here", format::usd(-savings.usd));
        }
        Some(_) => html.push_str(", as much as here"),
        None => {}
    }
    html.push_str(", if it took as long there.</p>\n");
}

fn vendor(server: &Server) -> &str {
    let name = server.get("vendor").get("name").and_then(serde_json::Value::as_str);
    name.unwrap_or_else(|| server.vendor_id())
}

fn write_table(html: &mut String, context: &Context, servers: &[Server]) {
    html.push_str(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Servers\"><table class=\"figures\"><thead><tr><th scope=\"col\">Server</th><th scope=\"col\" class=\"word\">Vendor</th>\
         <th scope=\"col\">CPUs</th><th scope=\"col\">Memory</th><th scope=\"col\">GPUs</th><th scope=\"col\">An hour</th>\
         <th scope=\"col\">This run</th><th scope=\"col\">At spot</th></tr></thead><tbody>\n",
    );
    for server in servers {
        let cost = context.cost(Some(server)).recommended;
        let show =
            |value: Option<f64>, scale: Scale| value.map_or_else(String::new, |value| scale.show(value));
        let usd = |value: Option<f64>| value.map_or_else(|| "not known".to_owned(), format::usd);
        let gpus = server.number("gpu_count").filter(|count| *count > 0.0).map(|count| {
            format!("{} {}", Scale::Count.show(count), server.text("gpu_model").unwrap_or_default())
        });
        let _ = writeln!(
            html,
            "<tr><th scope=\"row\"><bdi>{}</bdi></th><td class=\"word\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            Text(server.name()),
            Text(vendor(server)),
            show(server.number("vcpus"), Scale::Count),
            show(server.number("memory_amount").map(|mib| mib * 1_048_576.0), Scale::Bytes),
            text(&gpus.unwrap_or_default()),
            usd(server.ondemand_usd()),
            usd(cost.map(|cost| cost.usd)),
            usd(cost.and_then(|cost| cost.spot_usd)),
        );
    }
    html.push_str("</tbody></table></div>\n");
}

/// Who says so, and as of when.
fn write_source(html: &mut String, answer: &Answer) {
    let who = match answer.source {
        Source::Keeper => "Prices by the public server-search service",
        Source::Updated => "Prices by the catalogue fetched",
        Source::Embedded => "Prices by the built-in catalogue",
    };
    let why = answer.fallback_reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let dates: Vec<String> =
        answer.dates.iter().map(|date| format!("{} {}", date.name, date.as_of)).collect();
    let dates = if dates.is_empty() { String::new() } else { format!("; {}", dates.join(", ")) };
    let line = format!("{who}, {}{why}{dates}. On demand, Linux, USD.", answer.as_of);
    let _ = writeln!(html, "<p class=\"note\">{}</p>", Text(&line));
}
