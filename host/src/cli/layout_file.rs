//! Layouts by name, and in files.

use std::path::Path;

use snowmint_core::{FormatHistory, Layout, Scheme};

use super::{CliError, layout_toml, shown};

/// What a reader reads by.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // There is one, for the whole run.
pub(crate) enum Reader {
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
    let history = layout_toml::read(&text).map_err(|error| in_file(name, &error))?;
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
    layout_toml::read_layout(&text).map_err(|error| in_file(name, &error))
}

fn in_file(name: &str, error: &str) -> CliError {
    CliError::Usage(format!("the layout file {}: {}", shown(name), lines(error)))
}
