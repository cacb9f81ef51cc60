//! The help of the program, with its commands in groups.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use super::Cli;

/// Headings of the help and their commands. clap has one heading for all commands.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Run", &["run", "mark", "attach", "process", "system"]),
    ("Look", &["list", "show", "stats", "report", "compare", "check", "export", "fleet"]),
    ("Size", &["recommend", "servers", "catalog"]),
    ("Manage", &["rm", "info", "config", "completions", "man", "help"]),
];

/// The parser of the command line.
pub fn parser() -> Command {
    let parser = Cli::command();
    let head = *parser.get_styles().get_header();
    let name_style = *parser.get_styles().get_literal();
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(groups, "{head}{heading}:{head:#}");
        for name in names {
            let about = parser.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let about = about.unwrap_or_else(|| "Print the help of a command".to_owned());
            let _ = writeln!(groups, "  {name_style}{name:<11}{name_style:#}  {about}");
        }
        groups.push('\n');
    }
    parser.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}{head}Options:{head:#}\n{{options}}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_command_is_in_one_group() {
        let parser = Cli::command();
        let commands = parser.get_subcommands().filter(|command| !command.is_hide_set());
        let mut visible: Vec<&str> = commands.map(Command::get_name).chain(["help"]).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        visible.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, visible);
    }
}
