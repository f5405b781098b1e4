//! Any bytes as a record: no panic, and one encoding for each record. The checksum is mended too, so that what lies
//! behind it is reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use snowmint_lease::{ClusterRecord, CodeRecord};

fuzz_target!(|bytes: &[u8]| {
    look(bytes);
    if let Some(body) = bytes.len().checked_sub(4).and_then(|end| bytes.get(..end)) {
        let mut mended = body.to_vec();
        mended.extend(crc32(body).to_le_bytes());
        look(&mended);
    }
});

fn look(bytes: &[u8]) {
    if let Ok(record) = CodeRecord::decode(bytes) {
        assert!(record.is_valid());
        assert_eq!(record.encode(), bytes);
    }
    if let Ok(record) = ClusterRecord::decode(bytes) {
        assert!(record.check().is_ok());
        assert_eq!(record.encode(), bytes);
    }
}

/// CRC-32 (ISO-HDLC).
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
    })
}
