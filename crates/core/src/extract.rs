//! IDs within lines of logs, CSV, JSON and URLs: which words of a line can be one.

use crate::WideId;

/// How many digits an ID in a text has: fewer are counters and milliseconds, more are no 64-bit number.
const DIGITS: core::ops::RangeInclusive<usize> = 15..=20;

/// The bytes of a UUID with hyphens.
const UUID_BYTES: usize = 36;

/// The words of a line in which an ID can stand: runs of letters and digits, and whole UUIDs with their hyphens.
///
/// ```
/// use snowmint_core::{is_id_like, words};
///
/// let line = br#"t=0.123456789012345678 "id":"1205161015177961473" req 017f22e2-79b0-7cc3-98c4-dc0c0c07398f"#;
/// let ids: Vec<&[u8]> = words(line).filter(|word| is_id_like(word)).collect();
/// assert_eq!(ids, [&b"1205161015177961473"[..], b"017f22e2-79b0-7cc3-98c4-dc0c0c07398f"]);
/// ```
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_joined = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    // A point between digits is one of a fraction, whose digits are no number of their own.
    let is_part = move |byte: u8| is_joined(byte) || byte == b'.';
    line.split(move |byte| !is_part(*byte)).flat_map(move |part| {
        let is_whole = part.len() == UUID_BYTES && WideId::parse(part).is_some();
        let whole = is_whole.then_some(part);
        let inner = (!is_whole).then(|| {
            part.split(|byte| *byte == b'-')
                .filter(|word| !is_fraction(word))
                .flat_map(|word| word.split(|byte| *byte == b'.'))
        });
        whole.into_iter().chain(inner.into_iter().flatten()).filter(|word| !word.is_empty())
    })
}

/// Digits, a point, digits.
fn is_fraction(word: &[u8]) -> bool {
    let mut parts = word.split(|byte| *byte == b'.');
    let mut is_digits =
        || parts.next().is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit));
    is_digits() && is_digits()
}

/// Whether a word of a line looks like an ID before anything is read into it: a number of 15 to 20 digits, or an ID of
/// a wide kind that words and digests are not taken for.
pub fn is_id_like(word: &[u8]) -> bool {
    if word.iter().all(u8::is_ascii_digit) {
        return DIGITS.contains(&word.len());
    }
    // Without its hyphens a UUID looks like any digest, and a word without a digit is a word.
    let is_known = word.len() == UUID_BYTES || (word.len() < 32 && word.iter().any(u8::is_ascii_digit));
    is_known && WideId::parse(word).is_some()
}

#[cfg(test)]
mod tests {
    use std::string::String;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// What stands in lines that people paste, and the IDs in it.
    #[test]
    fn lines() {
        let check = |line: &str, expected: &[&str]| {
            let found: Vec<&str> = words(line.as_bytes())
                .filter(|word| is_id_like(word))
                .map(|word| core::str::from_utf8(word).unwrap())
                .collect();
            assert_eq!(found, expected, "{line}");
        };
        check("", &[]);
        check("no ID here, 12345, 20231201", &[]);
        check("1205161015177961473", &["1205161015177961473"]);
        check(
            "id=1205161015177961473,next=175928847299117063;",
            &["1205161015177961473", "175928847299117063"],
        );
        check(
            "https://discord.com/channels/81384788765712384/175928847299117063",
            &["81384788765712384", "175928847299117063"],
        );
        check("0.1205161015177961473 and 1205161015177961473.5", &[]);
        check("123456789012345678901", &[]);
        check("{\"a\":\"017f22e2-79b0-7cc3-98c4-dc0c0c07398f\"}", &["017f22e2-79b0-7cc3-98c4-dc0c0c07398f"]);
        check("017f22e279b07cc398c4dc0c0c07398f", &[]);
        check("req-507f1f77bcf86cd799439011-end", &["507f1f77bcf86cd799439011"]);
        check("\u{fffd}1205161015177961473\u{200f}", &["1205161015177961473"]);
    }

    proptest! {
        /// Every word is a piece of the line, and hostile bytes are no more than that.
        #[test]
        fn words_are_pieces(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let text = String::from_utf8_lossy(&line).into_owned();
            for line in [line.as_slice(), text.as_bytes()] {
                for word in words(line) {
                    prop_assert!(!word.is_empty());
                    prop_assert!(line.windows(word.len()).any(|part| part == word));
                    let _ = is_id_like(word);
                }
            }
        }
    }
}
