//! IDs, the nodes that mint them, and runs of them.

use core::fmt;
use core::num::NonZeroU32;

/// A 64-bit ID. Any 64 bits can be one: what they mean is the layout's to say.
///
/// IDs compare as unsigned integers. Minted ones are never 0, and below 2^63 where the layout reserves the top bit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u64);

impl Id {
    /// The ID of these bits.
    pub const fn new(bits: u64) -> Self {
        Self(bits)
    }

    /// The ID's bits.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({})", self.0)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u64> for Id {
    fn from(bits: u64) -> Self {
        Self(bits)
    }
}

impl From<Id> for u64 {
    fn from(id: Id) -> Self {
        id.0
    }
}

/// A node code: which worker of which region mints. [`crate::Layout::node`] makes one that fits a layout; whatever
/// takes one checks it against its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub(crate) region: u32,
    pub(crate) worker: u32,
}

impl Node {
    /// A node as it comes over a boundary, not yet checked against any layout.
    pub const fn new(region: u32, worker: u32) -> Self {
        Self { region, worker }
    }

    /// The region.
    pub const fn region(self) -> u32 {
        self.region
    }

    /// The worker within its region.
    pub const fn worker(self) -> u32 {
        self.worker
    }
}

/// A run of IDs of one tick: `first`, `first + stride`, … `count` of them.
///
/// Thousands of IDs cross any boundary as these three numbers. What a holder does not use is a gap; gaps are
/// allowed, and nothing hands the same IDs out again. Not `Clone`: two holders of one run would both use it.
///
/// ```
/// use core::num::NonZeroU32;
/// use snowmint_core::{Id, Run};
///
/// let run = Run::new(Id::new(10), 4, NonZeroU32::new(3).unwrap()).unwrap();
/// assert!(run.into_iter().eq([10, 14, 18].map(Id::new)));
/// ```
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Run {
    first: Id,
    stride: u64,
    count: u32,
}

impl Run {
    /// A run from its three numbers, as they come out of a component or over a network. `None` if its last ID would
    /// not fit 64 bits, or if a stride of 0 would repeat one.
    pub const fn new(first: Id, stride: u64, count: NonZeroU32) -> Option<Self> {
        let steps = count.get() as u64 - 1;
        if stride == 0 && steps > 0 {
            return None;
        }
        let Some(length) = stride.checked_mul(steps) else { return None };
        if first.get().checked_add(length).is_none() {
            return None;
        }
        Some(Self { first, stride, count: count.get() })
    }

    /// A run of one tick, whose IDs fit by the layout.
    pub(crate) const fn of_tick(first: Id, stride: u64, count: u32) -> Self {
        Self { first, stride, count }
    }

    /// The first ID; meaningless once [`Run::count`] is 0.
    pub const fn first(&self) -> Id {
        self.first
    }

    /// The step between neighbours.
    pub const fn stride(&self) -> u64 {
        self.stride
    }

    /// How many IDs are left.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The last ID of the run; `None` once it is empty.
    pub const fn last(&self) -> Option<Id> {
        if self.count == 0 {
            return None;
        }
        Some(Id::new(self.first.get() + self.stride * (self.count as u64 - 1)))
    }

    /// Takes the first `count` IDs (all, if there are fewer) off the run as a run of their own.
    #[must_use]
    pub fn split_off_front(&mut self, count: u32) -> Self {
        let taken = count.min(self.count);
        let front = Self { first: self.first, stride: self.stride, count: taken };
        // Wraps only past the run's own last ID, where nothing is left to read it.
        self.first = Id::new(self.first.get().wrapping_add(self.stride.wrapping_mul(u64::from(taken))));
        self.count -= taken;
        front
    }
}

impl IntoIterator for Run {
    type Item = Id;
    type IntoIter = RunIds;

    fn into_iter(self) -> RunIds {
        RunIds(self)
    }
}

/// The IDs of a [`Run`], one after the other.
#[derive(Debug)]
pub struct RunIds(Run);

impl RunIds {
    /// What has not been given yet.
    pub const fn rest(&self) -> &Run {
        &self.0
    }
}

impl Iterator for RunIds {
    type Item = Id;

    fn next(&mut self) -> Option<Id> {
        if self.0.count == 0 {
            return None;
        }
        let id = self.0.first;
        // Wraps only past the run's own last ID, where nothing is left to read it.
        self.0.first = Id::new(id.get().wrapping_add(self.0.stride));
        self.0.count -= 1;
        Some(id)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.0.count as usize;
        (count, Some(count))
    }
}

impl ExactSizeIterator for RunIds {}
impl core::iter::FusedIterator for RunIds {}
