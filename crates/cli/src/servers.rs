//! `servers` and `catalog`: cloud servers and their prices.

use std::fmt::Write as _;

use resource_tracker::human;
use resource_tracker::{Answer, Catalog, CatalogSettings, CatalogSource, Query, Server};

use crate::args::{CatalogCommand, ServersArgs};
use crate::failure::Failure;
use crate::show::{self, Table};

pub fn servers(args: &ServersArgs) -> Result<u8, Failure> {
    let mut query = Query::new(args.cpu, args.memory).top(args.n);
    (query.gpu, query.vram_mb, query.filters) = (args.gpu, args.vram, args.filters.filters()?);
    let answer = Catalog::new(args.network.catalog()).servers(&query)?;
    if args.format.json { show::json(&answer) } else { show::text(&table(&answer)) }
}

fn table(answer: &Answer) -> String {
    let source = match answer.source {
        CatalogSource::Keeper => format!("source: the Keeper, {}", answer.as_of),
        CatalogSource::Updated => format!("source: catalogue downloaded on {}", answer.as_of),
        CatalogSource::Embedded => format!("source: built-in catalogue of {}", answer.as_of),
    };
    if answer.servers.is_empty() {
        return format!("no server fits ({source})\n");
    }
    let mut table =
        Table::new(&["vendor", "server", ">vCPUs", ">memory", "GPU", "CPU", "region", ">USD/h", ">spot"]);
    for server in &answer.servers {
        let number = |name: &str| server.number(name);
        let text = |name: &str| show::one_line(server.text(name).unwrap_or_default(), 40);
        let gpus = number("gpu_count").filter(|count| *count > 0.0);
        let price = |value: Option<f64>| value.map(|usd| format!("{usd:.4}")).unwrap_or_default();
        table.row([
            text("vendor_id"),
            name_of(server),
            number("vcpus").map(|cpus| cpus.to_string()).unwrap_or_default(),
            number("memory_amount").map(human::megabytes).unwrap_or_default(),
            gpus.map(|count| format!("{count} × {}", text("gpu_model"))).unwrap_or_default(),
            format!("{} {}", text("cpu_allocation"), text("cpu_architecture")),
            show::one_line(server.price_region().unwrap_or_default(), 40),
            price(server.ondemand_usd()),
            price(server.spot_usd()),
        ]);
    }
    let dates: Vec<_> =
        answer.dates.iter().map(|date| format!("{} {}", date.vendor_id, date.as_of)).collect();
    if let Some(width) = show::columns() {
        // Spot price, CPU class and GPU are left out first.
        table.fit_columns(width, &[8, 5, 4]);
    }
    let mut text = format!("{table}\n{source}");
    if !dates.is_empty() {
        let _ = write!(text, "; prices as of: {}", dates.join(", "));
    }
    if let Some(reason) = &answer.fallback_reason {
        let _ = write!(text, "\nthe Keeper was not used: {reason}");
    }
    text.push('\n');
    text
}

fn name_of(server: &Server) -> String {
    show::one_line(server.text("api_reference").or(server.text("server_id")).unwrap_or_default(), 60)
}

pub fn catalog(command: &CatalogCommand) -> Result<u8, Failure> {
    match command {
        CatalogCommand::Info(args) => {
            let info = CatalogSettings::from_env().catalog_info()?;
            if args.json {
                return show::json(&info);
            }
            let mut table = Table::new(&["vendor", ">servers", ">prices", ">regions", "as of"]);
            for vendor in &info.vendors {
                table.row([
                    vendor.date.vendor_id.clone(),
                    vendor.servers.to_string(),
                    vendor.prices.to_string(),
                    vendor.regions.to_string(),
                    vendor.date.as_of.clone(),
                ]);
            }
            let updated = info.updated.as_ref().map_or_else(
                || "not updated yet; run `resource-tracker catalog update`".to_owned(),
                |updated| format!("updated on {}: {} servers", updated.as_of, updated.servers),
            );
            show::text(&format!("{table}\nbuilt-in catalogue of {}; {updated}\n", info.collected))
        }
        CatalogCommand::Update(args) => {
            let report = CatalogSettings::from_env().update_catalog(&args.regions, &mut |step| {
                show::progress(&step.to_string());
            })?;
            if args.format.json {
                return show::json(&report);
            }
            show::text(if report.changed { "catalogue updated\n" } else { "catalogue is up to date\n" })
        }
    }
}
