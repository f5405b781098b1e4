//! Lines of any length from any input, in bounded memory.

use std::io::{self, Read};

/// The longest line that is read, in bytes. Logs have long lines; IDs are short.
pub(super) const LINE_BYTES_MAX: usize = 1 << 20;

/// A line without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// Its bytes, which need not be UTF-8.
    Text(&'a [u8]),
    /// It has this many bytes, more than [`LINE_BYTES_MAX`].
    TooLong(u64),
}

/// Reads lines through one buffer, without an allocation a line.
pub(super) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    /// What is read and not yet given out: `buffer[start..end]`.
    start: usize,
    end: usize,
    is_over: bool,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, buffer: vec![0; LINE_BYTES_MAX + 2], start: 0, end: 0, is_over: false }
    }

    /// The next line; `None` at the end. `before_read` runs before each read, which may wait for whoever writes.
    pub(super) fn next(
        &mut self,
        before_read: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<Option<Line<'_>>> {
        // Bytes of a line that were thrown away, because it is too long.
        let mut dropped: u64 = 0;
        let mut looked_at = 0;
        loop {
            let unread = self.buffer.get(self.start + looked_at..self.end).unwrap_or_default();
            let found = unread.iter().position(|byte| *byte == b'\n').map(|at| looked_at + at);
            let is_last = found.is_none() && self.is_over;
            if found.is_some() || is_last {
                let len = found.unwrap_or(self.end - self.start);
                let from = self.start;
                self.start = (from + len + usize::from(found.is_some())).min(self.end);
                if is_last && len == 0 && dropped == 0 {
                    return Ok(None);
                }
                let text = self.buffer.get(from..from + len).unwrap_or_default();
                let text = text.strip_suffix(b"\r").unwrap_or(text);
                let bytes = dropped + text.len() as u64;
                let is_long = bytes > LINE_BYTES_MAX as u64;
                return Ok(Some(if is_long { Line::TooLong(bytes) } else { Line::Text(text) }));
            }
            looked_at = self.end - self.start;
            if looked_at == self.buffer.len() {
                // A full buffer without an end of line: the line is too long, and only its length still matters.
                dropped += looked_at as u64;
                (self.start, self.end, looked_at) = (0, 0, 0);
            } else if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, looked_at);
            }
            before_read()?;
            let free = self.buffer.get_mut(self.end..).unwrap_or_default();
            match self.input.read(free) {
                Ok(0) => self.is_over = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An input that gives so many bytes at a time.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(into.len()).min(self.0.len());
            let (now, later) = self.0.split_at(count);
            into[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    fn check(input: &[u8], expected: &[Result<&[u8], u64>]) {
        for at_a_time in [1, 2, 7, 1 << 16, usize::MAX] {
            // One byte at a time is slow, and the same, on the long inputs.
            if input.len() / at_a_time > 1 << 16 {
                continue;
            }
            let mut lines = Lines::new(Drip(input, at_a_time));
            for line in expected {
                let found = lines.next(&mut || Ok(())).unwrap();
                let expected = match line {
                    Ok(text) => Line::Text(text),
                    Err(bytes) => Line::TooLong(*bytes),
                };
                assert!(found == Some(expected), "{at_a_time} at a time");
            }
            assert_eq!(lines.next(&mut || Ok(())).unwrap(), None);
            assert_eq!(lines.next(&mut || Ok(())).unwrap(), None);
        }
    }

    #[test]
    fn lines() {
        check(b"", &[]);
        check(b"\n", &[Ok(b"")]);
        check(b"1\n22\r\n\n333", &[Ok(b"1"), Ok(b"22"), Ok(b""), Ok(b"333")]);
        check(b"1\r", &[Ok(b"1")]);
    }

    /// A line at the limit is read, one above it is counted, and what follows is read again.
    #[test]
    fn long_lines() {
        let line = |bytes: usize| vec![b'1'; bytes];
        let longest = line(LINE_BYTES_MAX);
        check(&[longest.as_slice(), b"\r\n2"].concat(), &[Ok(&longest), Ok(b"2")]);
        check(&longest, &[Ok(&longest)]);
        for bytes in [LINE_BYTES_MAX + 1, LINE_BYTES_MAX + 2, LINE_BYTES_MAX + 3, 10_000_000] {
            let long = [line(bytes).as_slice(), b"\n2\n"].concat();
            check(&long, &[Err(bytes as u64), Ok(b"2")]);
            check(&line(bytes), &[Err(bytes as u64)]);
        }
    }
}
