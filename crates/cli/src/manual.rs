//! `completions` and `man`: what the parser knows, for shells and for `man`.

use clap::Command;
use clap_complete::Shell;
use thiserror::Error;

use crate::failure::Failure;
use crate::show;

const NAME: &str = "resource-tracker";

#[derive(Debug, Error)]
#[error("there is no command `{name}`")]
struct NoSuchCommand {
    name: String,
}

/// Prints completions.
pub fn completions(mut parser: Command, shell: Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut parser, NAME, &mut script);
    show::text(&String::from_utf8_lossy(&script))
}

/// Prints a manual page in roff.
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
            let hint = Some("`resource-tracker --help` lists the commands");
            Failure { code: 2, ..Failure::new(NoSuchCommand { name: name.to_owned() }, hint) }
        })
}
