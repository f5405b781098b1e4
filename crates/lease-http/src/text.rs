//! Numbers as JSON can carry them: what has more than 32 bits is a string.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use snowmint_core::Layout;
use snowmint_lease::Owner;

/// 128 bits: exactly 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hex(pub(crate) u128);

impl Hex {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(is_digit) {
            return Err(String::from("128 bits are written as 32 digits of 0-9 and a-f"));
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|error| error.to_string())
    }

    pub(crate) fn text(self) -> String {
        format!("{:032x}", self.0)
    }
}

/// 64 bits: decimal digits, without sign or leading zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dec(pub(crate) u64);

impl Dec {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let is_canonical = !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && (text == "0" || !text.starts_with('0'));
        if !is_canonical {
            return Err(String::from("64 bits are written in decimal digits without leading zeros"));
        }
        text.parse().map(Self).map_err(|_| String::from("a number has more than 64 bits"))
    }
}

/// A layout, by its canonical text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayoutText(pub(crate) Layout);

impl LayoutText {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error| format!("the layout: {error}"))
    }
}

/// An owner's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerText(pub(crate) Owner);

impl OwnerText {
    fn parse(text: &str) -> Result<Self, String> {
        Owner::new(text).map(Self).map_err(|error| error.to_string())
    }
}

macro_rules! as_text {
    ($type:ty, $text:expr) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let text: fn(&Self) -> String = $text;
                serializer.serialize_str(&text(self))
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::parse(&text).map_err(D::Error::custom)
            }
        }
    };
}

as_text!(Hex, |it| it.text());
as_text!(Dec, |it| it.0.to_string());
as_text!(LayoutText, |it| it.0.to_string());
as_text!(OwnerText, |it| it.0.to_string());
