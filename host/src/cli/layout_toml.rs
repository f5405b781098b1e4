//! Layouts and histories of layouts in TOML. Errors quote the text, and are made safe for a terminal by whoever shows them.

use serde::Deserialize;
use snowmint_core::{Field, FormatHistory, HistoryError, Layout, NS_PER_MS, Role};

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

/// A layout file as a history of one layout, or a history file.
pub(super) fn read(text: &str) -> Result<FormatHistory, String> {
    if !text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("history")) {
        return read_layout(text).map(FormatHistory::new);
    }
    let file: HistoryFile = toml::from_str(text).map_err(|error| error.to_string())?;
    file.history.parse().map_err(|error: HistoryError| error.to_string())
}

/// A layout file.
pub(super) fn read_layout(text: &str) -> Result<Layout, String> {
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
                entry.role
            )
        })?;
        fields.push(match &entry.name {
            Some(name) => {
                Field::named(role, entry.bits, name).map_err(|error| format!("`{name}`: {error}"))?
            }
            None => Field::new(role, entry.bits),
        });
    }
    Layout::for_decoding(&fields, file.epoch_unix_ms, tick_ns).map_err(|error| error.to_string())
}
