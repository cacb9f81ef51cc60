//! Cloud, servers and prices on the page. An unknown price is "unknown", never 0.

use maud::{Markup, html};

use super::Context;
use super::facts::Facts;
use crate::analysis::cost::{Servers, cloud};
use crate::human::{self, Scale};
use crate::market::catalog::{Answer, Server};
use crate::store::recording::Head;

/// Adds the cloud of the machine and the cost of the run.
pub(super) fn add_cloud(facts: &mut Facts, head: &Head, context: &Context) {
    let Some(vendor) = cloud(head, "vendor") else {
        let is_checked = head.cloud_info.as_ref().is_some_and(|info| info.contains_key("vendor"));
        facts.add("Cloud", Some(if is_checked { "not a recognised cloud" } else { "not checked" }));
        return;
    };
    facts.add("Cloud", Some(vendor));
    facts.add("Instance type", Some(cloud(head, "instance_type").unwrap_or("unknown")));
    facts.add("Region", Some(cloud(head, "region").unwrap_or("unknown")));
    let cost = match context.price.as_ref().zip(context.cost(None).current) {
        Some((price, cost)) => {
            let region =
                if price.in_asked_region { String::new() } else { format!(" (price in {})", price.region) };
            format!("{} at {}/h{region}", human::usd(cost.usd), human::usd(cost.usd_per_hour))
        }
        None => "unknown: no price for this instance type".to_owned(),
    };
    facts.add("Cost of this run", Some(cost));
}

/// The card with servers that fit the recommendation.
pub(super) fn servers(context: &Context) -> Markup {
    let needs = context.advice.as_ref().map(|advice| advice.request).map_or_else(
        |_| String::new(),
        |needs| {
            let gpu = if needs.gpu > 0 { format!(", {} GPU", needs.gpu) } else { String::new() };
            format!("{} CPU, {}{gpu}", needs.cpu, human::megabytes(f64::from(needs.memory_mb)))
        },
    );
    html! {
        div.card.wide {
            h3 { "Cheapest servers that fit" }
            @match &context.servers {
                Servers::NotAsked => p.empty { "Servers were not searched for this report." }
                Servers::Unanswered { reason } => p.empty { "The server search failed: " (reason) "." }
                Servers::Answered(offers) => {
                    @if let Some(here) = &offers.here {
                        (savings(context))
                        (table(context, here, "Servers of the same cloud and region"))
                        (table(context, &offers.anywhere, "Servers anywhere"))
                        (source(here))
                    } @else if offers.anywhere.servers.is_empty() {
                        p.empty { "No server in the catalogue fits (" (needs) ")." }
                    } @else {
                        (savings(context))
                        (table(context, &offers.anywhere, "Servers anywhere"))
                    }
                    (source(&offers.anywhere))
                    @for note in &offers.notes { p.note { "Note: " (note) "." } }
                }
            }
        }
    }
}

/// The cost of this run on the cheapest server, compared with its own machine.
fn savings(context: &Context) -> Markup {
    let Some(server) = context.server() else { return Markup::default() };
    let cost = context.cost(Some(server));
    let place = server.price_region().map(|region| format!(", {region}")).unwrap_or_default();
    let name = html! { strong { bdi { (server.name()) } } " (" (vendor(server)) (place) ")" };
    html! {
        p.lead {
            @if let Some(there) = cost.recommended {
                "On " (name) ", this run would have cost " strong { (human::usd(there.usd)) }
                @match cost.savings {
                    Some(savings) if savings.usd > 0.0 => {
                        ": " strong.saved { (human::usd(savings.usd)) " less" } " than on its own machine ("
                        (format_args!("{:.0}", savings.percent)) " % saved" @if !savings.same_region { ", in another region" } ")"
                    }
                    Some(savings) if savings.usd < 0.0 => {
                        ", " (human::usd(-savings.usd)) " more than on its own machine"
                        @if !savings.same_region { " (prices of different regions)" }
                    }
                    Some(_) => ", the same as on its own machine",
                    None => {}
                }
                ", if it takes the same time."
            } @else {
                (name) " fits. Its price is unknown."
            }
        }
    }
}

fn vendor(server: &Server) -> &str {
    let name = server.get("vendor").get("name").and_then(serde_json::Value::as_str);
    name.unwrap_or_else(|| server.vendor_id())
}

fn table(context: &Context, answer: &Answer, title: &str) -> Markup {
    let show = |value: Option<f64>, scale: Scale| value.map_or_else(String::new, |value| scale.show(value));
    let usd = |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), human::usd);
    let gpus = |server: &Server| {
        let count = server.number("gpu_count").filter(|count| *count > 0.0)?;
        Some(format!("{} {}", Scale::Count.show(count), server.text("gpu_model").unwrap_or_default()))
    };
    html! {
        div.scroll tabindex="0" role="group" aria-label=(title) {
            table.figures.held {
                caption { (title) }
                thead {
                    tr {
                        th scope="col" { "Server" }
                        @for column in ["Vendor", "Region", "CPU class"] { th.word scope="col" { (column) } }
                        @for column in ["CPUs", "Memory", "GPUs", "Per hour", "Price date", "This run", "This run, spot"] {
                            th scope="col" { (column) }
                        }
                    }
                }
                tbody {
                    @for server in &answer.servers {
                        @let cost = context.cost(Some(server)).recommended;
                        tr {
                            th scope="row" { bdi { (server.name()) } }
                            td.word { (vendor(server)) }
                            td.word { (server.price_region().unwrap_or("unknown")) }
                            td.word { (server.cpu_class()) }
                            td { (show(server.number("vcpus"), Scale::Count)) }
                            td { (show(server.number("memory_amount").map(|mib| mib * 1_048_576.0), Scale::Bytes)) }
                            td { (gpus(server).unwrap_or_default()) }
                            td { (usd(server.ondemand_usd())) }
                            td { (answer.price_date(server)) }
                            td { (usd(cost.map(|cost| cost.usd))) }
                            td { (usd(cost.and_then(|cost| cost.spot_usd))) }
                        }
                    }
                }
            }
        }
    }
}

/// Origin and date of the prices.
fn source(answer: &Answer) -> Markup {
    let reason = answer.fallback_reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let dates = answer.dates.iter().map(|date| format!("{} {}", date.name, date.as_of));
    let dates = dates.collect::<Vec<_>>().join(", ");
    html! {
        p.note {
            "Prices from the " (answer.source.name()) ", " (answer.as_of) (reason)
            @if !dates.is_empty() { "; " (dates) }
            ". On-demand Linux prices in USD."
        }
    }
}
