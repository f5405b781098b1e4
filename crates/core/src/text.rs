//! IDs as text, without an allocator: five forms of our own, and those in which public schemes write theirs.

use core::fmt;

use crate::Id;

/// The most bytes that a decimal ID has: 18446744073709551615, the largest, is 20 digits long.
pub const DECIMAL_BYTES_MAX: usize = 20;

const HEX_WIDTH: usize = 16;
const BASE32_WIDTH: usize = 13;
const BASE36_WIDTH: usize = 13;
const BASE62_WIDTH: usize = 11;

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";
const HEX_UPPER_DIGITS: &[u8; 16] = b"0123456789ABCDEF";
/// Crockford's base32 (crockford.com/base32.html): no I, L, O or U.
const BASE32_DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const BASE36_DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// In the order of ASCII, so that text of one width sorts as the numbers do.
const BASE62_DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// "base32-sortable" of atproto.com/specs/tid.
const SORTABLE32_DIGITS: &[u8; 32] = b"234567abcdefghijklmnopqrstuvwxyz";
/// The alphabet of Bitcoin addresses: no 0, O, I or l.
const BASE58_DIGITS: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
/// RFC 4648, section 5, read as digits of a number (not as groups of bytes).
const BASE64_DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// How an ID is written as text.
///
/// | form | width | digits | reads also |
/// |---|---|---|---|
/// | `Decimal` | 1 to 20 | `0-9` | leading zeros, to 20 digits in all |
/// | `Hex` | 16 | `0-9a-f` | upper case |
/// | `Base32` | 13 | `0-9A-Z` without I, L, O, U (Crockford) | lower case; I and L as 1, O as 0 |
/// | `Base36` | 13 | `0-9a-z` | upper case |
/// | `Base62` | 11 | `0-9A-Za-z` | |
///
/// Forms of fixed width sort as the numbers do, and are read at exactly that width: a text that lost a character
/// on its way is an error, not another ID.
///
/// ```
/// use snowmint_core::{Id, TextForm};
///
/// let id = Id::new(1_205_161_015_177_961_473);
/// let text = TextForm::Base62.write(id);
/// assert_eq!(text.as_str(), "1R1eJVI0R6X");
/// assert_eq!(TextForm::Base62.parse(b"1R1eJVI0R6X"), Ok(id));
///
/// let error = TextForm::Decimal.parse(b"12051610151779614\xe2\x80\x8f73").unwrap_err();
/// assert_eq!(error.to_string(), "byte 17 is the start of U+200F; only the digits 0-9 can stand there: remove it");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TextForm {
    /// Decimal digits, no leading zeros. The form of JSON, SQL and this crate's `Display`.
    Decimal,
    /// 16 lower-case hexadecimal digits.
    Hex,
    /// 13 digits of Crockford's base32.
    Base32,
    /// 13 digits, lower case.
    Base36,
    /// 11 digits.
    Base62,
}

impl TextForm {
    /// Every form, in the order in which faces list them.
    pub const ALL: [Self; 5] = [Self::Decimal, Self::Hex, Self::Base32, Self::Base36, Self::Base62];

    /// The form's name on every face.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decimal => "dec",
            Self::Hex => "hex",
            Self::Base32 => "base32",
            Self::Base36 => "base36",
            Self::Base62 => "base62",
        }
    }

    /// The form with this name, the inverse of [`TextForm::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.name() == name)
    }

    /// The most bytes that an ID has in this form; the exact number where [`TextForm::is_fixed_width`].
    pub const fn width_max(self) -> usize {
        self.numerals().width
    }

    /// Whether every ID has the same width in this form, so that texts sort as the IDs do.
    pub const fn is_fixed_width(self) -> bool {
        self.numerals().padded
    }

    /// Writes an ID.
    pub fn write(self, id: Id) -> Text {
        match self {
            Self::Decimal => {
                let mut buffer = [0; DECIMAL_BYTES_MAX];
                Text::of(write_decimal(&mut buffer, id))
            }
            Self::Hex => spell::<16, HEX_WIDTH>(id.get(), HEX_DIGITS),
            Self::Base32 => spell::<32, BASE32_WIDTH>(id.get(), BASE32_DIGITS),
            Self::Base36 => spell::<36, BASE36_WIDTH>(id.get(), BASE36_DIGITS),
            Self::Base62 => spell::<62, BASE62_WIDTH>(id.get(), BASE62_DIGITS),
        }
    }

    /// Reads an ID. The text is bytes, because what arrives may not be UTF-8; nothing around the digits is skipped.
    ///
    /// Looks at no more than one byte past the form's width, however long the text is.
    pub fn parse(self, text: &[u8]) -> Result<Id, ParseError> {
        match self {
            Self::Decimal => parse_decimal(text),
            _ => self.numerals().parse(text),
        }
    }

    const fn numerals(self) -> Numerals {
        match self {
            Self::Decimal => DECIMAL,
            Self::Hex => HEX,
            Self::Base32 => BASE32,
            Self::Base36 => BASE36,
            Self::Base62 => BASE62,
        }
    }
}

/// How public schemes write their IDs where it is not plain decimal. Read and written exactly as they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForeignForm {
    /// Instagram's and Threads' shortcodes: digits of base 64 in the order of base64url, no leading zeros.
    Shortcode,
    /// Sonyflake: lower-case hexadecimal without leading zeros.
    PlainHex,
    /// Telegram's message identifiers: 16 upper-case hexadecimal digits.
    UpperHex,
    /// TSID: 13 digits of Crockford's base32, as [`TextForm::Base32`].
    Base32,
    /// SCRU64: 12 digits of base 36, for IDs below 36^12.
    Base36Short,
    /// Frostflake: base 58 in Bitcoin's order, no leading zeros.
    Base58,
    /// `SnowID`: base 62 in the order of ASCII, no leading zeros.
    PlainBase62,
    /// AT protocol: 13 digits of "base32-sortable".
    Sortable32,
}

impl ForeignForm {
    /// Every form.
    pub const ALL: [Self; 8] = [
        Self::Shortcode,
        Self::PlainHex,
        Self::UpperHex,
        Self::Base32,
        Self::Base36Short,
        Self::Base58,
        Self::PlainBase62,
        Self::Sortable32,
    ];

    /// The form's name on every face.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shortcode => "shortcode",
            Self::PlainHex => "plain-hex",
            Self::UpperHex => "upper-hex",
            Self::Base32 => "base32",
            Self::Base36Short => "base36-short",
            Self::Base58 => "base58",
            Self::PlainBase62 => "plain-base62",
            Self::Sortable32 => "sortable32",
        }
    }

    /// The form with this name, the inverse of [`ForeignForm::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.name() == name)
    }

    /// Writes an ID; `None` if the form cannot hold it, as 12 digits of base 36 cannot hold the highest.
    pub fn write(self, id: Id) -> Option<Text> {
        let text = match self {
            Self::Shortcode => spell::<64, 11>(id.get(), BASE64_DIGITS).trimmed(b'A'),
            Self::PlainHex => spell::<16, HEX_WIDTH>(id.get(), HEX_DIGITS).trimmed(b'0'),
            Self::UpperHex => spell::<16, HEX_WIDTH>(id.get(), HEX_UPPER_DIGITS),
            Self::Base32 => spell::<32, BASE32_WIDTH>(id.get(), BASE32_DIGITS),
            Self::Base36Short => {
                let full = spell::<36, BASE36_WIDTH>(id.get(), BASE36_DIGITS);
                Text::of(full.as_bytes().strip_prefix(b"0")?)
            }
            Self::Base58 => spell::<58, 11>(id.get(), BASE58_DIGITS).trimmed(b'1'),
            Self::PlainBase62 => spell::<62, BASE62_WIDTH>(id.get(), BASE62_DIGITS).trimmed(b'0'),
            Self::Sortable32 => spell::<32, BASE32_WIDTH>(id.get(), SORTABLE32_DIGITS),
        };
        Some(text)
    }

    /// Reads an ID; see [`TextForm::parse`].
    pub fn parse(self, text: &[u8]) -> Result<Id, ParseError> {
        let plain = |width, digits, described| Numerals {
            digits,
            described,
            width,
            padded: false,
            spelling: Spelling::Exact,
        };
        match self {
            Self::Shortcode => plain(11, BASE64_DIGITS, "A-Z, a-z, 0-9, - and _"),
            Self::PlainHex => Numerals { padded: false, ..HEX },
            Self::UpperHex => HEX,
            Self::Base32 => BASE32,
            Self::Base36Short => Numerals { width: 12, ..BASE36 },
            Self::Base58 => plain(11, BASE58_DIGITS, "1-9, A-Z and a-z without I, O and l"),
            Self::PlainBase62 => Numerals { padded: false, ..BASE62 },
            Self::Sortable32 => Numerals { padded: true, ..plain(13, SORTABLE32_DIGITS, "2-7 and a-z") },
        }
        .parse(text)
    }
}

impl Id {
    /// The ID as 8 bytes that sort as the numbers do, for keys of a store.
    pub const fn to_be_bytes(self) -> [u8; 8] {
        self.get().to_be_bytes()
    }

    /// The inverse of [`Id::to_be_bytes`].
    pub const fn from_be_bytes(bytes: [u8; 8]) -> Self {
        Self::new(u64::from_be_bytes(bytes))
    }
}

/// Writes an ID in decimal at the end of `buffer` and returns that part of it. For bulk output: no copy is made, and
/// nothing is checked to be UTF-8.
///
/// ```
/// use snowmint_core::{Id, write_decimal};
///
/// assert_eq!(write_decimal(&mut [0; 20], Id::new(42)), b"42");
/// ```
pub fn write_decimal(buffer: &mut [u8; DECIMAL_BYTES_MAX], id: Id) -> &[u8] {
    let mut rest = id.get();
    let mut start = DECIMAL_BYTES_MAX;
    // Two digits a division: a division is what this costs.
    for pair in buffer.rchunks_exact_mut(2) {
        #[allow(clippy::cast_possible_truncation)] // At most 99.
        let two = (rest % 100) as u8;
        rest /= 100;
        if let [tens, ones] = pair {
            *tens = b'0' + two / 10;
            *ones = b'0' + two % 10;
        }
        start -= 2;
        if rest == 0 {
            start += usize::from(two < 10);
            break;
        }
    }
    buffer.get(start..).unwrap_or_default()
}

/// Spells `value` with all `WIDTH` digits of base `BASE`. A constant base makes each division a multiplication.
fn spell<const BASE: u64, const WIDTH: usize>(value: u64, digits: &[u8]) -> Text {
    let mut text = Text { bytes: [0; DECIMAL_BYTES_MAX], len: 0 };
    let mut rest = value;
    for place in text.bytes.iter_mut().take(WIDTH).rev() {
        #[allow(clippy::cast_possible_truncation)] // Less than the base.
        let digit = (rest % BASE) as usize;
        *place = digits.get(digit).copied().unwrap_or_default();
        rest /= BASE;
        text.len += 1;
    }
    text
}

/// The text of one ID, kept in place.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text {
    bytes: [u8; DECIMAL_BYTES_MAX],
    len: u8,
}

impl Text {
    /// The first [`DECIMAL_BYTES_MAX`] bytes of `source`, which the callers keep within that.
    fn of(source: &[u8]) -> Self {
        let mut text = Self { bytes: [0; DECIMAL_BYTES_MAX], len: 0 };
        for (place, byte) in text.bytes.iter_mut().zip(source) {
            *place = *byte;
            text.len += 1;
        }
        text
    }

    /// Without leading zeros, but never empty.
    fn trimmed(self, zero: u8) -> Self {
        let bytes = self.as_bytes();
        let last = bytes.len().saturating_sub(1);
        let start = bytes.iter().position(|byte| *byte != zero).unwrap_or(last);
        Self::of(bytes.get(start..).unwrap_or_default())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // Digits are ASCII, so this cannot fail.
        core::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// The text's bytes, which are ASCII.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl core::ops::Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// What a reader takes for one digit besides the digit itself.
#[derive(Clone, Copy)]
enum Spelling {
    Exact,
    AnyCase,
    Crockford,
}

/// Everything that reading a form needs to know.
#[derive(Clone, Copy)]
struct Numerals {
    digits: &'static [u8],
    /// The digits in words, for errors.
    described: &'static str,
    width: usize,
    /// Whether every text has the full width.
    padded: bool,
    spelling: Spelling,
}

const DECIMAL: Numerals = Numerals {
    digits: b"0123456789",
    described: "0-9",
    width: DECIMAL_BYTES_MAX,
    padded: false,
    spelling: Spelling::Exact,
};
const HEX: Numerals = Numerals {
    digits: HEX_DIGITS,
    described: "0-9 and a-f",
    width: HEX_WIDTH,
    padded: true,
    spelling: Spelling::AnyCase,
};
const BASE32: Numerals = Numerals {
    digits: BASE32_DIGITS,
    described: "0-9 and A-Z without U",
    width: BASE32_WIDTH,
    padded: true,
    spelling: Spelling::Crockford,
};
const BASE36: Numerals = Numerals {
    digits: BASE36_DIGITS,
    described: "0-9 and a-z",
    width: BASE36_WIDTH,
    padded: true,
    spelling: Spelling::AnyCase,
};
const BASE62: Numerals = Numerals {
    digits: BASE62_DIGITS,
    described: "0-9, A-Z and a-z",
    width: BASE62_WIDTH,
    padded: true,
    spelling: Spelling::Exact,
};

/// The value of a digit of Crockford's base32, for kinds of ID that are wider than this module's.
pub(crate) fn crockford_digit(byte: u8) -> Option<u64> {
    BASE32.digit(byte)
}

impl Numerals {
    fn digit(&self, byte: u8) -> Option<u64> {
        let digit = match self.spelling {
            Spelling::Exact => byte,
            Spelling::AnyCase => byte.to_ascii_lowercase(),
            Spelling::Crockford => match byte.to_ascii_uppercase() {
                b'O' => b'0',
                b'I' | b'L' => b'1',
                upper => upper,
            },
        };
        self.digits.iter().position(|known| *known == digit).map(|at| at as u64)
    }

    fn parse(&self, text: &[u8]) -> Result<Id, ParseError> {
        let base = self.digits.len() as u64;
        let mut value: u64 = 0;
        for (at, byte) in text.iter().enumerate() {
            let Some(digit) = self.digit(*byte) else { return Err(self.not_a_digit(text, at)) };
            if at == self.width {
                return Err(ParseError { at, kind: ParseErrorKind::TooLong { width_max: self.width } });
            }
            let next = value.checked_mul(base).and_then(|value| value.checked_add(digit));
            value = next.ok_or(ParseError { at, kind: ParseErrorKind::Overflow })?;
        }
        if text.is_empty() {
            return Err(ParseError { at: 0, kind: ParseErrorKind::Empty });
        }
        if self.padded && text.len() < self.width {
            return Err(ParseError { at: text.len(), kind: ParseErrorKind::TooShort { width: self.width } });
        }
        Ok(Id::new(value))
    }

    fn not_a_digit(&self, text: &[u8], at: usize) -> ParseError {
        let rest = text.get(at..).unwrap_or_default();
        let kind = match rest {
            [b'+' | b'-', ..] if at == 0 => ParseErrorKind::Sign,
            _ => ParseErrorKind::Digit { found: Found::at_start_of(rest), digits: self.described },
        };
        ParseError { at, kind }
    }
}

/// The same as `DECIMAL.parse`, several times faster: decimal is what arrives in bulk.
fn parse_decimal(text: &[u8]) -> Result<Id, ParseError> {
    // 19 digits cannot overflow; whatever is longer, empty or not all digits goes the careful way.
    if text.is_empty() || text.len() >= DECIMAL_BYTES_MAX {
        return DECIMAL.parse(text);
    }
    let mut value: u64 = 0;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return DECIMAL.parse(text);
        }
        value = value * 10 + u64::from(digit);
    }
    Ok(Id::new(value))
}

/// What stood where a digit should: up to four bytes of the text, enough for one character.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Found {
    bytes: [u8; 4],
    len: u8,
}

impl Found {
    fn at_start_of(text: &[u8]) -> Self {
        let mut found = Self { bytes: [0; 4], len: 0 };
        for (place, byte) in found.bytes.iter_mut().zip(text) {
            *place = *byte;
            found.len += 1;
        }
        found
    }

    /// The first byte.
    pub const fn byte(self) -> u8 {
        let [first, ..] = self.bytes;
        first
    }

    /// The character that begins with the first byte; `None` where the text is not UTF-8 there.
    pub fn char(self) -> Option<char> {
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        // Only the first character is asked for: what follows it may have been cut off.
        let valid = match core::str::from_utf8(bytes) {
            Ok(valid) => valid,
            Err(error) => core::str::from_utf8(bytes.get(..error.valid_up_to())?).ok()?,
        };
        valid.chars().next()
    }
}

/// Never the raw character: a terminal would obey it. Visible ASCII in quotes, others by their number.
impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.char() {
            Some(char) if char.is_ascii_graphic() => write!(f, "`{char}`"),
            Some(' ') => f.write_str("a space"),
            Some(char) if char.is_ascii() => write!(f, "U+{:04X}", u32::from(char)),
            Some(char) => write!(f, "the start of U+{:04X}", u32::from(char)),
            None => write!(f, "0x{:02X}, which is not UTF-8", self.byte()),
        }
    }
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not an ID of the form. The fault is that of whoever wrote or carried the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Where, in bytes from the text's start.
    pub at: usize,
    /// What is wrong there.
    pub kind: ParseErrorKind,
}

/// What is wrong with a text. The first fault from the left is the one that is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// There is nothing.
    Empty,
    /// The text begins with a sign.
    Sign,
    /// A character that is no digit of the form.
    Digit {
        /// The character.
        found: Found,
        /// The form's digits in words.
        digits: &'static str,
    },
    /// More digits than the form has.
    TooLong {
        /// The most digits that it has.
        width_max: usize,
    },
    /// Fewer digits than a form of fixed width has.
    TooShort {
        /// How many digits it has.
        width: usize,
    },
    /// The number needs 65 bits or more; with the digit that is named it has become too large.
    Overflow,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match self.kind {
            ParseErrorKind::Empty => f.write_str("the text is empty; give an ID"),
            ParseErrorKind::Sign => f.write_str(
                "the text begins with a sign; IDs are unsigned: remove it (to a negative number, as signed 64-bit \
                 columns show high IDs, add 2^64)",
            ),
            ParseErrorKind::Digit { found, digits } => {
                write!(f, "byte {at} is {found}; only the digits {digits} can stand there: remove it")
            }
            ParseErrorKind::TooLong { width_max } => {
                write!(f, "the text goes on past {width_max} digits, the most that an ID has in this form")
            }
            ParseErrorKind::TooShort { width } => write!(
                f,
                "the text has {at} digits and an ID has exactly {width} in this form: find those that were lost"
            ),
            ParseErrorKind::Overflow => {
                write!(f, "with the digit at byte {at} the number no longer fits 64 bits: it is not an ID")
            }
        }
    }
}

impl core::error::Error for ParseError {}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::ToString;
    use std::vec;

    use super::*;

    /// Every form writes known IDs as it should and reads them back.
    #[test]
    fn known_texts() {
        let check = |form: TextForm, id: u64, text: &str| {
            assert_eq!(form.write(Id::new(id)).as_str(), text, "{form:?}");
            assert_eq!(form.parse(text.as_bytes()), Ok(Id::new(id)), "{form:?} {text}");
            assert!(form.width_max() >= text.len());
        };
        for (id, decimal) in [(0, "0"), (9, "9"), (10, "10"), (99, "99"), (100, "100"), (12_345, "12345")] {
            check(TextForm::Decimal, id, decimal);
        }
        check(TextForm::Decimal, u64::MAX, "18446744073709551615");
        check(TextForm::Decimal, 10_000_000_000_000_000_000, "10000000000000000000");
        check(TextForm::Hex, 0, "0000000000000000");
        check(TextForm::Hex, u64::MAX, "ffffffffffffffff");
        check(TextForm::Base32, 653_390_205_760_314_336, "0J4AEXRN106Z0");
        check(TextForm::Base32, u64::MAX, "FZZZZZZZZZZZZ");
        check(TextForm::Base36, u64::MAX, "3w5e11264sgsf");
        check(TextForm::Base62, 61, "0000000000z");
        check(TextForm::Base62, u64::MAX, "LygHa16AHYF");
    }

    /// What people type is read: case where it cannot matter, Crockford's look-alikes, leading decimal zeros.
    #[test]
    fn lenient_readings() {
        let check = |form: TextForm, text: &str, id: u64| {
            assert_eq!(form.parse(text.as_bytes()), Ok(Id::new(id)), "{form:?} {text}");
        };
        check(TextForm::Hex, "00000000DeadBeef", 0xdead_beef);
        check(TextForm::Base32, "oj4aexrnio6zO", 653_390_205_760_314_336);
        check(TextForm::Base32, "0J4AEXRNl06Z0", 653_390_205_760_314_336);
        check(TextForm::Base36, "3W5E11264SGSF", u64::MAX);
        check(TextForm::Decimal, "00000000000000000042", 42);
    }

    /// Every kind of hostile text has its exact error, at its exact place, and is not echoed raw.
    #[test]
    fn hostile_texts() {
        use TextForm::{Base32, Base36, Base62, Decimal, Hex};

        let check = |form: TextForm, text: &[u8], at: usize, message: &str| {
            let error = form.parse(text).unwrap_err();
            assert_eq!(error.at, at, "{error}");
            assert!(error.to_string().contains(message), "{error}\n  should say: {message}");
            assert!(error.to_string().chars().all(|char| (' '..='~').contains(&char)), "{error:?}");
        };
        check(Decimal, b"", 0, "empty");
        check(Base62, b"", 0, "empty");
        check(Decimal, b"-5", 0, "sign");
        check(Decimal, b"+5", 0, "sign");
        check(Hex, b"-000000000000005", 0, "sign");
        check(Decimal, b"5-", 1, "`-`");
        check(Decimal, b" 5", 0, "a space");
        check(Decimal, b"5\n", 1, "U+000A");
        check(Decimal, b"12\x1b[31m", 2, "U+001B");
        check(Decimal, b"1\x00", 1, "U+0000");
        check(Decimal, "1\u{202e}2".as_bytes(), 1, "the start of U+202E");
        check(Decimal, "\u{2212}5".as_bytes(), 0, "the start of U+2212");
        check(Decimal, "\u{ff11}".as_bytes(), 0, "the start of U+FF11");
        check(Decimal, "1😀".as_bytes(), 1, "the start of U+1F600");
        check(Decimal, b"1\xf0\x9f", 1, "0xF0, which is not UTF-8");
        check(Decimal, b"1\xff", 1, "0xFF, which is not UTF-8");
        check(Decimal, b"1\xc3", 1, "0xC3, which is not UTF-8");
        check(Decimal, b"1\xc3\xa9\xff\xff", 1, "the start of U+00E9");
        check(Decimal, b"1.5", 1, "`.`");
        check(Decimal, b"1e18", 1, "`e`");
        check(Decimal, b"18446744073709551616", 19, "64 bits");
        check(Decimal, b"99999999999999999999", 19, "64 bits");
        check(Decimal, b"000000000000000000001", 20, "past 20 digits");
        check(Hex, b"0x00000000000000ff", 1, "`x`");
        check(Hex, b"ff", 2, "exactly 16");
        check(Hex, b"00000000000000000", 16, "past 16 digits");
        check(Base32, b"G000000000000", 12, "64 bits");
        check(Base32, b"000000000000U", 12, "`U`");
        check(Base36, b"3w5e11264sgsg", 12, "64 bits");
        check(Base62, b"LygHa16AHYG", 10, "64 bits");
        check(Base62, b"zzzzzzzzzzz", 10, "64 bits");
    }

    /// A line of 10 MB is refused after as many bytes as an ID has.
    #[test]
    fn long_lines() {
        let line = vec![b'0'; 10_000_000];
        for form in TextForm::ALL {
            let width_max = form.width_max();
            let error = ParseError { at: width_max, kind: ParseErrorKind::TooLong { width_max } };
            assert_eq!(form.parse(&line), Err(error));
        }
        for form in ForeignForm::ALL {
            assert!(form.parse(&line).is_err());
        }
    }

    #[test]
    fn names() {
        for form in TextForm::ALL {
            assert_eq!(TextForm::from_name(form.name()), Some(form));
        }
        for form in ForeignForm::ALL {
            assert_eq!(ForeignForm::from_name(form.name()), Some(form));
        }
        assert_eq!(TextForm::from_name("decimal"), None);
    }

    /// The form for 12 digits says what it cannot hold; the others hold everything.
    #[test]
    fn foreign_limits() {
        let check = |form: ForeignForm, id: u64, text: Option<&str>| {
            assert_eq!(form.write(Id::new(id)).as_ref().map(Text::as_str), text, "{form:?}");
        };
        check(ForeignForm::Base36Short, 4_738_381_338_321_616_895, Some("zzzzzzzzzzzz"));
        check(ForeignForm::Base36Short, 4_738_381_338_321_616_896, None);
        check(ForeignForm::Shortcode, 0, Some("A"));
        check(ForeignForm::Base58, 0, Some("1"));
        check(ForeignForm::PlainHex, u64::MAX, Some("ffffffffffffffff"));
        check(ForeignForm::Shortcode, u64::MAX, Some("P__________"));
        assert_eq!(format!("{:>4}|", Text::of(b"ab")), "  ab|");
    }

    proptest::proptest! {
        /// Reading undoes writing, in every form, for any ID.
        #[test]
        fn parse_undoes_write(bits in proptest::num::u64::ANY, shift in 0_u32..64) {
            let id = Id::new(bits >> shift);
            for form in TextForm::ALL {
                proptest::prop_assert_eq!(form.parse(form.write(id).as_bytes()), Ok(id));
            }
            for form in ForeignForm::ALL {
                if let Some(text) = form.write(id) {
                    proptest::prop_assert_eq!(form.parse(text.as_bytes()), Ok(id));
                }
            }
            proptest::prop_assert_eq!(Id::from_be_bytes(id.to_be_bytes()), id);
        }

        /// Texts of fixed width, and the bytes, sort as the IDs do.
        #[test]
        fn fixed_width_sorts(a in proptest::num::u64::ANY, b in proptest::num::u64::ANY, shift in 0_u32..64) {
            let (a, b) = (Id::new(a), Id::new(b >> shift));
            for form in TextForm::ALL.into_iter().filter(|form| form.is_fixed_width()) {
                let (left, right) = (form.write(a), form.write(b));
                proptest::prop_assert_eq!(left.as_str().cmp(right.as_str()), a.cmp(&b));
                proptest::prop_assert_eq!(left.len(), form.width_max());
            }
            proptest::prop_assert_eq!(a.to_be_bytes().cmp(&b.to_be_bytes()), a.cmp(&b));
        }

        /// The fast decimal reader says the same as the careful one, and no bytes make any reader panic.
        #[test]
        fn readers_agree(text in proptest::collection::vec(proptest::num::u8::ANY, 0..24)) {
            proptest::prop_assert_eq!(TextForm::Decimal.parse(&text), DECIMAL.parse(&text));
            for form in TextForm::ALL {
                let _ = form.parse(&text).map_err(|error| error.to_string());
            }
            for form in ForeignForm::ALL {
                let _ = form.parse(&text).map_err(|error| error.to_string());
            }
        }

        #[test]
        fn decimal_as_std(bits in proptest::num::u64::ANY, shift in 0_u32..64) {
            let id = Id::new(bits >> shift);
            proptest::prop_assert_eq!(TextForm::Decimal.write(id).to_string(), id.get().to_string());
        }
    }
}
