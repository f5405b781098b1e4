//! Whether two stores would make the same IDs: what regions tell each other of themselves.

use std::fmt;

use snowmint_core::{Layout, Role};

use crate::{ClusterRecord, FormerLayout};

/// What tells one region's store from another's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The store's own number.
    pub uuid: u128,
    /// The region that its codes belong to.
    pub region: u32,
    /// The layout that it is minted by.
    pub layout: Layout,
    /// The last Unix millisecond of a planned cut-over from it.
    pub cutover_last_ms: Option<u64>,
    /// The layouts before it, each with its last millisecond.
    pub former: Vec<FormerLayout>,
}

/// Until when a store is minted from by a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// Nobody has planned an end.
    Open,
    /// Its last Unix millisecond.
    Ms(u64),
}

impl Identity {
    /// Of a store with this cluster record.
    pub fn of(cluster: &ClusterRecord) -> Self {
        let ClusterRecord { uuid, region, layout, cutover_last_ms, ref former, .. } = *cluster;
        Self { uuid, region, layout, cutover_last_ms, former: former.clone() }
    }

    /// Until when it is minted from by this layout; `None`: it never was, as far as it tells.
    fn until(&self, layout: &Layout) -> Option<Until> {
        if self.layout == *layout {
            return Some(self.cutover_last_ms.map_or(Until::Open, Until::Ms));
        }
        let former = self.former.iter().find(|former| former.layout == *layout)?;
        Some(Until::Ms(former.last_ms))
    }

    /// Whether both are of one line of layouts: the same, or one has followed the other. Regions are not cut over at the
    /// same moment.
    fn is_akin(&self, other: &Self) -> bool {
        self.until(&other.layout).is_some() || other.until(&self.layout).is_some()
    }

    /// The layout by which this store may still stamp what `other` stamps by a later one, and the ends of both.
    fn overlap(&self, other: &Self) -> Option<(Until, u64)> {
        if self.layout == other.layout || keeps_regions_apart(&self.layout, &other.layout) {
            return None;
        }
        match (self.until(&self.layout)?, other.until(&self.layout)?) {
            (until, Until::Ms(other_ms)) if until == Until::Open || until > Until::Ms(other_ms) => {
                Some((until, other_ms))
            }
            _ => None,
        }
    }
}

impl PartialOrd for Until {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        let ms = |until: &Self| match until {
            Self::Open => u64::MAX,
            Self::Ms(ms) => *ms,
        };
        ms(self).partial_cmp(&ms(other))
    }
}

/// Whether IDs of different regions differ by their region's bits alone, also when one is of the one layout and the other of
/// the other: the region's field has the same place and width in both. Where it has not, an ID of one region by the old
/// layout can be one of another region by the new layout, and all regions MUST leave the old layout at the same millisecond.
pub fn keeps_regions_apart(one: &Layout, other: &Layout) -> bool {
    let place = |layout: &Layout| {
        let bits = layout.bits(Role::Region);
        let below = layout.fields().iter().rev().take_while(|field| field.role() != Role::Region);
        (bits, below.map(|field| field.bits()).sum::<u32>())
    };
    // Without regions there is but one store.
    (one.regions() == 1 && other.regions() == 1) || place(one) == place(other)
}

/// That two stores would make the same IDs, or might. Nothing is minted until it is set right.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Clash {
    /// Two stores for one region.
    SameRegion {
        /// The region.
        region: u32,
        /// The other store's number.
        uuid: u128,
    },
    /// One store under two regions' names: a copy that was told another region.
    SameStore {
        /// The number of both.
        uuid: u128,
        /// The other's region.
        region: u32,
    },
    /// Layouts of which neither has followed the other: a number that is an ID in both.
    OtherLayout {
        /// The other's, in its canonical text.
        layout: String,
    },
    /// The two leave a layout at different times, and in between an ID by the old one can be another region's by the new
    /// one.
    OtherEnd {
        /// The layout, in its canonical text.
        layout: String,
        /// The last Unix millisecond of the one that stays longer; `None`: no end is planned.
        last_ms: Option<u64>,
        /// The last Unix millisecond of the other.
        other_last_ms: Option<u64>,
    },
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameRegion { region, uuid } => write!(
                f,
                "another store ({uuid:032x}) mints for region {region} too, and both would make the same IDs: give one of \
                 them another region, or stop it"
            ),
            Self::SameStore { uuid, region } => write!(
                f,
                "the store {uuid:032x} mints for region {region} elsewhere: one of the two is a copy; recover it with \
                 `snowmint init --recover`, or stop it"
            ),
            Self::OtherLayout { layout } => write!(
                f,
                "another region mints by the layout `{layout}`, which has nothing to do with this one: the same number \
                 would be an ID of both; correct `--peer` or the layout"
            ),
            Self::OtherEnd { layout, last_ms, other_last_ms } => {
                let shown = |last_ms: &Option<u64>| {
                    last_ms.map_or_else(
                        || String::from("no planned end"),
                        |last_ms| format!("{last_ms} (Unix ms)"),
                    )
                };
                write!(
                    f,
                    "one region leaves the layout `{layout}` at {}, and another at {}: in between, IDs of the one are IDs \
                     of the other; plan the later time in every region, scan each, and open only then",
                    shown(last_ms),
                    shown(other_last_ms)
                )
            }
        }
    }
}

impl std::error::Error for Clash {}

/// Whether this store and a peer's would make the same IDs. `None` for another service over the same store.
pub fn clash(own: &Identity, peer: &Identity) -> Option<Clash> {
    match (own.uuid == peer.uuid, own.region == peer.region) {
        (true, false) => Some(Clash::SameStore { uuid: peer.uuid, region: peer.region }),
        (false, _) if !own.is_akin(peer) => Some(Clash::OtherLayout { layout: peer.layout.to_string() }),
        (false, true) => Some(Clash::SameRegion { region: peer.region, uuid: peer.uuid }),
        (false, false) => {
            let (layout, overlap) = match own.overlap(peer) {
                Some(overlap) => (&own.layout, overlap),
                None => (&peer.layout, peer.overlap(own)?),
            };
            let last_ms = match overlap.0 {
                Until::Open => None,
                Until::Ms(last_ms) => Some(last_ms),
            };
            Some(Clash::OtherEnd { layout: layout.to_string(), last_ms, other_last_ms: Some(overlap.1) })
        }
        (true, true) => None,
    }
}

/// Whether this store may leave its layout for `next` as planned, as far as a peer's is concerned: either regions stay apart
/// all the while, or the peer leaves it at the very same millisecond.
pub fn check_cutover(own: &Identity, next: &Layout, peer: &Identity) -> Result<(), Clash> {
    if own.uuid == peer.uuid || own.layout == *next || keeps_regions_apart(&own.layout, next) {
        return Ok(());
    }
    let other_last_ms = match peer.until(&own.layout) {
        Some(Until::Ms(last_ms)) if Some(last_ms) == own.cutover_last_ms => return Ok(()),
        Some(Until::Ms(last_ms)) => Some(last_ms),
        Some(Until::Open) | None => None,
    };
    Err(Clash::OtherEnd { layout: own.layout.to_string(), last_ms: own.cutover_last_ms, other_last_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: u64 = 1_900_000_000_000;

    fn of(
        uuid: u128,
        region: u32,
        layout: Layout,
        planned: Option<u64>,
        former: &[(Layout, u64)],
    ) -> Identity {
        let former = former.iter().map(|&(layout, last_ms)| FormerLayout { layout, last_ms });
        Identity { uuid, region, layout, cutover_last_ms: planned, former: former.collect() }
    }

    fn presets() -> [Layout; 3] {
        ["snowmint", "hybrid", "sharded"].map(|name| Layout::preset(name).unwrap())
    }

    #[test]
    fn regions_clash_by_store_region_and_layout() {
        // Shows each pair of stores that would make the same IDs, and those that would not.
        let [snowmint, hybrid, sharded] = presets();
        let own = of(1, 0, hybrid, None, &[(snowmint, T)]);
        let end =
            |last_ms| Some(Clash::OtherEnd { layout: snowmint.to_string(), last_ms, other_last_ms: Some(T) });
        for (peer, expected) in [
            (own.clone(), None),
            (of(2, 1, hybrid, None, &[(snowmint, T)]), None),
            // Founded for the new layout.
            (of(2, 1, hybrid, None, &[]), None),
            // On its way to the same end, or past it before.
            (of(2, 1, snowmint, Some(T), &[]), None),
            (of(2, 1, snowmint, Some(T - 5), &[]), None),
            // Left behind: an ID of region 1 by the old layout can be one of region 0 by the new one.
            (of(2, 1, snowmint, None, &[]), end(None)),
            (of(2, 1, snowmint, Some(T + 1), &[]), end(Some(T + 1))),
            // Another service over the same store that has not read the cut-over yet.
            (of(1, 0, snowmint, None, &[]), None),
            (of(2, 0, hybrid, None, &[(snowmint, T)]), Some(Clash::SameRegion { region: 0, uuid: 2 })),
            (of(2, 0, snowmint, None, &[]), Some(Clash::SameRegion { region: 0, uuid: 2 })),
            (of(1, 1, hybrid, None, &[]), Some(Clash::SameStore { uuid: 1, region: 1 })),
            (of(2, 1, sharded, None, &[]), Some(Clash::OtherLayout { layout: sharded.to_string() })),
            (of(2, 0, sharded, None, &[]), Some(Clash::OtherLayout { layout: sharded.to_string() })),
        ] {
            assert_eq!(clash(&own, &peer), expected, "{peer:?}");
            let back = clash(&peer, &own).map(|clash| std::mem::discriminant(&clash));
            assert_eq!(back, expected.as_ref().map(std::mem::discriminant), "both sides see it: {peer:?}");
        }
    }

    #[test]
    fn a_cutover_is_opened_only_where_every_region_leaves_at_the_same_millisecond() {
        // Shows when a peer holds an opening back, and that it does not where regions keep their bits.
        let [snowmint, hybrid, sharded] = presets();
        let own = of(1, 0, snowmint, Some(T), &[]);
        for (next, peer, is_allowed) in [
            (hybrid, of(2, 1, snowmint, Some(T), &[]), true),
            (hybrid, of(2, 1, hybrid, None, &[(snowmint, T)]), true),
            (hybrid, of(1, 0, snowmint, None, &[]), true),
            (hybrid, of(2, 1, snowmint, None, &[]), false),
            (hybrid, of(2, 1, snowmint, Some(T + 1), &[]), false),
            (hybrid, of(2, 1, snowmint, Some(T - 1), &[]), false),
            (hybrid, of(2, 1, hybrid, None, &[(snowmint, T - 1)]), false),
            (hybrid, of(2, 1, sharded, None, &[]), false),
        ] {
            assert_eq!(check_cutover(&own, &next, &peer).is_ok(), is_allowed, "{peer:?}");
        }
        // A later epoch moves no bit.
        let later = Layout::new(snowmint.fields(), snowmint.epoch_unix_ms() - 86_400_000, snowmint.tick_ns())
            .unwrap();
        assert!(keeps_regions_apart(&snowmint, &later));
        assert!(check_cutover(&own, &later, &of(2, 1, snowmint, None, &[])).is_ok());
        assert!(!keeps_regions_apart(&snowmint, &hybrid));
        assert_eq!(clash(&of(1, 0, later, None, &[(snowmint, T)]), &of(2, 1, snowmint, None, &[])), None);
    }

    #[test]
    fn ids_of_two_regions_coincide_where_the_regions_bits_move() {
        // Shows why: an ID of region 0 by the old layout that is one of region 1 by the new layout.
        let [snowmint, hybrid, _] = presets();
        let id = snowmint.compose(5, snowmint.node(0, 7).unwrap(), 0x107).unwrap();
        let parts = hybrid.decode(id);
        assert_eq!((parts.tick, parts.region), (5, 1), "{parts:?}");
    }
}
