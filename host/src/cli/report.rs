//! What is said of one ID: as a JSON object, as a line, or at length.

use std::fmt;
use std::io::{self, Write};

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use snowmint_core::{
    Form, Id, Layout, Ranking, Scheme, TextForm, UnixTime, Verdict, Warning, Warnings, WideId,
};

use super::picture::Picture;

/// How many candidates are named.
const CANDIDATES_SHOWN: usize = 3;

/// From here on numbers are strings in JSON, since JavaScript rounds them: 2^53.
const JSON_NUMBER_END: u64 = 1 << 53;

/// An ID that was read.
pub(crate) enum Report<'a> {
    /// 64 bits, by a layout that was named.
    Named {
        id: Id,
        form: Form,
        layout: &'a Layout,
        name: &'a str,
        scheme: Option<&'static Scheme>,
        now_ms: u64,
    },
    /// 64 bits, by whatever explains them best.
    Ranked { ranking: Ranking, id: Id, now_ms: u64 },
    /// Of another kind, wider than 64 bits; the text is ASCII.
    Wide { wide: WideId, text: &'a [u8] },
}

impl Report<'_> {
    /// The ID's bits; `None` for a wide one.
    fn id(&self) -> Option<Id> {
        match self {
            Self::Named { id, .. } | Self::Ranked { id, .. } => Some(*id),
            Self::Wide { .. } => None,
        }
    }

    /// The layout by which the ID is read; `None` where it cannot be told, or has none.
    fn layout(&self) -> Option<(&str, &Layout)> {
        match self {
            Self::Named { name, layout, .. } => Some((name, layout)),
            Self::Ranked { ranking, .. } if ranking.verdict() == Verdict::Implausible => None,
            Self::Ranked { ranking, .. } => {
                ranking.candidates().next().map(|first| (first.scheme.name, &first.scheme.layout))
            }
            Self::Wide { .. } => None,
        }
    }

    fn scheme(&self) -> Option<&'static Scheme> {
        match self {
            Self::Named { scheme, .. } => *scheme,
            Self::Ranked { ranking, .. } => {
                self.layout().and(ranking.candidates().next()).map(|first| first.scheme)
            }
            Self::Wide { .. } => None,
        }
    }

    fn form(&self) -> Form {
        match self {
            Self::Named { form, .. } => *form,
            Self::Ranked { ranking, .. } => {
                ranking.candidates().next().map_or(Form::Own(TextForm::Decimal), |first| first.form)
            }
            Self::Wide { .. } => Form::Own(TextForm::Decimal),
        }
    }

    /// The ID's time and how many digits of fraction it has.
    pub(super) fn time(&self) -> Option<(UnixTime, u32)> {
        if let Self::Wide { wide, .. } = self {
            return wide.time.map(|time| (time, wide.time_digits));
        }
        let (_, layout) = self.layout()?;
        Some((layout.time_of(self.id()?), layout.time_digits()))
    }

    pub(super) fn warnings(&self) -> Option<Warnings> {
        match (self, self.scheme()) {
            (Self::Named { id, now_ms, .. } | Self::Ranked { id, now_ms, .. }, Some(scheme)) => {
                Some(scheme.warnings(*id, *now_ms))
            }
            (Self::Named { id, layout, now_ms, .. }, None) => Some(layout.warnings(*id, *now_ms)),
            _ => None,
        }
    }

    /// Of an ID that no scheme explains, what can be said without a layout.
    fn rounded(&self) -> Option<Warning> {
        match self.layout() {
            Some(_) => None,
            None => snowmint_core::written_by_javascript(self.id()?),
        }
    }

    fn all_warnings(&self) -> impl Iterator<Item = Warning> {
        self.warnings().into_iter().flatten().chain(self.rounded())
    }

    fn ranking(&self) -> Option<&Ranking> {
        match self {
            Self::Ranked { ranking, .. } => Some(ranking),
            _ => None,
        }
    }

    /// The kind's name, or the layout's.
    fn name(&self) -> Option<&str> {
        match self {
            Self::Wide { wide, .. } => Some(wide.kind.name()),
            _ => self.layout().map(|(name, _)| name),
        }
    }

    fn text(&self) -> IdText<'_> {
        match self {
            Self::Wide { text, .. } => IdText::Wide(text),
            Self::Named { id, .. } | Self::Ranked { id, .. } => IdText::Id(TextForm::Decimal.write(*id)),
        }
    }

    /// The ID as text: decimal, or as a wide one was given.
    pub(super) fn id_text(&self) -> String {
        self.text().as_str().to_owned()
    }

    /// One line without end: ID, time, layout, fields, and how many warnings there are.
    pub(super) fn write_line(&self, out: &mut impl Write) -> io::Result<()> {
        write!(out, "{:>20}  ", self.text().as_str())?;
        match self.time() {
            Some((time, digits)) => write!(out, "{:<24}", time.text(digits))?,
            None => write!(out, "{:<24}", "-")?,
        }
        let verdict = self.ranking().map(Ranking::verdict);
        let doubt = if verdict == Some(Verdict::Ambiguous) { "?" } else { "" };
        write!(out, "  {}{doubt}", self.name().unwrap_or("implausible"))?;
        if let (Some((_, layout)), Some(id)) = (self.layout(), self.id()) {
            for (field, value) in layout.values(id).filter(|(field, value)| is_shown(*field, *value)) {
                write!(out, "  {}={value}", field.name())?;
            }
        }
        match self.all_warnings().count() {
            0 => Ok(()),
            1 => out.write_all(b"  1 warning"),
            count => write!(out, "  {count} warnings"),
        }
    }

    /// At length, over several lines.
    pub(super) fn write_at_length(&self, out: &mut impl Write) -> io::Result<()> {
        write!(out, "{}", self.text().as_str())?;
        match (self, self.scheme()) {
            (Self::Wide { wide, .. }, _) => write!(out, "  {}, not a 64-bit ID", wide.kind.name())?,
            (_, Some(scheme)) => write!(out, "  {} ({})", scheme.name, scheme.title)?,
            _ => write!(out, "  {}", self.name().unwrap_or("of no known scheme"))?,
        }
        match self.form() {
            Form::Own(TextForm::Decimal) => writeln!(out)?,
            form => writeln!(out, ", read as {}", form.name())?,
        }
        match self.time() {
            Some((time, digits)) => writeln!(out, "  time  {}", time.text(digits))?,
            None => writeln!(out, "  time  none that can be told")?,
        }
        if let (Some((_, layout)), Some(id)) = (self.layout(), self.id()) {
            writeln!(out, "\n{}\n", Picture { layout, id: Some(id), indent: "  " })?;
            for (field, value) in layout.values(id) {
                writeln!(out, "  {:<15} {:>2} bits  {value}", field.name(), field.bits())?;
            }
        }
        let mut all_warnings = self.all_warnings().peekable();
        if all_warnings.peek().is_some() {
            writeln!(out)?;
        }
        for warning in all_warnings {
            writeln!(out, "  warning: {warning}")?;
        }
        if let Some(ranking) = self.ranking() {
            writeln!(out, "\n  {}: {}", ranking.verdict().name(), ranking.verdict())?;
            if ranking.verdict() != Verdict::Likely {
                for candidate in ranking.candidates().take(CANDIDATES_SHOWN) {
                    let scheme = candidate.scheme;
                    writeln!(
                        out,
                        "  - {} ({}), {}: {} bits shorter than a bare number",
                        scheme.name,
                        scheme.title,
                        candidate.time().text(scheme.layout.time_digits()),
                        candidate.saved_bits()
                    )?;
                    for reason in candidate.reasons() {
                        writeln!(out, "      {reason}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The fields that a line shows: not the timestamp, which the time says, nor reserved bits that are 0.
fn is_shown(field: snowmint_core::Field, value: u64) -> bool {
    use snowmint_core::Role;
    match field.role() {
        Role::Timestamp => false,
        Role::Reserved => value != 0,
        _ => true,
    }
}

/// An ID's text, in place.
enum IdText<'a> {
    Id(snowmint_core::Text),
    Wide(&'a [u8]),
}

impl IdText<'_> {
    fn as_str(&self) -> &str {
        match self {
            Self::Id(text) => text.as_str(),
            // Every kind is written in ASCII.
            Self::Wide(text) => std::str::from_utf8(text).unwrap_or_default(),
        }
    }
}

/// A report as a JSON object, with the line that it is of.
pub(crate) struct Json<'a> {
    pub(crate) report: &'a Report<'a>,
    pub(crate) line: Option<u64>,
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let report = self.report;
        let mut map = serializer.serialize_map(None)?;
        if let Some(line) = self.line {
            map.serialize_entry("line", &line)?;
        }
        map.serialize_entry("id", report.text().as_str())?;
        map.serialize_entry("layout", &report.name())?;
        let time = report.time();
        map.serialize_entry("time", &time.map(|(time, digits)| AsText(time.text(digits))))?;
        map.serialize_entry("unix_ms", &time.map(|(time, _)| Number(time.unix_ms())))?;
        map.serialize_entry("fields", &Fields(report))?;
        map.serialize_entry("warnings", &WarningTexts(report))?;
        if report.form() != Form::Own(TextForm::Decimal) {
            map.serialize_entry("form", report.form().name())?;
        }
        if let Some(ranking) = report.ranking() {
            map.serialize_entry("verdict", ranking.verdict().name())?;
            map.serialize_entry("candidates", &Candidates(ranking))?;
        }
        map.end()
    }
}

/// A number, as a string where JavaScript would round it.
pub(super) struct Number(pub(super) u64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 < JSON_NUMBER_END {
            serializer.serialize_u64(self.0)
        } else {
            serializer.serialize_str(TextForm::Decimal.write(Id::new(self.0)).as_str())
        }
    }
}

/// Whatever can be displayed, as a JSON string.
pub(super) struct AsText<T>(pub(super) T);

impl<T: fmt::Display> Serialize for AsText<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

struct Fields<'a>(&'a Report<'a>);

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let (Some((_, layout)), Some(id)) = (self.0.layout(), self.0.id()) {
            for (nth, (field, value)) in layout.values(id).enumerate() {
                let fields = layout.fields().iter().take(nth);
                match fields.filter(|earlier| earlier.name() == field.name()).count() {
                    0 => map.serialize_entry(field.name(), &Number(value))?,
                    // A key of its own for each: readers keep only the last of several.
                    before => map.serialize_entry(
                        &AsText(format_args!("{}_{}", field.name(), before + 1)),
                        &Number(value),
                    )?,
                }
            }
        }
        map.end()
    }
}

struct WarningTexts<'a>(&'a Report<'a>);

impl Serialize for WarningTexts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.all_warnings().map(AsText))
    }
}

struct Candidates<'a>(&'a Ranking);

impl Serialize for Candidates<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        for candidate in self.0.candidates().take(CANDIDATES_SHOWN) {
            seq.serialize_element(candidate.scheme.name)?;
        }
        seq.end()
    }
}
