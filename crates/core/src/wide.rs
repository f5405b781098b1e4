//! Other kinds of ID that people paste: 96 to 160 bits, some of which carry a time.

use crate::UnixTime;

/// 100-ns steps from 1582-10-15, where UUID versions 1 and 6 begin, to 1970 (RFC 9562, section 5.1).
const UUID_STEPS_TO_1970: u64 = 122_192_928_000_000_000;

/// Where KSUIDs begin: 2014-05-13T16:53:20Z (segmentio/ksuid, README).
const KSUID_EPOCH_S: u32 = 1_400_000_000;

/// The kind of an ID that is wider than 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WideKind {
    /// UUID version 1 (RFC 9562): time in 100-ns steps, low bits first.
    UuidV1,
    /// UUID version 4: random, no time.
    UuidV4,
    /// UUID version 6: version 1 with the high bits of the time first.
    UuidV6,
    /// UUID version 7: Unix milliseconds, then random bits.
    UuidV7,
    /// A UUID of another version or variant, which carries no time.
    UuidOther,
    /// ULID: Unix milliseconds, then 80 random bits; 26 characters of Crockford's base32.
    Ulid,
    /// `MongoDB`'s `ObjectId`: Unix seconds, random, counter; 24 hexadecimal digits.
    ObjectId,
    /// KSUID: seconds from 2014, then 128 random bits; 27 characters of base62.
    Ksuid,
    /// Xid: Unix seconds, machine, process, counter; 20 characters of base32hex.
    Xid,
}

impl WideKind {
    /// The kind's name on every face.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UuidV1 => "uuidv1",
            Self::UuidV4 => "uuidv4",
            Self::UuidV6 => "uuidv6",
            Self::UuidV7 => "uuidv7",
            Self::UuidOther => "uuid",
            Self::Ulid => "ulid",
            Self::ObjectId => "objectid",
            Self::Ksuid => "ksuid",
            Self::Xid => "xid",
        }
    }
}

/// An ID wider than 64 bits: what it is, and its time if it carries one. Nobody here mints or orders such IDs; this is
/// so that one pasted by mistake, or beside ours, is recognised.
///
/// ```
/// use snowmint_core::{WideId, WideKind};
///
/// let id = WideId::parse(b"017f22e2-79b0-7cc3-98c4-dc0c0c07398f").unwrap();
/// assert_eq!(id.kind, WideKind::UuidV7);
/// assert_eq!(id.time.unwrap().to_string(), "2022-02-22T19:22:22Z");
/// assert_eq!(WideId::parse(b"1205161015177961473"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WideId {
    /// What it is.
    pub kind: WideKind,
    /// Its time, to the precision that the kind has; none where the kind carries none, or for a UUID of version 1 or 6
    /// that lies before 1970.
    pub time: Option<UnixTime>,
    /// The digits of fraction that the kind's times have.
    pub time_digits: u32,
}

impl WideId {
    /// Reads a text of one of the kinds; `None` if it is none of them. Each has a length of its own, and none is as
    /// short as a 64-bit ID, except that 20 digits alone are a decimal number before they are an Xid: ask for that
    /// first.
    ///
    /// UUIDs are read with or without hyphens, braces and `urn:uuid:`.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = text.strip_prefix(b"urn:uuid:").unwrap_or(text);
        let text = text.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}")).unwrap_or(text);
        match text.len() {
            36 | 32 => uuid(text),
            27 => ksuid(text),
            26 => ulid(text),
            24 => object_id(text),
            20 => xid(text),
            _ => None,
        }
    }

    const fn of_ms(kind: WideKind, unix_ms: u64) -> Self {
        Self { kind, time: Some(UnixTime::from_unix_ms(unix_ms)), time_digits: 3 }
    }

    const fn of_s(kind: WideKind, unix_s: u64) -> Self {
        Self { kind, time: Some(UnixTime::from_unix_ms(unix_s * 1_000)), time_digits: 0 }
    }
}

fn uuid(text: &[u8]) -> Option<WideId> {
    let mut bits: u128 = 0;
    for (at, byte) in text.iter().enumerate() {
        if text.len() == 36 && matches!(at, 8 | 13 | 18 | 23) {
            if *byte != b'-' {
                return None;
            }
            continue;
        }
        bits = (bits << 4) | u128::from(char::from(*byte).to_digit(16)?);
    }
    #[allow(clippy::cast_possible_truncation)] // The high half.
    let high = (bits >> 64) as u64;
    let is_rfc_variant = (bits >> 62) & 0b11 == 0b10;
    let version = (high >> 12) & 0xf;
    let of_steps = |kind: WideKind, steps: u64| WideId {
        kind,
        time: steps
            .checked_sub(UUID_STEPS_TO_1970)
            .map(|steps| UnixTime::from_unix_ns(u128::from(steps) * 100)),
        time_digits: 7,
    };
    let without_time = |kind: WideKind| WideId { kind, time: None, time_digits: 0 };
    Some(match version {
        _ if !is_rfc_variant => without_time(WideKind::UuidOther),
        1 => {
            let (low, mid, top) = (high >> 32, (high >> 16) & 0xffff, high & 0xfff);
            of_steps(WideKind::UuidV1, (top << 48) | (mid << 32) | low)
        }
        4 => without_time(WideKind::UuidV4),
        6 => of_steps(WideKind::UuidV6, ((high >> 16) << 12) | (high & 0xfff)),
        7 => WideId::of_ms(WideKind::UuidV7, high >> 16),
        _ => without_time(WideKind::UuidOther),
    })
}

fn ulid(text: &[u8]) -> Option<WideId> {
    let mut bits: u128 = 0;
    for byte in text {
        let digit = crate::text::crockford_digit(*byte)?;
        // 26 characters are 130 bits: the first must leave the top two at 0.
        bits = bits.checked_mul(32)?.checked_add(digit.into())?;
    }
    u64::try_from(bits >> 80).ok().map(|unix_ms| WideId::of_ms(WideKind::Ulid, unix_ms))
}

fn object_id(text: &[u8]) -> Option<WideId> {
    let mut bits: u128 = 0;
    for byte in text {
        bits = (bits << 4) | u128::from(char::from(*byte).to_digit(16)?);
    }
    u64::try_from(bits >> 64).ok().map(|unix_s| WideId::of_s(WideKind::ObjectId, unix_s))
}

fn ksuid(text: &[u8]) -> Option<WideId> {
    // 160 bits as five words, the highest first.
    let mut words = [0_u32; 5];
    for byte in text {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'A'..=b'Z' => byte - b'A' + 10,
            b'a'..=b'z' => byte - b'a' + 36,
            _ => return None,
        };
        let mut carry = u64::from(digit);
        for word in words.iter_mut().rev() {
            let sum = u64::from(*word) * 62 + carry;
            #[allow(clippy::cast_possible_truncation)] // The low half; the rest is carried.
            let low = sum as u32;
            *word = low;
            carry = sum >> 32;
        }
        if carry > 0 {
            return None;
        }
    }
    let [seconds, ..] = words;
    Some(WideId::of_s(WideKind::Ksuid, u64::from(seconds) + u64::from(KSUID_EPOCH_S)))
}

fn xid(text: &[u8]) -> Option<WideId> {
    let mut bits: u128 = 0;
    for byte in text {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'v' => byte - b'a' + 10,
            _ => return None,
        };
        bits = (bits << 5) | u128::from(digit);
    }
    // 20 characters are 100 bits for 96: the last four are 0.
    if bits & 0xf != 0 {
        return None;
    }
    u64::try_from(bits >> 68).ok().map(|unix_s| WideId::of_s(WideKind::Xid, unix_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Examples that their own specifications or implementations publish.
    #[test]
    fn known() {
        let check = |text: &str, kind: WideKind, time: Option<&str>| {
            let id = WideId::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(id.kind, kind, "{text}");
            let shown = id.time.map(|time| time.text(id.time_digits));
            assert_eq!(shown.as_ref().map(crate::TimeText::as_str), time, "{text}");
        };
        // RFC 9562, appendix A.
        let v1 = Some("2022-02-22T19:22:22.0000000Z");
        check("C232AB00-9414-11EC-B3C8-9F6BDECED846", WideKind::UuidV1, v1);
        check("919108f7-52d1-4320-9bac-f847db4148a8", WideKind::UuidV4, None);
        check("1EC9414C-232A-6B00-B3C8-9F6BDECED846", WideKind::UuidV6, v1);
        check("017F22E2-79B0-7CC3-98C4-DC0C0C07398F", WideKind::UuidV7, Some("2022-02-22T19:22:22.000Z"));
        check("5df41881-3aed-3515-88a7-2f4a814cf09e", WideKind::UuidOther, None);
        check("00000000-0000-0000-0000-000000000000", WideKind::UuidOther, None);
        check("ffffffff-ffff-ffff-ffff-ffffffffffff", WideKind::UuidOther, None);
        check("{017f22e279b07cc398c4dc0c0c07398f}", WideKind::UuidV7, Some("2022-02-22T19:22:22.000Z"));
        check(
            "urn:uuid:017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
            WideKind::UuidV7,
            Some("2022-02-22T19:22:22.000Z"),
        );
        // Version 1 of 1582: real ones do not exist.
        check("00000000-0000-1000-8000-000000000000", WideKind::UuidV1, None);
        // ulid/spec: the example, and the largest.
        check("01ARZ3NDEKTSV4RRFFQ69G5FAV", WideKind::Ulid, Some("2016-07-30T23:54:10.259Z"));
        check("7zzzzzzzzzzzzzzzzzzzzzzzzz", WideKind::Ulid, Some("+010889-08-02T05:31:50.655Z"));
        // MongoDB's manual.
        check("507f1f77bcf86cd799439011", WideKind::ObjectId, Some("2012-10-17T21:13:27Z"));
        // segmentio/ksuid, README.
        check("0ujtsYcgvSTl8PAuAdqWYSMnLOv", WideKind::Ksuid, Some("2017-10-10T04:00:47Z"));
        check("aWgEPTl1tmebfsQzFP4bxwgy80V", WideKind::Ksuid, Some("2150-06-19T23:21:35Z"));
        // rs/xid, id_test.go.
        check("9m4e2mr0ui3e8a215n4g", WideKind::Xid, Some("2011-03-22T17:50:19Z"));
    }

    /// What is none of them, though it has the length of one.
    #[test]
    fn unknown() {
        for text in [
            "",
            "1205161015177961473",
            "017f22e2x79b0-7cc3-98c4-dc0c0c07398f",
            "017f22e279b07cc398c4dc0c0c07398g",
            "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
            "01ARZ3NDEKTSV4RRFFQ69G5FAU",
            "507f1f77bcf86cd79943901g",
            "zzzzzzzzzzzzzzzzzzzzzzzzzzz",
            "0ujtsYcgvSTl8PAuAdqWYSMnLO-",
            "9m4e2mr0ui3e8a215n4h",
            "9m4e2mr0ui3e8a215n4w",
            "９m4e2mr0ui3e8a215",
        ] {
            assert_eq!(WideId::parse(text.as_bytes()), None, "{text}");
        }
    }

    proptest::proptest! {
        /// No text makes it panic.
        #[test]
        fn hostile(text in proptest::collection::vec(proptest::num::u8::ANY, 0..50)) {
            let _ = WideId::parse(&text);
        }

        #[test]
        fn hostile_digits(text in "[0-9a-zA-Z-]{18,38}") {
            let _ = WideId::parse(text.as_bytes());
        }
    }
}
