//! Whether two stores would make the same IDs: what regions tell each other of themselves.

use std::fmt;

use snowmint_core::Layout;

use crate::ClusterRecord;

/// What tells one region's store from another's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The store's own number.
    pub uuid: u128,
    /// The region that its codes belong to.
    pub region: u32,
    /// The layout that it is minted by.
    pub layout: Layout,
    /// The layouts before it.
    pub former: Vec<Layout>,
}

impl Identity {
    /// Of a store with this cluster record.
    pub fn of(cluster: &ClusterRecord) -> Self {
        let former = cluster.former.iter().map(|former| former.layout).collect();
        Self { uuid: cluster.uuid, region: cluster.region, layout: cluster.layout, former }
    }

    /// Whether both are of one line of layouts: the same, or one has followed the other. Regions are not cut over at the
    /// same moment.
    fn is_akin(&self, other: &Self) -> bool {
        self.layout == other.layout
            || self.former.contains(&other.layout)
            || other.former.contains(&self.layout)
    }
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
        (true, true) | (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_clash_by_store_region_and_layout() {
        // Shows each pair of stores that would make the same IDs, and those that would not.
        let [snowmint, hybrid, sharded] =
            ["snowmint", "hybrid", "sharded"].map(|name| Layout::preset(name).unwrap());
        let of = |uuid, region, layout, former: &[Layout]| Identity {
            uuid,
            region,
            layout,
            former: former.to_vec(),
        };
        let own = of(1, 0, hybrid, &[snowmint]);
        for (peer, expected) in [
            (own.clone(), None),
            (of(2, 1, hybrid, &[snowmint]), None),
            (of(2, 1, hybrid, &[]), None),
            // Not cut over yet, or already further.
            (of(2, 1, snowmint, &[]), None),
            (of(2, 1, sharded, &[snowmint, hybrid]), None),
            // Another service over the same store that has not read the cut-over yet.
            (of(1, 0, snowmint, &[]), None),
            (of(2, 0, hybrid, &[snowmint]), Some(Clash::SameRegion { region: 0, uuid: 2 })),
            (of(2, 0, snowmint, &[]), Some(Clash::SameRegion { region: 0, uuid: 2 })),
            (of(1, 1, hybrid, &[snowmint]), Some(Clash::SameStore { uuid: 1, region: 1 })),
            (of(2, 1, sharded, &[]), Some(Clash::OtherLayout { layout: sharded.to_string() })),
            (of(2, 0, sharded, &[]), Some(Clash::OtherLayout { layout: sharded.to_string() })),
        ] {
            assert_eq!(clash(&own, &peer), expected, "{peer:?}");
            let back = clash(&peer, &own).map(|clash| std::mem::discriminant(&clash));
            assert_eq!(back, expected.as_ref().map(std::mem::discriminant), "both sides see it: {peer:?}");
        }
    }
}
