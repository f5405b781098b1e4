//! From what is needed to a layout: with the margin of each field, or by how much it cannot be done and what gives.

use core::fmt;

use crate::{Field, ID_BITS, Layout, LayoutError, NS_PER_MS, Role};

/// Milliseconds of a year of 365.2425 days, the Gregorian calendar's mean.
pub const MS_PER_YEAR: u64 = 31_556_952_000;

/// The top bit stays 0, so that IDs are positive signed numbers.
const RESERVED_BITS: u32 = 1;

/// The sequence gets spare bits until it has so many: with them, the `spread` policy is offered.
const SEQUENCE_BITS_WANTED: u32 = 12;

/// What a layout must hold. Each at least 1.
///
/// ```
/// use snowmint_core::{Layout, Requirements};
///
/// let needs = Requirements { years: 60, regions: 4, workers_per_region: 200, burst_per_ms: 3_000 };
/// let derived = needs.derive(Layout::SNOWMINT.epoch_unix_ms())?;
/// assert_eq!(derived.layout, Layout::SNOWMINT);
/// assert_eq!(derived.spare_bits, 0);
///
/// let more = Requirements { workers_per_region: 300, ..needs };
/// assert_eq!(
///     more.derive(0).unwrap_err().to_string(),
///     "1 bit over the 63 that an ID has: make do with 256 workers a region instead of 300, or with 2048 IDs a worker \
///      a millisecond instead of 3000, or with 34.8 years instead of 69.7 (60 are asked for), or with 2 regions \
///      instead of 4"
/// );
/// # Ok::<(), snowmint_core::RequirementsError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Requirements {
    /// For how many years from the epoch IDs are needed, of 365.2425 days each.
    pub years: u32,
    /// How many regions there are.
    pub regions: u32,
    /// How many workers mint at once in a region.
    pub workers_per_region: u32,
    /// How many IDs a worker mints in its busiest millisecond.
    pub burst_per_ms: u32,
}

/// One of the four requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// [`Requirements::years`].
    Years,
    /// [`Requirements::regions`].
    Regions,
    /// [`Requirements::workers_per_region`].
    Workers,
    /// [`Requirements::burst_per_ms`].
    Burst,
}

impl Need {
    const ALL: [Self; 4] = [Self::Years, Self::Regions, Self::Workers, Self::Burst];

    /// The need's name on every face.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Years => "years",
            Self::Regions => "regions",
            Self::Workers => "workers",
            Self::Burst => "burst",
        }
    }

    /// The field that serves the need.
    pub const fn role(self) -> Role {
        match self {
            Self::Years => Role::Timestamp,
            Self::Regions => Role::Region,
            Self::Workers => Role::Worker,
            Self::Burst => Role::Sequence,
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Years => "years",
            Self::Regions => "regions",
            Self::Workers => "workers a region",
            Self::Burst => "IDs a worker a millisecond",
        }
    }

    /// What a field of `bits` bits holds, in the need's unit: milliseconds for years.
    const fn held_by(self, bits: u32) -> u64 {
        let values = 1 << bits;
        match self {
            // Tick 0 is never minted.
            Self::Years => values - 1,
            _ => values,
        }
    }

    /// The fewest bits that a field for the need has.
    const fn bits_min(self) -> u32 {
        match self {
            Self::Years | Self::Burst => 1,
            Self::Regions | Self::Workers => 0,
        }
    }
}

impl Requirements {
    /// A layout of 1-ms ticks from `epoch_unix_ms` that holds them: 1 reserved, timestamp, region, worker, sequence;
    /// one region or one worker takes no field. Spare bits go to the sequence until it has 12, then to the timestamp.
    pub fn derive(&self, epoch_unix_ms: u64) -> Result<Derived, RequirementsError> {
        if let Some(need) = Need::ALL.into_iter().find(|need| self.asked(*need) == 0) {
            return Err(RequirementsError::Zero { need });
        }
        let [mut timestamp, region, worker, mut sequence] = Need::ALL.map(|need| self.bits(need));
        let wanted = RESERVED_BITS + timestamp + region + worker + sequence;
        let Some(spare_bits) = ID_BITS.checked_sub(wanted) else {
            return Err(RequirementsError::Over(Shortfall { bits_over: wanted - ID_BITS, needs: *self }));
        };
        let to_sequence = SEQUENCE_BITS_WANTED.saturating_sub(sequence).min(spare_bits);
        sequence += to_sequence;
        timestamp += spare_bits - to_sequence;

        let mut fields = [Field::new(Role::Reserved, 1); 5];
        let mut len = 0;
        let widths = [
            (Role::Reserved, RESERVED_BITS),
            (Role::Timestamp, timestamp),
            (Role::Region, region),
            (Role::Worker, worker),
            (Role::Sequence, sequence),
        ];
        for ((role, bits), place) in widths.into_iter().filter(|(_, bits)| *bits > 0).zip(&mut fields) {
            #[allow(clippy::cast_possible_truncation)] // They add up to 64.
            let bits = bits as u8;
            *place = Field::new(role, bits);
            len += 1;
        }
        let fields = fields.get(..len).unwrap_or_default();
        let layout = Layout::new(fields, epoch_unix_ms, NS_PER_MS).map_err(RequirementsError::Layout)?;
        Ok(Derived { layout, spare_bits, check: self.check(&layout) })
    }

    /// Whether a layout holds them, and with what margin.
    pub fn check(&self, layout: &Layout) -> Check {
        Check { margins: Need::ALL.map(|need| self.margin(need, layout)) }
    }

    /// The need's amount in its unit: milliseconds for years.
    const fn asked(&self, need: Need) -> u64 {
        match need {
            // 2^32 years are less than 2^67 ms; what saturates cannot be held anyway.
            Need::Years => (self.years as u64).saturating_mul(MS_PER_YEAR),
            Need::Regions => self.regions as u64,
            Need::Workers => self.workers_per_region as u64,
            Need::Burst => self.burst_per_ms as u64,
        }
    }

    /// The bits of the narrowest field for a need.
    fn bits(&self, need: Need) -> u32 {
        let asked = self.asked(need);
        // 64 if none is wide enough, which is more than an ID has.
        (need.bits_min()..ID_BITS).find(|bits| need.held_by(*bits) >= asked).unwrap_or(ID_BITS)
    }

    fn margin(&self, need: Need, layout: &Layout) -> Margin {
        let tick_ns = u128::from(layout.tick_ns());
        let ns_per_ms = u128::from(NS_PER_MS);
        let holds = match need {
            Need::Years => u128::from(layout.last_tick()) * tick_ns / ns_per_ms,
            Need::Regions => layout.regions().into(),
            Need::Workers => layout.workers_per_region().into(),
            Need::Burst => u128::from(layout.ids_per_tick()) * ns_per_ms / tick_ns,
        };
        Margin { need, asked: self.asked(need), holds: u64::try_from(holds).unwrap_or(u64::MAX) }
    }
}

/// A layout that holds what was required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Derived {
    /// The layout.
    pub layout: Layout,
    /// How many bits were not needed, and were given to the sequence and the timestamp.
    pub spare_bits: u32,
    /// What it holds of each requirement.
    pub check: Check,
}

/// What a layout holds of each requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    margins: [Margin; 4],
}

impl Check {
    /// Years, regions, workers, burst.
    pub const fn margins(&self) -> &[Margin; 4] {
        &self.margins
    }

    /// Whether every requirement is held.
    pub fn passes(&self) -> bool {
        self.margins.iter().all(Margin::passes)
    }
}

/// One requirement against what a layout holds of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Margin {
    /// The requirement.
    pub need: Need,
    /// What is asked for. Years are in milliseconds, to compare exactly.
    pub asked: u64,
    /// What the layout holds, in the same unit. A burst is what a millisecond holds on average over a tick.
    pub holds: u64,
}

impl Margin {
    /// Whether it is held.
    pub const fn passes(&self) -> bool {
        self.holds >= self.asked
    }
}

/// `60 years asked for, 69.7 held`.
impl fmt::Display for Margin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (asked, holds) = (Amount(self.need, self.asked), Amount(self.need, self.holds));
        write!(f, "{asked} {} asked for, {holds} held", self.need.unit())?;
        if self.passes() { Ok(()) } else { f.write_str(": too few") }
    }
}

/// An amount without its unit: years to the nearest tenth, and without `.0`.
struct Amount(Need, u64);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 != Need::Years {
            return self.1.fmt(f);
        }
        let half_tenth = u128::from(MS_PER_YEAR) / 20;
        let tenths = (u128::from(self.1) + half_tenth) * 10 / u128::from(MS_PER_YEAR);
        match tenths % 10 {
            0 => (tenths / 10).fmt(f),
            tenth => write!(f, "{}.{tenth}", tenths / 10),
        }
    }
}

/// Why no layout can be derived. The fault is the requirements'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequirementsError {
    /// A requirement is 0.
    Zero {
        /// Which.
        need: Need,
    },
    /// They take more bits than an ID has.
    Over(Shortfall),
    /// The epoch is out of range.
    Layout(LayoutError),
}

/// By how much requirements do not fit, and what could give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortfall {
    bits_over: u32,
    needs: Requirements,
}

impl Shortfall {
    /// How many bits are missing.
    pub const fn bits_over(&self) -> u32 {
        self.bits_over
    }

    /// The ways out, each of which narrows one field by all the bits that are missing; the cheapest first, which leaves
    /// most of what was asked for. None where no requirement alone can give enough.
    pub fn ways(&self) -> impl Iterator<Item = WayOut> {
        let mut ways = Need::ALL.map(|need| self.way(need));
        ways.sort_unstable_by(|a, b| match (a, b) {
            (Some(a), Some(b)) => {
                let a_left = u128::from(a.left) * u128::from(b.asked);
                let b_left = u128::from(b.left) * u128::from(a.asked);
                b_left.cmp(&a_left)
            }
            _ => b.is_some().cmp(&a.is_some()),
        });
        ways.into_iter().flatten()
    }

    fn way(&self, need: Need) -> Option<WayOut> {
        let bits = self.needs.bits(need);
        let narrower = bits.checked_sub(self.bits_over).filter(|narrower| *narrower >= need.bits_min())?;
        // What 64 bits hold cannot be counted; 63 is the widest field.
        let held = need.held_by(bits.min(ID_BITS - 1));
        Some(WayOut { need, asked: self.needs.asked(need), held, left: need.held_by(narrower) })
    }
}

/// One requirement that could give, all others kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WayOut {
    /// The requirement.
    pub need: Need,
    /// What is asked for. Years are in milliseconds.
    pub asked: u64,
    /// What its field would hold if it were as wide as it must be, in the same unit.
    pub held: u64,
    /// What is left after narrowing the field, in the same unit.
    pub left: u64,
}

impl fmt::Display for WayOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (asked, left) = (Amount(self.need, self.asked), Amount(self.need, self.left));
        write!(f, "{left} {} instead of ", self.need.unit())?;
        match self.need {
            // What is asked for lies anywhere below what the field holds, which is the number people know.
            Need::Years => write!(f, "{} ({asked} are asked for)", Amount(self.need, self.held)),
            _ => asked.fmt(f),
        }
    }
}

impl fmt::Display for RequirementsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero { need } => write!(f, "0 {} are asked for; ask for 1 or more", need.unit()),
            Self::Over(shortfall) => {
                let bits_over = shortfall.bits_over();
                let plural = if bits_over == 1 { "" } else { "s" };
                write!(f, "{bits_over} bit{plural} over the {} that an ID has: ", ID_BITS - RESERVED_BITS)?;
                let mut ways = shortfall.ways().peekable();
                if ways.peek().is_none() {
                    return f.write_str("no requirement alone can give so many; lower several");
                }
                for (nth, way) in ways.enumerate() {
                    f.write_str(if nth == 0 { "make do with " } else { ", or with " })?;
                    way.fmt(f)?;
                }
                Ok(())
            }
            Self::Layout(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for RequirementsError {}

#[cfg(test)]
mod tests {
    use std::string::ToString;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const DEFAULT: Requirements =
        Requirements { years: 60, regions: 4, workers_per_region: 200, burst_per_ms: 3_000 };

    fn widths(layout: &Layout) -> Vec<u32> {
        layout.fields().iter().map(|field| field.bits()).collect()
    }

    /// What is derived, with the bits of each field and what was to spare.
    #[test]
    fn derived() {
        let check = |needs: Requirements, expected: &[u32], spare_bits: u32| {
            let derived = needs.derive(0).unwrap();
            assert_eq!(widths(&derived.layout), expected, "{needs:?}");
            assert_eq!(derived.spare_bits, spare_bits, "{needs:?}");
            assert!(derived.check.passes());
        };
        check(DEFAULT, &[1, 41, 2, 8, 12], 0);
        check(
            Requirements { burst_per_ms: 4_096, workers_per_region: 256, ..DEFAULT },
            &[1, 41, 2, 8, 12],
            0,
        );
        check(Requirements { years: 34, ..DEFAULT }, &[1, 41, 2, 8, 12], 1);
        check(Requirements { burst_per_ms: 300, ..DEFAULT }, &[1, 41, 2, 8, 12], 3);
        check(Requirements { regions: 1, workers_per_region: 1, ..DEFAULT }, &[1, 51, 12], 10);
        check(
            Requirements { years: 1, regions: 1, workers_per_region: 1, burst_per_ms: 1 },
            &[1, 51, 12],
            27,
        );
        check(Requirements { years: 69, ..DEFAULT }, &[1, 41, 2, 8, 12], 0);
    }

    /// What does not fit says by how much, and what each way out costs, the cheapest first.
    #[test]
    fn over() {
        let check = |needs: Requirements, message: &str| {
            assert_eq!(needs.derive(0).unwrap_err().to_string(), message);
        };
        check(
            Requirements { regions: 5, ..DEFAULT },
            "1 bit over the 63 that an ID has: make do with 4 regions instead of 5, or with 2048 IDs a worker a \
             millisecond instead of 3000, or with 128 workers a region instead of 200, or with 34.8 years instead of \
             69.7 (60 are asked for)",
        );
        check(
            Requirements { years: 70, ..DEFAULT },
            "1 bit over the 63 that an ID has: make do with 69.7 years instead of 139.4 (70 are asked for), or with \
             2048 IDs a worker a millisecond instead of 3000, or with 128 workers a region instead of 200, or with 2 \
             regions instead of 4",
        );
        check(
            Requirements { years: 60, regions: 1, workers_per_region: u32::MAX, burst_per_ms: u32::MAX },
            "42 bits over the 63 that an ID has: no requirement alone can give so many; lower several",
        );
        check(
            Requirements {
                years: u32::MAX,
                regions: u32::MAX,
                workers_per_region: u32::MAX,
                burst_per_ms: u32::MAX,
            },
            "97 bits over the 63 that an ID has: no requirement alone can give so many; lower several",
        );
        check(Requirements { regions: 0, ..DEFAULT }, "0 regions are asked for; ask for 1 or more");
        check(Requirements { years: 0, ..DEFAULT }, "0 years are asked for; ask for 1 or more");
    }

    /// A layout against requirements: the sharded preset fails the burst, and says what it holds.
    #[test]
    fn checks() {
        let check = |layout: Layout, passes: bool, said: [&str; 4]| {
            let check = DEFAULT.check(&layout);
            assert_eq!(check.passes(), passes);
            assert_eq!(check.margins().map(|margin| margin.to_string()), said);
        };
        check(
            Layout::SNOWMINT,
            true,
            [
                "60 years asked for, 69.7 held",
                "4 regions asked for, 4 held",
                "200 workers a region asked for, 256 held",
                "3000 IDs a worker a millisecond asked for, 4096 held",
            ],
        );
        check(
            Layout::SHARDED,
            false,
            [
                "60 years asked for, 69.7 held",
                "4 regions asked for, 4 held",
                "200 workers a region asked for, 256 held",
                "3000 IDs a worker a millisecond asked for, 256 held: too few",
            ],
        );
        check(
            crate::Scheme::named("sonyflake_v1").unwrap().layout,
            false,
            [
                "60 years asked for, 174.2 held",
                "4 regions asked for, 1 held: too few",
                "200 workers a region asked for, 65536 held",
                "3000 IDs a worker a millisecond asked for, 25 held: too few",
            ],
        );
    }

    proptest! {
        /// What is derived holds what was asked for; what is not derived fits once a way out is taken.
        #[test]
        fn derive_or_a_way_out(
            years in 1_u32..2_000, regions in 1_u32..100, workers in 1_u32..100_000, burst in 1_u32..100_000,
        ) {
            let needs = Requirements { years, regions, workers_per_region: workers, burst_per_ms: burst };
            match needs.derive(0) {
                Ok(derived) => {
                    prop_assert!(derived.check.passes());
                    prop_assert_eq!(derived.layout.check_mints(), Ok(()));
                }
                Err(RequirementsError::Over(shortfall)) => {
                    for way in shortfall.ways() {
                        let mut less = needs;
                        let left = u32::try_from(way.left).unwrap_or(u32::MAX);
                        match way.need {
                            Need::Years => less.years = u32::try_from(way.left / MS_PER_YEAR).unwrap(),
                            Need::Regions => less.regions = left,
                            Need::Workers => less.workers_per_region = left,
                            Need::Burst => less.burst_per_ms = left,
                        }
                        if less.years > 0 {
                            prop_assert!(less.derive(0).is_ok(), "{way}");
                        }
                    }
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
