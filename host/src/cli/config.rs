//! Flags from a file: what `--config` names stands below the environment, which stands below the command line.

use std::ffi::OsString;
use std::path::Path;

use clap::{ArgAction, ArgMatches, Command, CommandFactory};
use toml::{Table, Value};

use super::CliError;

/// Parses the command line of `C`, with defaults from the configuration file that it, or the environment, names.
pub(super) fn matches<C: CommandFactory>(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<ArgMatches, CliError> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut command = C::command();
    // A first reading, which forgives everything, finds the file.
    let first = C::command().ignore_errors(true).disable_help_flag(true).disable_version_flag(true);
    let config = first.try_get_matches_from(&arguments).ok().and_then(|matches| find_config(&matches));
    if let Some(path) = config {
        command = with_defaults(command, &path)?;
    }
    // Usage errors, help and version are clap's to print: exit code 2, or 0.
    Ok(command.get_matches_from(arguments))
}

/// The `--config` of the command or of any subcommand.
fn find_config(matches: &ArgMatches) -> Option<std::path::PathBuf> {
    let own = matches.try_get_one::<std::path::PathBuf>("config").ok().flatten().cloned();
    own.or_else(|| matches.subcommand().and_then(|(_, matches)| find_config(matches)))
}

fn with_defaults(command: Command, path: &Path) -> Result<Command, CliError> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        CliError::Usage(format!("the configuration file {shown} cannot be read: {error}"))
    })?;
    let table: Table = text
        .parse()
        .map_err(|error| CliError::Usage(format!("the configuration file {shown} is not TOML: {error}")))?;
    let mut known = Vec::new();
    let command = apply(command, &table, &mut known, shown.to_string().as_str())?;
    match table.keys().find(|key| !known.contains(key)) {
        Some(key) => Err(CliError::Usage(format!(
            "the configuration file {shown} sets `{key}`, which is no flag of any command"
        ))),
        None => Ok(command),
    }
}

/// Gives each flag that the table names its value as a default, in every command that has it; a table within the
/// table is for the subcommand of its name.
fn apply<'a>(
    command: Command,
    table: &'a Table,
    known: &mut Vec<&'a String>,
    shown: &str,
) -> Result<Command, CliError> {
    let mut command = command;
    let mut subcommands = Vec::new();
    for sub in command.get_subcommands() {
        subcommands.push(sub.get_name().to_owned());
    }
    for (key, value) in table {
        if let Value::Table(inner) = value {
            if subcommands.contains(key) {
                known.push(key);
                let mut inner_known = Vec::new();
                let sub = command.find_subcommand(key).cloned().unwrap_or_default();
                let sub = apply(sub, inner, &mut inner_known, shown)?;
                if let Some(stray) = inner.keys().find(|key| !inner_known.contains(key)) {
                    let text =
                        format!("the configuration file {shown} sets `{key}.{stray}`, which is no flag");
                    return Err(CliError::Usage(text));
                }
                command = command.mut_subcommand(key, |_| sub.clone());
            }
            continue;
        }
        let flag = command.get_arguments().find(|arg| arg.get_long() == Some(key.as_str()));
        let Some((id, action)) = flag.map(|arg| (arg.get_id().clone(), arg.get_action().clone())) else {
            continue;
        };
        let text = flag_value(value, &action).ok_or_else(|| {
            CliError::Usage(format!(
                "the configuration file {shown} sets `{key}` to what no flag takes; give a string, a whole number, or \
                 true or false"
            ))
        })?;
        known.push(key);
        command = command.mut_arg(id, |arg| arg.default_value(text));
    }
    for name in subcommands {
        let sub = command.find_subcommand(&name).cloned().unwrap_or_default();
        let sub = apply(sub, table, known, shown)?;
        command = command.mut_subcommand(&name, |_| sub.clone());
    }
    Ok(command)
}

fn flag_value(value: &Value, action: &ArgAction) -> Option<String> {
    match (value, action) {
        (Value::Boolean(value), ArgAction::SetTrue) => Some(value.to_string()),
        (Value::String(value), ArgAction::Set | ArgAction::Append) => Some(value.clone()),
        (Value::Integer(value), ArgAction::Set) => Some(value.to_string()),
        _ => None,
    }
}
