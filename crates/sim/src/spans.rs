//! Which cursors of one code were issued: exact, and cheap as long as they are contiguous.

/// A set of cursors as disjoint spans in order.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    /// `(first, end)`, the end not included.
    spans: Vec<(u64, u64)>,
}

impl Spans {
    /// None.
    pub const fn new() -> Self {
        Self { spans: Vec::new() }
    }

    /// Adds `first..first + count`. Returns how many of them were in the set already.
    pub fn insert(&mut self, first: u64, count: u64) -> u64 {
        let end = first + count;
        match self.spans.last_mut() {
            Some((_, last)) if *last == first => {
                *last = end;
                return 0;
            }
            Some((_, last)) if *last > first => {}
            _ => {
                self.spans.push((first, end));
                return 0;
            }
        }
        // The rare case: a code whose generations of owners went back in time.
        let from = self.spans.partition_point(|&(_, last)| last < first);
        let to = self.spans.partition_point(|&(start, _)| start <= end);
        let touched = self.spans.get(from..to).unwrap_or_default();
        let overlap: u64 =
            touched.iter().map(|&(start, last)| last.min(end).saturating_sub(start.max(first))).sum();
        let merged =
            touched.iter().fold((first, end), |(start, last), span| (start.min(span.0), last.max(span.1)));
        self.spans.splice(from..to, [merged]);
        overlap
    }

    /// How many spans there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether nothing was issued.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Rng;

    #[test]
    fn spans_count_overlaps_as_a_naive_set_does() {
        // Shows, for random insertions, that every cursor issued twice is counted, and no other.
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut spans = Spans::new();
            let mut naive = BTreeSet::new();
            for _ in 0..100 {
                let (first, count) = (rng.below(300), rng.between(1, 20));
                let overlap = (first..first + count).filter(|&cursor| !naive.insert(cursor)).count();
                assert_eq!(spans.insert(first, count), overlap as u64, "seed {seed}");
            }
        }
    }
}
