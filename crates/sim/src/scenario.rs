//! What kind of world a seed makes.

use snowmint_core::{Layout, Policy};

use crate::{Rng, Shape, Step};

/// What may befall somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process stands still: a stop signal, a virtual machine that is moved, a machine that sleeps.
    Pause,
    /// A process is killed; another begins later.
    Crash,
    /// A process gives its code back, and goes on or ends.
    Release,
    /// A process is copied with its memory, and both go on.
    Clone,
    /// A host, or a whole region, cannot reach the lease store.
    Cut,
    /// The store answers with errors.
    StoreError,
    /// A backup of a store is made.
    Backup,
    /// A store is put back from a backup, and recovered.
    Restore,
    /// An operator fences a code.
    Fence,
    /// An operator frees what can be freed.
    Tidy,
    /// A code record is deleted; the store is restored a while later.
    Delete,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Pause,
        Self::Crash,
        Self::Release,
        Self::Clone,
        Self::Cut,
        Self::StoreError,
        Self::Backup,
        Self::Restore,
        Self::Fence,
        Self::Tidy,
        Self::Delete,
    ];
}

/// How the network to a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The shortest way, in microseconds.
    pub way_us_min: u64,
    /// The longest ordinary way.
    pub way_us_max: u64,
    /// Of 1,000 messages, how many are lost.
    pub lost_per_mille: u64,
    /// Of 1,000 messages, how many come late: up to four windows.
    pub late_per_mille: u64,
    /// Of 1,000 replies, how many come twice.
    pub doubled_per_mille: u64,
}

/// What the wall clocks of a world are like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clocks {
    /// Each host's has a fault of its own.
    Random,
    /// All are right but for this, of which their error bounds do not tell.
    All(Shape),
    /// All are right but that of the first worker of each region, which is set at this moment, by this much, and does not
    /// tell.
    OneSet(Step),
}

/// How much is asked of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// How often it is asked, in microseconds.
    pub every_us: u64,
    /// How many runs it is asked for then, at most.
    pub runs: u32,
    /// How many IDs a run has at most.
    pub ids_max: u32,
    /// Whether every run is that long.
    pub is_even: bool,
}

/// A world before it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The seed of everything that is left to chance.
    pub seed: u64,
    /// The layout, also of the nodes that are fixed.
    pub layout: Layout,
    /// The layout to cut over to half-way.
    pub next_layout: Option<Layout>,
    /// How many regions lease, each with a store of its own.
    pub regions: u32,
    /// How many workers lease in a region.
    pub leased: u32,
    /// How many workers have a fixed node, in the region after the last that leases.
    pub fixed: u32,
    /// The policy of every generator.
    pub policy: Policy,
    /// The window of every lease, in milliseconds.
    pub window_ms: u32,
    /// How long the world lasts, in milliseconds.
    pub run_ms: u64,
    /// What is asked of a worker.
    pub load: Load,
    /// The networks.
    pub network: Network,
    /// The wall clocks.
    pub clocks: Clocks,
    /// Whether every keeper compares its clock with its peers'.
    pub compares_clocks: bool,
    /// Of 1,000 mints, how many are held up between the check of the bounds and the issue.
    pub held_up_per_mille: u64,
    /// Of 1,000 mints, how many observe somebody else's ID first.
    pub observe_per_mille: u64,
    /// How long it is between faults on average, in milliseconds. 0: there are none.
    pub fault_every_ms: u64,
    /// Which faults there are.
    pub faults: Vec<Fault>,
}

/// Eight hours in microseconds.
const HOURS_8_US: i64 = 8 * 3_600 * 1_000_000;

/// Unix milliseconds at the beginning of every world.
pub const BEGIN_MS: u64 = 1_750_000_000_000;

fn layout(text: &str) -> Layout {
    text.parse().unwrap_or(Layout::SNOWMINT)
}

impl Scenario {
    /// A quiet world: right clocks, a network of half a millisecond, no faults.
    pub fn quiet(seed: u64) -> Self {
        Self {
            seed,
            layout: Layout::SNOWMINT,
            next_layout: None,
            regions: 1,
            leased: 3,
            fixed: 0,
            policy: Policy::CLASSIC,
            window_ms: 1_000,
            run_ms: 10_000,
            load: Load { every_us: 1_000, runs: 1, ids_max: 4_096, is_even: false },
            network: Network {
                way_us_min: 200,
                way_us_max: 800,
                lost_per_mille: 0,
                late_per_mille: 0,
                doubled_per_mille: 0,
            },
            clocks: Clocks::All(Shape::Steady),
            compares_clocks: false,
            held_up_per_mille: 0,
            observe_per_mille: 0,
            fault_every_ms: 0,
            faults: Vec::new(),
        }
    }

    /// The world of a seed, with faults. Each seed draws which kinds of fault it has at all: a run in which one kind
    /// is frequent reaches what a run with a little of everything does not ("Swarm testing", Groce and others, 2012).
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5ce0_a210);
        let field = "epoch-ms:1735689600000";
        let workers = rng.between(1, 3);
        let spare = 9 - workers;
        let classic = format!("reserved:{spare} timestamp:41 region:2 worker:{workers} sequence:12 {field}");
        let hybrid = format!("reserved:{spare} timestamp:41 sequence:12 region:2 worker:{workers} {field}");
        let (layout, next_layout) = match rng.below(8) {
            0..=2 => (layout(&format!("{classic} tick-ns:1000000")), None),
            3..=4 => (layout(&format!("{hybrid} tick-ns:1000000")), None),
            5..=6 => (layout(&format!("{classic} tick-ns:10000000")), None),
            _ => {
                let next = format!(
                    "reserved:{spare} timestamp:41 region:2 worker:{} sequence:11 {field} tick-ns:1000000",
                    workers + 1
                );
                (layout(&format!("{classic} tick-ns:1000000")), Some(layout(&next)))
            }
        };
        let window_ms = u32::try_from(rng.pick(&[60, 300, 1_000]).copied().unwrap_or(300)).unwrap_or(300);
        let lead_ms = rng.pick(&[0, 0, 20, 1_000]).copied().unwrap_or(0);
        let policy = Policy {
            clock_error_ms_max: rng.pick(&[10, u32::MAX]).copied().unwrap_or(10),
            spread: rng.chance(300) && Policy { spread: true, ..Policy::CLASSIC }.check(&layout).is_ok(),
            ..Policy::CLASSIC.with_lead_ms(lead_ms)
        };
        let faults = if next_layout.is_some() {
            // A restore would bring the old layout back: an operator who cuts over does not do both at once.
            let all = [Fault::Pause, Fault::Crash, Fault::Release, Fault::Cut, Fault::Fence, Fault::Tidy];
            all.into_iter().filter(|_| rng.chance(500)).collect()
        } else {
            Fault::ALL.into_iter().filter(|_| rng.chance(500)).collect()
        };
        let top_us = u64::from(window_ms) * 1_000;
        let run_ms = u64::from(window_ms) * rng.between(15, 40);
        // Eight hours ahead: from the beginning, or some time later.
        let at_us = if rng.chance(500) { 0 } else { rng.below(run_ms * 1_000) };
        let set = Step { at_us, by_us: HOURS_8_US };
        Self {
            seed,
            layout,
            next_layout,
            regions: u32::try_from(rng.between(1, 2)).unwrap_or(1),
            leased: u32::try_from(rng.between(1, (1 << workers) + 2)).unwrap_or(1),
            fixed: u32::try_from(rng.below(3)).unwrap_or(0).min((1 << workers) - 1),
            policy,
            window_ms,
            run_ms,
            load: Load {
                every_us: rng.between(1_000, top_us / 20),
                runs: u32::try_from(rng.between(1, 3)).unwrap_or(1),
                ids_max: u32::try_from(rng.skewed(1, 8_192)).unwrap_or(1),
                is_even: false,
            },
            network: Network {
                way_us_min: rng.between(50, 1_000),
                way_us_max: rng.between(1_000, top_us / 8),
                lost_per_mille: rng.pick(&[0, 0, 20, 200]).copied().unwrap_or(0),
                late_per_mille: rng.pick(&[0, 0, 20, 200]).copied().unwrap_or(0),
                doubled_per_mille: rng.pick(&[0, 50]).copied().unwrap_or(0),
            },
            clocks: match rng.below(8) {
                0 => Clocks::All(Shape::Steady),
                1 => Clocks::OneSet(set),
                _ => Clocks::Random,
            },
            compares_clocks: rng.chance(500),
            held_up_per_mille: rng.pick(&[0, 5, 50]).copied().unwrap_or(0),
            observe_per_mille: rng.pick(&[0, 20, 200]).copied().unwrap_or(0),
            fault_every_ms: u64::from(window_ms) * rng.between(1, 4) / 2,
            faults,
        }
    }
}
