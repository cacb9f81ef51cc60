//! `completions` and `man`: shell completions and manual pages, generated from the parser.

use clap::Command;
use clap_complete::Shell;
use thiserror::Error;

use crate::failure::Failure;
use crate::show;

const NAME: &str = "resource-tracker";

#[derive(Debug, Error)]
#[error("unknown command `{name}`")]
struct UnknownCommand {
    name: String,
}

pub fn completions(parser: &Command, shell: Shell) -> Result<u8, Failure> {
    let shown = parser.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut parser = Command::new(NAME).version(env!("CARGO_PKG_VERSION")).subcommands(shown);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut parser, NAME, &mut script);
    // In its script for bash, clap_complete 4.6 sets one label for a name with a hyphen, and looks for another.
    let script = String::from_utf8_lossy(&script).replace("resource__subcmd__tracker", "resource__tracker");
    show::text(&script)
}

pub fn man(mut parser: Command, command: Option<&str>) -> Result<u8, Failure> {
    parser.build();
    let page = match command {
        None => parser,
        Some(name) => page_of(&parser, name)?,
    };
    let mut roff = Vec::new();
    let written = clap_mangen::Man::new(page).render(&mut roff);
    written.map_err(|error| Failure::new(error, None))?;
    show::text(&String::from_utf8_lossy(&roff))
}

fn page_of(parser: &Command, name: &str) -> Result<Command, Failure> {
    let full_name = format!("{NAME}-{name}");
    let found = parser.get_subcommands().find(|command| command.get_name() == name);
    found
        .map(|command| {
            command.clone().version(env!("CARGO_PKG_VERSION")).name(full_name.clone()).display_name(full_name)
        })
        .ok_or_else(|| {
            let hint = Some("`resource-tracker --help` lists all commands");
            Failure { code: 2, ..Failure::new(UnknownCommand { name: name.to_owned() }, hint) }
        })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use clap::{Arg, CommandFactory as _};

    use super::*;
    use crate::args::Cli;
    use crate::settings::PROJECT_SETTINGS;

    /// The text of `docs/commands.md`.
    fn page() -> String {
        let mut parser = Cli::command();
        parser.build();
        let mut page = String::from(
            "# Commands\n\nGenerated from the parser; `resource-tracker COMMAND --help` prints the same. RECORDING is `last`, a job name\n\
             or id from `resource-tracker list`, or a file; `./NAME` is always a file. [JSON](json.md) describes the output of `--json`.\n",
        );
        write_commands(&mut page, NAME, &parser);
        page
    }

    fn write_commands(page: &mut String, above: &str, parser: &Command) {
        for command in
            parser.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
        {
            let name = format!("{above} {}", command.get_name());
            if command.has_subcommands() {
                write_commands(page, &name, command);
                continue;
            }
            let about = command.get_long_about().or(command.get_about()).map(ToString::to_string);
            let usage = command.clone().render_usage().to_string();
            let _ = write!(
                page,
                "\n## `{}`\n\n{}\n\n```text title=\"Usage\"\n{}\n```\n",
                name.trim_start_matches(NAME).trim_start(),
                about.unwrap_or_default(),
                usage.trim_start_matches("Usage: ").replace("resource-tracker-", "resource-tracker ")
            );
            let shown: Vec<&Arg> =
                command.get_arguments().filter(|arg| !arg.is_hide_set() && arg.get_id() != "help").collect();
            if !shown.is_empty() {
                page.push_str("\n| option | meaning | variable | default |\n|---|---|---|---|\n");
            }
            for arg in shown {
                write_option(page, arg);
            }
            if let Some(after) = command.get_after_help() {
                let _ = write!(page, "\n```text title=\"Examples\"\n{after}\n```\n");
            }
        }
    }

    fn write_option(page: &mut String, arg: &Arg) {
        let takes_value = arg.get_action().takes_values();
        let names = arg.get_value_names().unwrap_or_default();
        let value = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let name = match (arg.get_short(), arg.get_long()) {
            (Some(short), Some(long)) => format!("-{short}, --{long}"),
            (None, Some(long)) => format!("--{long}"),
            (Some(short), None) => format!("-{short}"),
            (None, None) => String::new(),
        };
        let value = if takes_value { value } else { String::new() };
        let env = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
        let default = arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy()));
        let default = if takes_value { default.collect::<Vec<_>>().join(" ") } else { String::new() };
        let mut help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let values = arg.get_possible_values();
        if takes_value && !values.is_empty() {
            let values: Vec<String> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
            let _ = write!(help, ": {}", values.join(", "));
        }
        let _ = writeln!(page, "| `{}` | {help} | {env} | {default} |", format!("{name} {value}").trim());
    }

    #[test]
    fn docs_page_of_privacy_lists_the_settings_of_a_project() {
        let page = include_str!("../../../docs/privacy.md").split_whitespace().collect::<Vec<_>>().join(" ");
        let names: Vec<String> = PROJECT_SETTINGS.iter().map(|name| format!("`{name}`")).collect();
        let sentence = format!("only harmless settings: {}, the filters of servers, and", names.join(", "));
        assert!(page.contains(&sentence), "docs/privacy.md does not say: {sentence}");
        let parser = Cli::command();
        let run = parser.find_subcommand("run").unwrap();
        for name in PROJECT_SETTINGS {
            let is_named =
                |arg: &Arg| arg.get_id() == name || arg.get_long() == Some(&name.replace('_', "-"));
            assert!(
                run.get_arguments().any(|arg| is_named(arg) && !arg.is_hide_set()),
                "no option for `{name}`"
            );
        }
    }

    #[test]
    fn docs_page_of_commands_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(committed, page(), "run `make generate`");
    }
}
