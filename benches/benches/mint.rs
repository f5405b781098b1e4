//! What a mint costs: native core beside the component in wasmtime, by single IDs and by runs; and a start.
//!
//! The clock of every row is the machine's, read through the same port, but where a row says that it stands still or
//! moves by itself: a full tick would be a wait, so those rows move time on whenever a tick is used up.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{SystemTime, UNIX_EPOCH};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use snowmint::Engine;
use snowmint_core::{
    AtomicGenerator, Bounds, Grant, Layout, LeaseError, MarkError, Minter, Node, Policy, Ports,
};

/// Ports that read the machine's clock each time, as a host does, and add to it whenever the tick that it gave last
/// is used up, so that nothing ever waits.
struct Free {
    grant: Option<Grant>,
    /// How many IDs the tick has left.
    left: u32,
    want: u32,
    ahead_ms: u64,
    /// Whether every read is a new tick, so that all ports are asked each time.
    fresh: bool,
}

impl Free {
    fn new(want: u32, fresh: bool) -> Self {
        let grant = Some(Grant::new(Node::new(0, 0), 1, 0));
        Self { grant, left: 0, want, ahead_ms: 0, fresh }
    }
}

fn machine_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

impl Ports for Free {
    fn now_ms(&mut self) -> u64 {
        let now_ms = black_box(machine_ms());
        if self.left < self.want || self.fresh {
            self.left = 4_096;
            self.ahead_ms += 1;
        }
        self.left -= self.want;
        // A tick stands until it is used up, whatever the machine's clock did meanwhile.
        1_800_000_000_000 + self.ahead_ms + (now_ms & 0)
    }

    fn error_bound_ms(&mut self) -> u32 {
        black_box(0)
    }

    fn take(&mut self) -> Result<Grant, LeaseError> {
        self.grant.take().ok_or(LeaseError::AlreadyTaken)
    }

    fn ceiling_ms(&mut self, _ticket: u64) -> u64 {
        black_box(u64::MAX)
    }

    fn recover(&mut self, _ticket: u64) -> Result<Option<u64>, MarkError> {
        Ok(None)
    }

    fn reserve(&mut self, _ticket: u64, until_ms: u64) -> u64 {
        until_ms
    }
}

fn mint(c: &mut Criterion) {
    let layout = Layout::SNOWMINT;
    let policy = Policy::CLASSIC;
    let engine = Engine::new(None).unwrap();
    for (name, want, fresh) in [
        ("one ID, clock only", 1, false),
        ("one ID, all ports", 1, true),
        ("run of 256", 256, false),
        ("run of 4096", 4_096, true),
    ] {
        let mut group = c.benchmark_group(name);
        group.throughput(Throughput::Elements(u64::from(want)));
        group.bench_function("native core", |b| {
            let mut minter = Minter::start(layout, policy, Free::new(want, fresh)).unwrap();
            b.iter(|| minter.mint(black_box(want)).unwrap());
        });
        group.bench_function("component", |b| {
            let mut instance = engine.start(&layout, &policy, Box::new(Free::new(want, fresh))).unwrap();
            if want == 1 {
                b.iter(|| instance.next_id().unwrap());
            } else {
                b.iter(|| instance.mint(black_box(want)).unwrap());
            }
        });
        group.finish();
    }
}

fn shared(c: &mut Criterion) {
    let layout = Layout::SNOWMINT;
    let mut group = c.benchmark_group("run of 256, shared cursor");
    group.throughput(Throughput::Elements(256));
    group.bench_function("native core", |b| {
        let grant = Grant::new(Node::new(0, 0), 1, 0);
        let generator = AtomicGenerator::new(layout, grant, Policy::CLASSIC).unwrap();
        let mut ports = Free::new(256, false);
        let want = NonZeroU32::new(256).unwrap();
        b.iter(|| generator.mint(ports.now_ms(), &Bounds::OPEN, want).unwrap());
    });
    group.finish();
}

fn start(c: &mut Criterion) {
    let engine = Engine::new(None).unwrap();
    let mut group = c.benchmark_group("start");
    group.bench_function("instantiate", |b| {
        b.iter(|| engine.instantiate(Box::new(Free::new(1, true))).unwrap());
    });
    group.bench_function("instantiate, start and the first ID", |b| {
        b.iter(|| {
            let ports = Box::new(Free::new(1, true));
            let mut instance = engine.start(&Layout::SNOWMINT, &Policy::CLASSIC, ports).unwrap();
            instance.next_id().unwrap()
        });
    });
    group.finish();
}

criterion_group!(benches, mint, shared, start);
criterion_main!(benches);
