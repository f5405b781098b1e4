//! IDs in serde's formats: strings where people or JavaScript read them (F8), numbers elsewhere.

use core::fmt;

use serde_core::de::{Error, Visitor};
use serde_core::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Id, TextForm};

/// A string of decimal digits in formats that people read, such as JSON: a JSON number above 2^53 is rounded by
/// JavaScript. A 64-bit number in others.
impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&TextForm::Decimal.write(*self))
        } else {
            serializer.serialize_u64(self.get())
        }
    }
}

/// What is written, and nothing else: a JSON number is refused, since it may have been rounded on its way.
impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(Digits)
        } else {
            u64::deserialize(deserializer).map(Self::new)
        }
    }
}

struct Digits;

impl Visitor<'_> for Digits {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an ID as a string of decimal digits (numbers above 2^53 are rounded)")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Id, E> {
        TextForm::Decimal.parse(text.as_bytes()).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    /// F8: IDs are strings in JSON, both ways.
    #[test]
    fn f8_strings_in_json() {
        let id = Id::new(1_205_161_015_177_961_473);
        assert_eq!(serde_json::to_string(&id).unwrap(), "\"1205161015177961473\"");
        assert_eq!(serde_json::from_str::<Id>("\"1205161015177961473\"").unwrap(), id);
        let check = |json: &str, message: &str| {
            let error = serde_json::from_str::<Id>(json).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        };
        check("1205161015177961473", "numbers above 2^53 are rounded");
        check("1205161015177961500.0", "numbers above 2^53 are rounded");
        check("\"-1\"", "sign");
        check("\"18446744073709551616\"", "64 bits");
        check("null", "string of decimal digits");
    }
}
