//! Settings files of `run` and `attach`, and `config`, which shows where each value comes from. Server filters also apply
//! to `recommend`, `report` and `show`.
//!
//! In:  the user's `config.toml` and the project's `resource-tracker.toml`. Out: defaults for the parser, so that options
//! and environment variables take precedence. The parser's own options define the settings and their values.
//!
//! A project's file may come from someone else, with a cloned repository. It can set only what harms nothing: it can name
//! no file, remove no run, and not switch the network on. Its other settings are ignored with a warning.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Args as _, Command, FromArgMatches as _};
use resource_tracker::{CatalogError, Filters, config_folder, is_own_file, with_causes};
use serde::Serialize;
use thiserror::Error;

use crate::args::FilterArgs;
use crate::failure::Failure;
use crate::show::{self, Table};

/// The project's file, in the current folder or a folder above it in the same Git repository.
const PROJECT_FILE: &str = "resource-tracker.toml";
/// The user's file, in the configuration folder.
const USER_FILE: &str = "config.toml";
/// The setting that also applies to commands other than [`COMMANDS`]; `store` applies to those of `fleet`.
const NETWORK: &str = "offline";
/// Maximum size of a settings file.
const MAX_BYTES: u64 = 64 << 10;
/// What a project's file can set.
pub const PROJECT_SETTINGS: [&str; 11] = [
    "backend",
    "history",
    "interval",
    "job",
    "live",
    "no_children",
    "no_system",
    "quiet",
    "rows_only",
    "slowdown",
    "tags",
];
/// The commands that the settings apply to.
const COMMANDS: [&str; 2] = ["run", "attach"];
/// The commands that have options for server filters.
const FILTERED: [&str; 2] = ["recommend", "report"];
/// The command that takes server filters from the settings only, like [`COMMANDS`].
const SHOW: &str = "show";

#[derive(Debug, Error)]
enum SettingsError {
    #[error("cannot read `{path}`")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("invalid TOML in `{path}`")]
    Syntax { path: PathBuf, source: Box<toml::de::Error> },
    #[error("unknown setting `{key}` in `{path}`")]
    Unknown { path: PathBuf, key: String },
    #[error("invalid value `{value}` for setting `{key}` in `{path}`")]
    Value { path: PathBuf, key: String, value: String },
    #[error("invalid server filter in the settings")]
    Filters { source: CatalogError },
}

impl SettingsError {
    fn hint(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } | Self::Syntax { .. } => "fix the file or remove it",
            Self::Unknown { .. } => "`resource-tracker config` lists all settings",
            Self::Value { .. } => "`resource-tracker run --help` shows the values of each option",
            Self::Filters { .. } => "`resource-tracker config` shows the filters and their files",
        }
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Self { hint: Some(error.hint()), code: 2, error: Box::new(error) }
    }
}

#[derive(Debug)]
struct File {
    path: PathBuf,
    /// Id of an option, and its values as they would be typed.
    values: Vec<(String, Vec<String>)>,
    /// Server filters with a value of the wrong type.
    invalid_filters: Vec<SettingsError>,
}

/// The settings files that exist, highest precedence first.
#[derive(Debug, Default)]
pub struct Settings {
    files: Vec<File>,
    /// Settings that are ignored.
    pub warnings: Vec<String>,
    /// Server filters for the summary of a run.
    pub filters: Filters,
}

impl Settings {
    /// Reads the files, if the given command uses settings.
    pub fn read(parser: &Command, arguments: &[OsString]) -> Result<Self, Failure> {
        let name = arguments.get(1).and_then(|name| name.to_str());
        let command = name.and_then(|name| parser.find_subcommand(name));
        let uses_settings =
            |command: &Command| ["config", SHOW].contains(&command.get_name()) || has(command, NETWORK);
        if !command.is_some_and(uses_settings) {
            return Ok(Self::default());
        }
        let options = options(parser);
        let paths = project_file().into_iter().chain(user_file(|name| std::env::var_os(name)));
        let files = paths.filter_map(|path| File::read(path, &options).transpose());
        let mut settings = Self { files: files.collect::<Result<_, _>>()?, ..Self::default() };
        if settings.files.is_empty() {
            return Ok(settings);
        }
        settings.restrict_project_file(&options);
        // A job must run even if a filter is wrong, and a summary must be shown.
        let is_lenient = name.is_some_and(|name| COMMANDS.contains(&name) || name == SHOW);
        settings.read_filters(is_lenient)?;
        Ok(settings)
    }

    /// Checks the server filters. If `is_lenient` is set, invalid filters are ignored with a warning.
    fn read_filters(&mut self, is_lenient: bool) -> Result<(), SettingsError> {
        let mut errors: Vec<SettingsError> =
            self.files.iter_mut().flat_map(|file| std::mem::take(&mut file.invalid_filters)).collect();
        let parser = FilterArgs::augment_args(Command::new("filters").no_binary_name(true));
        let parser = self.with_defaults(parser, |_| true);
        let parsed = parser.try_get_matches_from([""; 0]);
        if let Ok(args) = parsed.and_then(|matches| FilterArgs::from_arg_matches(&matches)) {
            match args.filters() {
                Ok(filters) => self.filters = filters,
                Err(source) => errors.push(SettingsError::Filters { source }),
            }
        }
        if let Some(error) = errors.pop_if(|_| !is_lenient) {
            return Err(error);
        }
        self.warnings.extend(errors.iter().map(|error| {
            let effect = match error {
                SettingsError::Filters { .. } => "servers are searched without filters",
                _ => "it is ignored",
            };
            format!("{}; {effect}", with_causes(error))
        }));
        Ok(())
    }

    /// Makes the settings the defaults of those options of a command that `applies` selects.
    fn with_defaults(&self, command: Command, applies: impl Fn(&str) -> bool) -> Command {
        command.mut_args(|arg| {
            let id = arg.get_id().as_str();
            match self.find(id).filter(|_| applies(id)) {
                Some((_, values)) => arg.default_values(values.clone()).required(false),
                None => arg,
            }
        })
    }

    /// Drops the settings that a project's file cannot set.
    fn restrict_project_file(&mut self, options: &[&Arg]) {
        let Some(file) = self.files.first_mut().filter(|file| file.path.ends_with(PROJECT_FILE)) else {
            return;
        };
        let key = |id: &str| options.iter().find(|arg| arg.get_id() == id).map(|arg| key_of(arg));
        let is_allowed = |(id, values): &(String, Vec<String>)| {
            let is_harmless = |key: String| PROJECT_SETTINGS.contains(&key.as_str()) || is_filter(&key);
            (id == NETWORK && values.iter().all(|value| value == "true")) || key(id).is_some_and(is_harmless)
        };
        let (allowed, ignored): (Vec<_>, Vec<_>) =
            std::mem::take(&mut file.values).into_iter().partition(is_allowed);
        file.values = allowed;
        self.warnings.extend(ignored.iter().map(|(id, _)| {
            let (key, path) = (key(id).unwrap_or_default(), file.path.display());
            format!(
                "`{key}` in `{path}` is ignored: set it in the user's `{USER_FILE}` or on the command line"
            )
        }));
    }

    /// Makes the settings the defaults of the options, except for settings that conflict with a given option.
    pub fn apply(&self, parser: Command, arguments: &[OsString]) -> Command {
        if self.files.is_empty() {
            return parser;
        }
        let conflicting = conflicting(&parser, arguments);
        parser.mut_subcommands(|command| {
            let is_of = |names: &[&str]| names.contains(&command.get_name());
            let (takes_all, takes_filters) = (is_of(&COMMANDS), is_of(&FILTERED));
            let takes = |id: &str| takes_all || id == NETWORK || (takes_filters && is_filter(id));
            let command =
                self.with_defaults(command, |id| takes(id) && !conflicting.iter().any(|other| other == id));
            command.mut_subcommands(|inner| self.with_defaults(inner, |id| [NETWORK, "store"].contains(&id)))
        })
    }

    /// The file that sets an option, and the values.
    fn find(&self, id: &str) -> Option<(&Path, &Vec<String>)> {
        self.files.iter().find_map(|file| {
            let (_, values) = file.values.iter().find(|(set, _)| set == id)?;
            Some((file.path.as_path(), values))
        })
    }
}

/// Forgets variables that are empty, and those whose option conflicts with an option on the command line.
pub fn with_variables(parser: Command, arguments: &[OsString]) -> Command {
    let forget = |parser: Command, forgets: &dyn Fn(&Arg) -> bool| {
        let forget = |arg: Arg| if forgets(&arg) { arg.env(Resettable::Reset) } else { arg };
        parser.mut_subcommands(|command| {
            command.mut_args(forget).mut_subcommands(|inner| inner.mut_args(forget))
        })
    };
    let overridden = conflicting(&forget(parser.clone(), &|_| true), arguments);
    let is_empty = |arg: &Arg| arg.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
    forget(parser, &|arg| is_empty(arg) || overridden.iter().any(|id| arg.get_id() == id.as_str()))
}

/// The value of an option's variable, if it is set and not empty.
fn value_of(arg: &Arg) -> Option<OsString> {
    std::env::var_os(arg.get_env()?).filter(|value| !value.is_empty())
}

/// The options that are set by a variable and not on the command line, as errors name them, and their variables.
pub fn from_variables(mut parser: Command, arguments: &[OsString]) -> Vec<(String, String)> {
    parser.build();
    let command = arguments.get(1).and_then(|name| parser.find_subcommand(name.to_str()?));
    let words = || arguments.iter().skip(2).take_while(|word| *word != "--").filter_map(|word| word.to_str());
    let is_typed = |arg: &Arg| {
        let long = format!("--{}", arg.get_long().unwrap_or_default());
        let short = arg.get_short().map(|letter| format!("-{letter}"));
        words().any(|word| {
            word.split('=').next() == Some(&long)
                || short.as_ref().is_some_and(|short| word.starts_with(short.as_str()))
        })
    };
    let set = command.into_iter().flat_map(Command::get_arguments);
    let set = set.filter(|arg| value_of(arg).is_some() && !is_typed(arg));
    let named = |arg: &Arg| {
        let variable = arg.get_env().unwrap_or_default().to_string_lossy().into_owned();
        (format!("'{arg}'"), format!("'{variable}'"))
    };
    set.map(named).collect()
}

fn has(command: &Command, id: &str) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == id)
        || command.get_subcommands().any(|inner| has(inner, id))
}

/// Options that conflict with an option on the command line or in the environment.
fn conflicting(parser: &Command, arguments: &[OsString]) -> Vec<String> {
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

/// Options of a command that a settings file may set: those with an environment variable, and tags.
fn settable(command: &Command) -> Vec<&Arg> {
    let can = |arg: &&Arg| arg.get_env().is_some() || matches!(arg.get_action(), ArgAction::Append);
    command.get_arguments().filter(can).filter(|arg| !arg.is_hide_set() && !arg.is_positional()).collect()
}

/// All options that a settings file may set.
fn options(parser: &Command) -> Vec<&Arg> {
    let filters = parser.find_subcommand(FILTERED[0]).into_iter().flat_map(Command::get_arguments);
    let run = parser.find_subcommand(COMMANDS[0]).map(settable).unwrap_or_default();
    run.into_iter().chain(filters.filter(|arg| is_filter(arg.get_id().as_str()))).collect()
}

/// Whether an option is a server filter.
fn is_filter(id: &str) -> bool {
    Filters::NAMES.contains(&id)
}

/// The name of an option in a settings file.
fn key_of(arg: &Arg) -> String {
    match arg.get_action() {
        ArgAction::Append => arg.get_id().to_string(),
        _ => arg.get_long().unwrap_or_default().replace('-', "_"),
    }
}

impl File {
    /// `None` if there is no such file.
    fn read(path: PathBuf, options: &[&Arg]) -> Result<Option<Self>, SettingsError> {
        let text = match read_bounded(&path) {
            Ok(text) => text,
            // A home folder that is missing or belongs to another user has no settings.
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
        let (mut values, mut invalid_filters) = (Vec::new(), Vec::new());
        for (key, value) in table {
            let Some(arg) = options.iter().find(|arg| key_of(arg) == key) else {
                return Err(SettingsError::Unknown { path, key });
            };
            let Some(words) = as_typed(arg, &value).filter(|words| is_valid(arg, words)) else {
                let value = show::one_line(&serde_json::json!(value).to_string(), 60);
                if is_filter(&key) {
                    invalid_filters.push(SettingsError::Value { path: path.clone(), key, value });
                    continue;
                }
                return Err(SettingsError::Value { path, key, value });
            };
            values.push((arg.get_id().to_string(), words));
        }
        Ok(Some(Self { path, values, invalid_filters }))
    }
}

/// The text of a regular file; reading a FIFO or a device could block.
fn read_bounded(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut text = String::new();
    let read = fs::File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    let is_too_long = u64::try_from(read).is_ok_and(|read| read > MAX_BYTES);
    if is_too_long { Err(io::Error::new(io::ErrorKind::InvalidData, "longer than 64 KiB")) } else { Ok(text) }
}

/// The value as it would be typed on the command line.
fn as_typed(arg: &Arg, value: &toml::Value) -> Option<Vec<String>> {
    match (arg.get_action(), value) {
        (ArgAction::SetTrue, toml::Value::Boolean(on)) => Some(vec![on.to_string()]),
        (ArgAction::Append, toml::Value::String(text)) if is_filter(arg.get_id().as_str()) => {
            Some(vec![text.clone()])
        }
        (ArgAction::Append, toml::Value::Array(items)) if is_filter(arg.get_id().as_str()) => {
            items.iter().map(|item| item.as_str().map(ToOwned::to_owned)).collect()
        }
        (ArgAction::Append, toml::Value::Table(pairs)) if !is_filter(arg.get_id().as_str()) => {
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

/// Whether the option accepts the words. clap would report an invalid default as an error of the command line.
fn is_valid(arg: &Arg, words: &[String]) -> bool {
    let Some(long) = arg.get_long() else { return false };
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return true;
    }
    // A parser with this option only, so that conflicts with other options do not matter.
    let alone = Arg::new("alone").long(long.to_owned()).value_parser(arg.get_value_parser().clone());
    let alone = alone.action(arg.get_action().clone()).allow_hyphen_values(true);
    let parser = Command::new("settings").no_binary_name(true).arg(alone);
    parser.try_get_matches_from(words.iter().map(|word| format!("--{long}={word}"))).is_ok()
}

fn user_file(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    Some(config_folder(variable)?.join(USER_FILE))
}

/// Searches from the current folder up to the top of the Git repository; outside a repository only the current folder.
/// Ignores files of other users: in a shared folder such as `/tmp`, another user's file could redirect the output.
fn project_file() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let top = here.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(&here);
    let folders = here.ancestors().take_while(|folder| folder.starts_with(top));
    // A link of another user could point to a file of this user.
    let is_own = |path: &PathBuf| {
        [fs::symlink_metadata(path), fs::metadata(path)]
            .into_iter()
            .all(|found| found.is_ok_and(|file| is_own_file(&file)))
    };
    folders.map(|folder| folder.join(PROJECT_FILE)).find(is_own)
}

#[derive(Serialize)]
struct Setting {
    name: String,
    value: Option<String>,
    origin: &'static str,
    from: Option<String>,
}

pub fn config(settings: &Settings, parser: Command, json: bool) -> Result<u8, Failure> {
    let typed = ["resource-tracker", COMMANDS[0], "--", "true"].map(OsString::from);
    let applied = settings.apply(with_variables(parser.clone(), &typed), &typed);
    let matches = match applied.try_get_matches_from(&typed) {
        Ok(matches) => matches,
        Err(error) => return Ok(show::usage(&error, &from_variables(parser, &typed))),
    };
    let Some((_, matches)) = matches.subcommand() else { return Ok(2) };
    let setting = |arg: &Arg| {
        let id = arg.get_id().as_str();
        let set = settings.find(id);
        // `run` has no option for a server filter.
        let values = match matches.try_get_raw(id) {
            Ok(values) => {
                values.into_iter().flatten().map(|value| value.to_string_lossy().into_owned()).collect()
            }
            Err(_) => set.map(|(_, values)| values.clone()).unwrap_or_default(),
        };
        let value = values.join(", ");
        let file = set.map(|(path, _)| path.display().to_string());
        let source = if is_filter(id) { None } else { matches.value_source(id) };
        let (origin, from) = match (source, file) {
            (Some(ValueSource::EnvVariable), _) => {
                ("variable", arg.get_env().map(|name| name.to_string_lossy().into_owned()))
            }
            (_, Some(file)) => ("file", Some(file)),
            _ => ("default", None),
        };
        Setting { name: key_of(arg), value: Some(value).filter(|value| !value.is_empty()), origin, from }
    };
    let found: Vec<_> = options(&parser).into_iter().map(setting).collect();
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

#[cfg(all(test, target_os = "linux"))]
#[path = "../../core/tests/support/fuzz.rs"]
#[expect(clippy::unwrap_used, reason = "tests fail by panic")]
mod fuzzing;

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn fuzz_settings() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join(PROJECT_FILE);
        let seed = "interval = 0.5\njob = \"a\"\noutput = 'x'\nlive = true\nhistory = 3\nspot = true\n\
             region = ['fsn1', 'x']\nmax_price = 0.5\nvendor_id = 'aws'\n\n[tags]\nteam = \"b\"\n";
        let parser = crate::args::Cli::command();
        let (inputs, accepted) = fuzzing::fuzz("settings", vec![seed.into()], move |bytes| {
            fs::write(&path, bytes).unwrap();
            let options = options(&parser);
            let Ok(file) = File::read(path.clone(), &options) else { return false };
            let mut settings = Settings { files: file.into_iter().collect(), ..Settings::default() };
            settings.restrict_project_file(&options);
            settings.read_filters(true).unwrap();
            // Valid settings are never an error of the command line.
            for command in [COMMANDS[0], FILTERED[0]] {
                let typed = ["resource-tracker", command, "true"].map(OsString::from);
                settings.apply(parser.clone(), &typed).try_get_matches_from(&typed).unwrap();
            }
            true
        });
        drop(folder);
        assert!(inputs > 100 && accepted > 10, "{accepted} of {inputs}");
    }
}
