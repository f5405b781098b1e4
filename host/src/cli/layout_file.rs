//! Layouts in TOML.

use std::path::Path;

use serde::Deserialize;
use snowmint_core::{Field, FormatHistory, Layout, NS_PER_MS, Role, Scheme};

use super::{CliError, shown};

/// A layout file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LayoutFile {
    /// Tick 0 in Unix milliseconds.
    epoch_unix_ms: u64,
    /// The length of a tick in milliseconds; or:
    tick_ms: Option<u64>,
    /// in nanoseconds, for schemes with shorter ones.
    tick_ns: Option<u64>,
    /// The fields from the most significant bit.
    fields: Vec<FieldEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldEntry {
    role: String,
    bits: u8,
    name: Option<String>,
}

/// A history of layouts in a file: what `snowmint layout cutover --toml` prints.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryFile {
    /// The history's canonical text.
    history: String,
}

/// What a reader reads by.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // There is one, for the whole run.
pub(super) enum Reader {
    /// Whatever explains an ID best.
    Auto,
    /// A public scheme, or a preset.
    Scheme(&'static Scheme),
    /// The layouts of a file, under the file's name.
    File {
        /// The name.
        name: String,
        /// One layout or several.
        history: FormatHistory,
    },
}

/// The reader of this name: `auto`, a scheme, or a file.
pub(super) fn find_reader(name: &str) -> Result<Reader, CliError> {
    if name == "auto" {
        return Ok(Reader::Auto);
    }
    if let Some(scheme) = Scheme::named(name) {
        return Ok(Reader::Scheme(scheme));
    }
    let text = std::fs::read_to_string(name).map_err(|error| {
        CliError::Usage(format!(
            "`{}` is neither a layout (`snowmint layout list` lists them) nor a file that can be read: {error}",
            shown(name)
        ))
    })?;
    let in_file = |error: &str| CliError::Usage(format!("the layout file {}: {}", shown(name), lines(error)));
    let is_history = text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("history"));
    let history = if is_history {
        let file: HistoryFile = toml::from_str(&text).map_err(|error| in_file(&error.to_string()))?;
        file.history.parse().map_err(|error: snowmint_core::HistoryError| in_file(&error.to_string()))?
    } else {
        FormatHistory::new(parse(&text).map_err(|error| in_file(&error))?)
    };
    Ok(Reader::File { name: shown(name), history })
}

/// The one layout of this name, of any scheme or file: the current one of a history.
pub(super) fn find_any(name: &str) -> Result<Layout, CliError> {
    match find_reader(name)? {
        Reader::Auto => Err(CliError::Usage("`auto` is no layout; `snowmint layout list` lists them".into())),
        Reader::Scheme(scheme) => Ok(scheme.layout),
        Reader::File { history, .. } => Ok(*history.current()),
    }
}

/// A text of several lines with each line safe for a terminal: errors of the TOML reader quote the file.
fn lines(text: &str) -> String {
    let lines: Vec<String> = text.trim_end().lines().map(shown).collect();
    lines.join("\n")
}

/// The layout of this name, or of the file of this name.
pub(super) fn find(name: &str) -> Result<Layout, CliError> {
    if let Some(layout) = Layout::preset(name) {
        return Ok(layout);
    }
    let path = Path::new(name);
    let names = Layout::PRESETS.map(|(name, _)| format!("`{name}`")).join(", ");
    let text = std::fs::read_to_string(path).map_err(|error| {
        CliError::Usage(format!(
            "`{}` is neither a layout ({names}) nor a file that can be read: {error}",
            shown(name)
        ))
    })?;
    parse(&text)
        .map_err(|error| CliError::Usage(format!("the layout file {}: {}", shown(name), lines(&error))))
}

fn parse(text: &str) -> Result<Layout, String> {
    let file: LayoutFile = toml::from_str(text).map_err(|error| error.to_string())?;
    let tick_ns = match (file.tick_ms, file.tick_ns) {
        (Some(tick_ms), None) => {
            tick_ms.checked_mul(NS_PER_MS).ok_or(format!("a tick of {tick_ms} ms is too long"))?
        }
        (None, Some(tick_ns)) => tick_ns,
        (None, None) => NS_PER_MS,
        (Some(_), Some(_)) => return Err("give the tick as `tick_ms` or as `tick_ns`, not both".into()),
    };
    let mut fields = Vec::with_capacity(file.fields.len());
    for entry in &file.fields {
        let role = Role::from_name(&entry.role).ok_or_else(|| {
            format!(
                "`{}` is no role; a field is one of reserved, shard, timestamp, region, worker, sequence, other",
                shown(&entry.role)
            )
        })?;
        fields.push(match &entry.name {
            Some(name) => {
                Field::named(role, entry.bits, name).map_err(|error| format!("`{}`: {error}", shown(name)))?
            }
            None => Field::new(role, entry.bits),
        });
    }
    Layout::for_decoding(&fields, file.epoch_unix_ms, tick_ns).map_err(|error| error.to_string())
}
