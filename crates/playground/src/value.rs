//! How values are written for the page.

use serde::{Serialize, Serializer};
use snowmint_core::{Id, TextForm};

/// A 64-bit number as decimal digits: JavaScript would round it above 2^53, so it is a string always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digits(pub(crate) u64);

impl Serialize for Digits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(TextForm::Decimal.write(Id::new(self.0)).as_str())
    }
}

/// An answer as JSON.
pub(crate) fn json(value: &impl Serialize) -> String {
    // Strings, numbers, lists and structs: nothing here that JSON cannot hold.
    serde_json::to_string(value)
        .unwrap_or_else(|_| String::from("{\"error\":\"the answer cannot be written\"}"))
}
