//! Settings of `run` and `attach` from files, and `config`, which says where each value comes from.
//!
//! In:  `config.toml` of the user and `resource-tracker.toml` of the project. Out: defaults for the parser, so that an
//! option and a variable go before them. What can be set, and to what, is the parser's own list of options.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Command};
use resource_tracker::paths::{Convention, Purpose};
use resource_tracker::sys;
use serde::Serialize;
use thiserror::Error;

use crate::failure::Failure;
use crate::show::{self, Table};

/// The project's file, in the folder where the command is given or above it in the same repository.
const PROJECT_FILE: &str = "resource-tracker.toml";
/// The user's file, below the configuration directory.
const USER_FILE: &str = "config.toml";
/// The option that is for all commands that have it.
const NETWORK: &str = "offline";
/// No file of settings is longer.
const MOST_BYTES: u64 = 64 << 10;
/// The commands that settings are for.
const COMMANDS: [&str; 2] = ["run", "attach"];

/// Why a file of settings cannot be used.
#[derive(Debug, Error)]
enum SettingsError {
    #[error("cannot read the settings in `{path}`")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the settings in `{path}` are no TOML")]
    Syntax { path: PathBuf, source: Box<toml::de::Error> },
    #[error("`{path}` sets `{key}`, which is no setting")]
    Unknown { path: PathBuf, key: String },
    #[error("`{path}` sets `{key}` to `{value}`, which it cannot be")]
    Wrong { path: PathBuf, key: String, value: String },
}

impl SettingsError {
    fn hint(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } | Self::Syntax { .. } => "put it right, or move it away",
            Self::Unknown { .. } => "`resource-tracker config` lists all settings",
            Self::Wrong { .. } => "`resource-tracker run --help` says what the option of that name takes",
        }
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Self { hint: Some(error.hint()), code: 2, error: Box::new(error) }
    }
}

/// One file: where it is, and the values of the options that it sets.
#[derive(Debug)]
struct File {
    path: PathBuf,
    values: Vec<(String, Vec<String>)>,
}

/// All files that are there, the one that goes first in front.
#[derive(Debug, Default)]
pub struct Settings {
    files: Vec<File>,
}

impl Settings {
    /// Reads the files, if the command that was given uses them.
    pub fn read(parser: &Command, arguments: &[OsString]) -> Result<Self, Failure> {
        let name = arguments.get(1).and_then(|name| name.to_str());
        let command = name.and_then(|name| parser.find_subcommand(name));
        let is_for = |command: &Command| command.get_name() == "config" || has(command, NETWORK);
        if !command.is_some_and(is_for) {
            return Ok(Self::default());
        }
        let run = parser.find_subcommand(COMMANDS[0]).map(settable).unwrap_or_default();
        let paths = project_file().into_iter().chain(user_file(|name| std::env::var_os(name)));
        let files = paths.filter_map(|path| File::read(path, &run).transpose());
        Ok(Self { files: files.collect::<Result<_, _>>()? })
    }

    /// Makes what the files say the defaults of the options, but for those that what was typed contradicts.
    pub fn apply(&self, parser: Command, arguments: &[OsString]) -> Command {
        if self.files.is_empty() {
            return parser;
        }
        let contradicted = contradicted(&parser, arguments);
        parser.mut_subcommands(|command| {
            let takes_all = COMMANDS.contains(&command.get_name());
            command.mut_args(|arg| {
                let id = arg.get_id().as_str();
                let is_meant = (takes_all || id == NETWORK) && !contradicted.iter().any(|other| other == id);
                match self.find(id).filter(|_| is_meant) {
                    Some((_, values)) => arg.default_values(values.clone()),
                    None => arg,
                }
            })
        })
    }

    /// What the files say about an option, and which of them does.
    fn find(&self, id: &str) -> Option<(&Path, &Vec<String>)> {
        self.files.iter().find_map(|file| {
            let (_, values) = file.values.iter().find(|(set, _)| set == id)?;
            Some((file.path.as_path(), values))
        })
    }
}

fn has(command: &Command, id: &str) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == id)
}

/// Options that conflict with one that was typed, or set by a variable.
fn contradicted(parser: &Command, arguments: &[OsString]) -> Vec<String> {
    let parsed = parser.clone().try_get_matches_from(arguments).ok();
    let Some((name, given)) = parsed.as_ref().and_then(|matches| matches.subcommand()) else {
        return Vec::new();
    };
    let Some(command) = parser.find_subcommand(name) else { return Vec::new() };
    let is_given = |arg: &&Arg| {
        let source = given.value_source(arg.get_id().as_str());
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    let conflict = |one: &Arg, other: &Arg| {
        command.get_arg_conflicts_with(one).iter().any(|arg| arg.get_id() == other.get_id())
    };
    let given: Vec<&Arg> = command.get_arguments().filter(is_given).collect();
    let others = command.get_arguments().filter(|other| {
        given
            .iter()
            .any(|arg| arg.get_id() != other.get_id() && (conflict(arg, other) || conflict(other, arg)))
    });
    others.map(|arg| arg.get_id().to_string()).collect()
}

/// Options of a command that can be set: those that a variable can, and tags.
fn settable(command: &Command) -> Vec<&Arg> {
    let can = |arg: &&Arg| arg.get_env().is_some() || matches!(arg.get_action(), ArgAction::Append);
    command.get_arguments().filter(can).filter(|arg| !arg.is_hide_set() && !arg.is_positional()).collect()
}

/// The name of an option in a file.
fn key_of(arg: &Arg) -> String {
    match arg.get_action() {
        ArgAction::Append => arg.get_id().to_string(),
        _ => arg.get_long().unwrap_or_default().replace('-', "_"),
    }
}

impl File {
    /// `None` where there is no such file.
    fn read(path: PathBuf, options: &[&Arg]) -> Result<Option<Self>, SettingsError> {
        let text = match read_bounded(&path) {
            Ok(text) => text,
            // A home that is somebody else's, or none, has no settings of ours.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            Err(source) => return Err(SettingsError::Unreadable { path, source }),
        };
        let table = match text.parse::<toml::Table>() {
            Ok(table) => table,
            Err(source) => return Err(SettingsError::Syntax { path, source: Box::new(source) }),
        };
        let mut values = Vec::new();
        for (key, value) in table {
            let Some(arg) = options.iter().find(|arg| key_of(arg) == key) else {
                return Err(SettingsError::Unknown { path, key });
            };
            let Some(words) = words(arg, &value).filter(|words| is_usable(arg, words)) else {
                let value = serde_json::json!(value).to_string();
                return Err(SettingsError::Wrong { path, key, value: show::one_line(&value, 60) });
            };
            values.push((arg.get_id().to_string(), words));
        }
        Ok(Some(Self { path, values }))
    }
}

/// The text of a regular file: anything else could keep us waiting.
fn read_bounded(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
    }
    let mut text = String::new();
    let read = fs::File::open(path)?.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    let is_too_long = u64::try_from(read).is_ok_and(|read| read > MOST_BYTES);
    if is_too_long { Err(io::Error::new(io::ErrorKind::InvalidData, "longer than 64 KiB")) } else { Ok(text) }
}

/// The value as it would be typed.
fn words(arg: &Arg, value: &toml::Value) -> Option<Vec<String>> {
    match (arg.get_action(), value) {
        (ArgAction::SetTrue, toml::Value::Boolean(on)) => Some(vec![on.to_string()]),
        (ArgAction::Append, toml::Value::Table(pairs)) => {
            let pair = |(key, value): (&String, &toml::Value)| {
                (!key.contains('=')).then_some(format!("{key}={}", value.as_str()?))
            };
            pairs.iter().map(pair).collect()
        }
        (ArgAction::Set, toml::Value::String(text)) => Some(vec![text.clone()]),
        (ArgAction::Set, toml::Value::Integer(number)) => Some(vec![number.to_string()]),
        (ArgAction::Set, toml::Value::Float(number)) => Some(vec![number.to_string()]),
        _ => None,
    }
}

/// Whether the option takes these words. A default that it does not take would be a fault of ours.
fn is_usable(arg: &Arg, words: &[String]) -> bool {
    let Some(long) = arg.get_long() else { return false };
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return true;
    }
    // By itself: what it conflicts with is not there.
    let alone = Arg::new("alone").long(long.to_owned()).value_parser(arg.get_value_parser().clone());
    let alone = alone.action(arg.get_action().clone()).allow_hyphen_values(true);
    let parser = Command::new("settings").no_binary_name(true).arg(alone);
    parser.try_get_matches_from(words.iter().map(|word| format!("--{long}={word}"))).is_ok()
}

fn user_file(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    Some(Convention::HERE.folder(Purpose::Config, variable)?.join(USER_FILE))
}

/// From here up to the top of the repository; outside of one only here. What belongs to another user is not a
/// project of ours: in a folder for all, anybody could decide where our files go.
fn project_file() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let top = here.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(&here);
    let folders = here.ancestors().take_while(|folder| folder.starts_with(top));
    let is_ours = |path: &PathBuf| fs::metadata(path).is_ok_and(|file| sys::is_own_file(&file));
    folders.map(|folder| folder.join(PROJECT_FILE)).find(is_ours)
}

/// A setting as it is now.
#[derive(Serialize)]
struct Setting {
    name: String,
    value: Option<String>,
    origin: &'static str,
    from: Option<String>,
}

/// Shows the settings.
pub fn config(settings: &Settings, parser: Command, json: bool) -> Result<u8, Failure> {
    let typed = ["resource-tracker", COMMANDS[0], "--", "true"].map(OsString::from);
    let mut parser = settings.apply(parser, &typed);
    parser.build();
    let matches = parser
        .clone()
        .try_get_matches_from(typed)
        .map_err(|error| Failure { code: 2, ..Failure::new(error, None) })?;
    let Some(((_, matches), command)) = matches.subcommand().zip(parser.find_subcommand(COMMANDS[0])) else {
        return Ok(2);
    };
    let setting = |arg: &Arg| {
        let id = arg.get_id().as_str();
        let values = matches.get_raw(id).into_iter().flatten();
        let value = values.map(|value| value.to_string_lossy().into_owned()).collect::<Vec<_>>().join(", ");
        let file = settings.find(id).map(|(path, _)| path.display().to_string());
        let (origin, from) = match (matches.value_source(id), file) {
            (Some(ValueSource::EnvVariable), _) => {
                ("variable", arg.get_env().map(|name| name.to_string_lossy().into_owned()))
            }
            (_, Some(file)) => ("file", Some(file)),
            _ => ("default", None),
        };
        Setting { name: key_of(arg), value: Some(value).filter(|value| !value.is_empty()), origin, from }
    };
    let found: Vec<_> = settable(command).into_iter().map(setting).collect();
    if json {
        return show::json(&serde_json::json!({ "settings": found }));
    }
    let mut table = Table::new(&["setting", "value", "from"]);
    for setting in found {
        let from = setting.from.unwrap_or_else(|| setting.origin.to_owned());
        table.row([
            setting.name,
            show::one_line(&setting.value.unwrap_or_default(), 40),
            show::one_line(&from, 200),
        ]);
    }
    show::text(&table.to_string())
}
