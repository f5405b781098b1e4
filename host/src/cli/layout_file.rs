//! Layouts in TOML.

use std::path::Path;

use serde::Deserialize;
use snowmint_core::{Field, Layout, NS_PER_MS, Role};

use super::CliError;

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

/// The layout of this name, or of the file of this name.
pub(super) fn find(name: &str) -> Result<Layout, CliError> {
    if let Some(layout) = Layout::preset(name) {
        return Ok(layout);
    }
    let path = Path::new(name);
    let names = Layout::PRESETS.map(|(name, _)| format!("`{name}`")).join(", ");
    let text = std::fs::read_to_string(path).map_err(|error| {
        CliError::Usage(format!(
            "`{name}` is neither a layout ({names}) nor a file that can be read: {error}"
        ))
    })?;
    parse(&text).map_err(|error| CliError::Usage(format!("the layout file {name}: {error}")))
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
