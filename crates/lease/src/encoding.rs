//! The bytes of a record: versioned, checksummed, and one encoding for each record.
//!
//! | offset | bytes | holds |
//! |---|---|---|
//! | 0 | 4 | `SNML` |
//! | 4 | 1 | kind: `C` a code record, `K` a cluster record |
//! | 5 | 1 | version, [`VERSION`] |
//! | 6 | 4 | length of the body |
//! | 10 | n | the body: the fields in their order, little-endian; texts with a length of two bytes before |
//! | 10 + n | 4 | CRC-32 (ISO-HDLC) of everything before |
//!
//! The version is looked at before the checksum, since another version may have another one.

use std::fmt;

use snowmint_core::Layout;

use crate::record::{FORMER_LAYOUTS_MAX, FormerLayout};
use crate::{ClusterRecord, CodeRecord, Owner, State};

/// The version of the encoding that this crate writes, and the only one that it reads.
pub const VERSION: u8 = 1;

const MAGIC: [u8; 4] = *b"SNML";
const KIND_CODE: u8 = b'C';
const KIND_CLUSTER: u8 = b'K';
const HEAD_BYTES: usize = 10;
const SUM_BYTES: usize = 4;

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// Another version of Snowmint wrote it.
    WrongVersion {
        /// The version that it bears.
        version: u8,
    },
    /// Bytes are missing at the end.
    Truncated {
        /// How many there are.
        bytes: usize,
        /// How many there should be, as far as can be told.
        expected: usize,
    },
    /// There are bytes behind the record.
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// The bytes are no record, or were changed since they were written.
    Damaged {
        /// What does not fit.
        what: &'static str,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::WrongVersion { version } => {
                write!(f, "the record has version {version}; this program reads version {VERSION}")
            }
            Self::Truncated { bytes, expected } => {
                write!(f, "the record is cut off: {bytes} bytes of {expected}")
            }
            Self::Trailing { bytes } => write!(f, "the record is followed by {bytes} bytes too many"),
            Self::Damaged { what } => write!(f, "the record is damaged: {what}"),
        }
    }
}

impl std::error::Error for DecodeError {}

const fn damaged<T>(what: &'static str) -> Result<T, DecodeError> {
    Err(DecodeError::Damaged { what })
}

impl CodeRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Writer::new(KIND_CODE);
        body.put(&[match self.state {
            State::Free => 0,
            State::Active => 1,
            State::Expired => 2,
            State::Fenced => 3,
        }]);
        body.put(&self.term.to_le_bytes());
        body.text(self.owner.as_ref().map_or("", Owner::as_str));
        body.put(&self.floor_ms.to_le_bytes());
        body.put(&self.end_ms.to_le_bytes());
        body.put(&self.stamp_ms.to_le_bytes());
        body.put(&self.clock_error_ms.to_le_bytes());
        body.put(&self.ttl_ms.to_le_bytes());
        body.put(&self.not_again_before_ms.to_le_bytes());
        body.put(&self.nonce.to_le_bytes());
        body.finish()
    }

    /// The record of these bytes: exactly what [`CodeRecord::encode`] writes, nothing else.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut body = Reader::new(bytes, KIND_CODE)?;
        let record = Self {
            state: match body.u8()? {
                0 => State::Free,
                1 => State::Active,
                2 => State::Expired,
                3 => State::Fenced,
                _ => return damaged("unknown state"),
            },
            term: body.u32()?,
            owner: match body.text()? {
                "" => None,
                name => match Owner::new(name) {
                    Ok(owner) => Some(owner),
                    Err(_) => return damaged("owner is no name"),
                },
            },
            floor_ms: body.u64()?,
            end_ms: body.u64()?,
            stamp_ms: body.u64()?,
            clock_error_ms: body.u32()?,
            ttl_ms: body.u32()?,
            not_again_before_ms: body.u64()?,
            nonce: body.u128()?,
        };
        body.finish()?;
        if record.is_valid() { Ok(record) } else { damaged("fields contradict each other") }
    }
}

impl ClusterRecord {
    /// The record's bytes. Former layouts past [`FORMER_LAYOUTS_MAX`] do not decode: see [`ClusterRecord::check`].
    #[allow(clippy::cast_possible_truncation)] // The count of a valid record is at most 16.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Writer::new(KIND_CLUSTER);
        body.put(&self.uuid.to_le_bytes());
        body.text(&self.layout.to_string());
        body.put(&[self.former.len() as u8]);
        for former in &self.former {
            body.text(&former.layout.to_string());
            body.put(&former.last_ms.to_le_bytes());
        }
        body.put(&self.region.to_le_bytes());
        body.put(&self.generation.to_le_bytes());
        body.put(&self.not_before_ms.to_le_bytes());
        body.put(&[u8::from(self.cutover_last_ms.is_some())]);
        if let Some(last_ms) = self.cutover_last_ms {
            body.put(&last_ms.to_le_bytes());
        }
        body.finish()
    }

    /// The record of these bytes: exactly what [`ClusterRecord::encode`] writes, nothing else.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut body = Reader::new(bytes, KIND_CLUSTER)?;
        let uuid = body.u128()?;
        let layout = body.layout()?;
        let former_count = usize::from(body.u8()?);
        if former_count > FORMER_LAYOUTS_MAX {
            return damaged("too many former layouts");
        }
        let former = (0..former_count)
            .map(|_| Ok(FormerLayout { layout: body.layout()?, last_ms: body.u64()? }))
            .collect::<Result<_, _>>()?;
        let cluster = Self {
            uuid,
            layout,
            former,
            region: body.u32()?,
            generation: body.u16()?,
            not_before_ms: body.u64()?,
            cutover_last_ms: match body.u8()? {
                0 => None,
                1 => Some(body.u64()?),
                _ => return damaged("unknown flag"),
            },
        };
        body.finish()?;
        match cluster.check() {
            Ok(()) => Ok(cluster),
            Err(_) => damaged("layout, region or generation cannot be leased by"),
        }
    }
}

struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn new(kind: u8) -> Self {
        let mut writer = Self { bytes: Vec::with_capacity(128) };
        writer.put(&MAGIC);
        writer.put(&[kind, VERSION, 0, 0, 0, 0]);
        writer
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Texts are owners and layouts, which are far below 64 KiB.
    #[allow(clippy::cast_possible_truncation)]
    fn text(&mut self, text: &str) {
        self.put(&(text.len() as u16).to_le_bytes());
        self.put(text.as_bytes());
    }

    #[allow(clippy::cast_possible_truncation)] // 16 layouts are far below 4 GiB.
    fn finish(mut self) -> Vec<u8> {
        let body_bytes = (self.bytes.len() - HEAD_BYTES) as u32;
        if let Some(length) = self.bytes.get_mut(6..HEAD_BYTES) {
            length.copy_from_slice(&body_bytes.to_le_bytes());
        }
        let sum = crc32(&self.bytes);
        self.put(&sum.to_le_bytes());
        self.bytes
    }
}

struct Reader<'a> {
    body: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Checks everything around the body.
    fn new(bytes: &'a [u8], kind: u8) -> Result<Self, DecodeError> {
        let truncated = |expected| DecodeError::Truncated { bytes: bytes.len(), expected };
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or(truncated(HEAD_BYTES + SUM_BYTES))?;
        let mut head = Reader { body: head };
        if head.array()? != MAGIC {
            return damaged("it does not begin as one");
        }
        let found_kind = head.u8()?;
        let version = head.u8()?;
        if version != VERSION {
            return Err(DecodeError::WrongVersion { version });
        }
        let body_bytes = usize::try_from(head.u32()?).unwrap_or(usize::MAX);
        let expected = body_bytes.saturating_add(SUM_BYTES);
        if rest.len() > expected {
            return Err(DecodeError::Trailing { bytes: rest.len() - expected });
        }
        let (body, sum) =
            rest.split_at_checked(body_bytes).ok_or(truncated(expected.saturating_add(HEAD_BYTES)))?;
        let mut tail = Reader { body: sum };
        let sum = tail.array().map_err(|_| truncated(expected.saturating_add(HEAD_BYTES)))?;
        let summed = bytes.get(..HEAD_BYTES + body.len()).unwrap_or_default();
        if u32::from_le_bytes(sum) != crc32(summed) {
            return damaged("its checksum does not match");
        }
        if found_kind != kind {
            return damaged("it is a record of another kind");
        }
        Ok(Self { body })
    }

    /// The body has a valid checksum, so running out of it means that its writer was no Snowmint of this version.
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], DecodeError> {
        let Some((taken, rest)) = self.body.split_at_checked(bytes) else {
            return damaged("its fields are longer than itself");
        };
        self.body = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let taken = self.take(N)?;
        taken.try_into().or_else(|_| damaged("its fields are longer than itself"))
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Result<u128, DecodeError> {
        self.array().map(u128::from_le_bytes)
    }

    fn text(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.u16()?;
        let text = self.take(usize::from(bytes))?;
        std::str::from_utf8(text).or_else(|_| damaged("a text is no UTF-8"))
    }

    fn layout(&mut self) -> Result<Layout, DecodeError> {
        self.text()?.parse().or_else(|_| damaged("a layout is no canonical text"))
    }

    fn finish(self) -> Result<(), DecodeError> {
        if self.body.is_empty() { Ok(()) } else { damaged("it is longer than its fields") }
    }
}

const CRC_TABLE: [u32; 256] = crc_table();

#[allow(clippy::indexing_slicing, clippy::cast_possible_truncation)] // Both loops end before 256.
const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut sum = at as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
            bit += 1;
        }
        table[at] = sum;
        at += 1;
    }
    table
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, &byte| {
        let [low, ..] = sum.to_le_bytes();
        CRC_TABLE.get(usize::from(low ^ byte)).copied().unwrap_or_default() ^ (sum >> 8)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn code() -> CodeRecord {
        CodeRecord {
            state: State::Active,
            term: 7,
            owner: Some(Owner::new("host-a").unwrap()),
            floor_ms: 1_750_000_000_000,
            end_ms: 1_750_000_001_000,
            stamp_ms: 1_750_000_000_000,
            clock_error_ms: 3,
            ttl_ms: 1_500,
            not_again_before_ms: 0,
            nonce: u128::MAX / 3,
        }
    }

    fn cluster() -> ClusterRecord {
        let mut cluster = ClusterRecord::new(1 << 100, Layout::SNOWMINT, 2).unwrap();
        cluster.former.push(FormerLayout { layout: Layout::HYBRID, last_ms: 1_740_000_000_000 });
        cluster.cutover_last_ms = Some(1_760_000_000_000);
        cluster
    }

    #[test]
    fn the_checksum_is_crc_32_as_everybody_computes_it() {
        // Shows the published check value of CRC-32/ISO-HDLC.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn records_survive_their_encoding() {
        // Shows that decoding gives back what was encoded, for both kinds.
        assert_eq!(CodeRecord::decode(&code().encode()), Ok(code()));
        assert_eq!(CodeRecord::decode(&CodeRecord::UNUSED.encode()), Ok(CodeRecord::UNUSED));
        assert_eq!(ClusterRecord::decode(&cluster().encode()), Ok(cluster()));
    }

    #[test]
    fn every_damage_is_told_apart() {
        // Shows the exact error for another version, a cut, a tail, another kind, and a record that contradicts itself.
        let good = code().encode();
        let mut version = good.clone();
        version[5] = 2;
        assert_eq!(CodeRecord::decode(&version), Err(DecodeError::WrongVersion { version: 2 }));
        for bytes in 0..good.len() {
            let error = CodeRecord::decode(&good[..bytes]).unwrap_err();
            assert!(
                matches!(error, DecodeError::Truncated { bytes: found, .. } if found == bytes),
                "{error}"
            );
        }
        let mut tail = good.clone();
        tail.extend([0, 0]);
        assert_eq!(CodeRecord::decode(&tail), Err(DecodeError::Trailing { bytes: 2 }));
        assert!(matches!(ClusterRecord::decode(&good), Err(DecodeError::Damaged { .. })));
        let contradictory = CodeRecord { floor_ms: u64::MAX, ..code() };
        assert!(matches!(CodeRecord::decode(&contradictory.encode()), Err(DecodeError::Damaged { .. })));
    }

    #[test]
    fn no_flipped_bit_goes_unseen() {
        // Shows that every single flipped bit of both records is an error, never another record and never a panic.
        for (bytes, is_code) in [(code().encode(), true), (cluster().encode(), false)] {
            for at in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[at / 8] ^= 1 << (at % 8);
                let is_refused = if is_code {
                    CodeRecord::decode(&flipped).is_err()
                } else {
                    ClusterRecord::decode(&flipped).is_err()
                };
                assert!(is_refused, "bit {at}");
            }
        }
    }

    /// Wraps a body as a writer would, so that hostile bytes get past the checksum.
    fn sealed(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut writer = Writer::new(kind);
        writer.put(body);
        writer.finish()
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
            // Shows that any bytes, bare or with a valid checksum, are refused or are the one encoding of their record.
            let _ = CodeRecord::decode(&body);
            let _ = ClusterRecord::decode(&body);
            let bytes = sealed(KIND_CODE, &body);
            if let Ok(record) = CodeRecord::decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes);
            }
            let bytes = sealed(KIND_CLUSTER, &body);
            if let Ok(record) = ClusterRecord::decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes);
            }
        }

        #[test]
        fn a_mutated_body_is_refused_or_canonical(at in 0_usize..84, byte: u8) {
            // Shows that there is one encoding for each record: what decodes encodes to the same bytes.
            let good = code().encode();
            let mut body = good[HEAD_BYTES..good.len() - SUM_BYTES].to_vec();
            let at = at % body.len();
            body[at] = byte;
            let bytes = sealed(KIND_CODE, &body);
            if let Ok(record) = CodeRecord::decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes);
            }
        }
    }
}
