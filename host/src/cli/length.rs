//! Lengths of time in flags.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A length of time: `24h`, `1h 30m`, `500ms`, or a whole number of milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Length {
    ms: u64,
}

impl Length {
    /// So many milliseconds.
    pub(super) const fn from_ms(ms: u64) -> Self {
        Self { ms }
    }

    /// In milliseconds.
    pub(super) const fn ms(self) -> u64 {
        self.ms
    }
}

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(ms) = text.parse() {
            return Ok(Self { ms });
        }
        let wrong = |why: &dyn fmt::Display| {
            format!("`{text}` is no length of time ({why}); give it as `24h`, `10s`, or in milliseconds")
        };
        let length = humantime::parse_duration(text).map_err(|error| wrong(&error))?;
        if length.subsec_nanos() % 1_000_000 != 0 {
            return Err(wrong(&"it is not a whole number of milliseconds"));
        }
        match u64::try_from(length.as_millis()) {
            Ok(ms) => Ok(Self { ms }),
            Err(_) => Err(wrong(&"it is too long")),
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(Duration::from_millis(self.ms)).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_read_with_its_unit_or_in_milliseconds() {
        // Shows what is taken and what is refused, and that nothing is rounded.
        for (text, expected) in [
            ("0", Some(0)),
            ("1500", Some(1_500)),
            ("500ms", Some(500)),
            ("24h", Some(86_400_000)),
            ("1h 30m", Some(5_400_000)),
            ("10us", None),
            ("-1", None),
            ("1.5", None),
            ("day", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<Length>().ok(), expected.map(Length::from_ms), "{text}");
        }
        assert_eq!(Length::from_ms(86_400_000).to_string(), "1day");
    }
}
