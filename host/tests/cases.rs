//! The table of cases through the component in wasmtime: the same rows, the same refusals as core's.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use snowmint::{Engine, Instance, InstanceError, Lifecycle};
use snowmint_core::{Id, Layout, MintError, Node, ObserveError, Policy, Run};

#[path = "../../crates/core/tests/cases/mod.rs"]
mod table;

use table::{Face, World};

/// An instance whose engine must not fail: any trap fails the test.
struct InComponent(Instance);

fn core<T, E: std::fmt::Debug>(result: Result<T, InstanceError<E>>) -> Result<T, E> {
    result.map_err(|error| match error {
        InstanceError::Core(error) => error,
        other => panic!("not one of core's errors: {other:?}"),
    })
}

impl Face for InComponent {
    fn mint(&mut self, max: u32) -> Result<Run, MintError> {
        core(self.0.mint(max))
    }

    fn observe(&mut self, id: Id) -> Result<(), ObserveError> {
        core(self.0.observe(id))
    }

    fn stop(&mut self) -> Option<u64> {
        self.0.stop().unwrap()
    }
}

/// The same by the component's other two ways to mint: `next` for one, `batch` for more.
struct ByLists(Instance);

impl Face for ByLists {
    fn mint(&mut self, max: u32) -> Result<Run, MintError> {
        if max == 1 {
            let id = core(self.0.next_id())?;
            return Ok(Run::new(id, 1, 1.try_into().unwrap()).unwrap());
        }
        let ids = core(self.0.batch(max.min(65_536)))?;
        let stride = ids.get(1).map_or(1, |second| second - ids[0]);
        assert!(ids.windows(2).all(|pair| pair[1] - pair[0] == stride));
        Ok(Run::new(Id::new(ids[0]), stride, u32::try_from(ids.len()).unwrap().try_into().unwrap()).unwrap())
    }

    fn observe(&mut self, id: Id) -> Result<(), ObserveError> {
        core(self.0.observe(id))
    }

    fn stop(&mut self) -> Option<u64> {
        self.0.stop().unwrap()
    }
}

#[test]
fn the_component_answers_the_table() {
    let engine = Engine::new(None).unwrap();
    table::check_all(&move |layout, policy, world| {
        Ok(Box::new(InComponent(core(engine.start(layout, policy, Box::new(world)))?)))
    });
}

#[test]
fn the_component_answers_the_table_by_lists() {
    let engine = Engine::new(None).unwrap();
    table::check_all(&move |layout, policy, world| {
        Ok(Box::new(ByLists(core(engine.start(layout, policy, Box::new(world)))?)))
    });
}

/// Calls in the wrong order are typed refusals, and the instance goes on: no trap ever (F16).
#[test]
fn calls_in_the_wrong_order_are_refused() {
    let engine = Engine::new(None).unwrap();
    let world = World::new(Node::new(0, 0), 0);
    let mut instance = engine.instantiate(Box::new(world)).unwrap();

    let not_started = Lifecycle::NotStarted;
    assert!(matches!(instance.mint(1), Err(InstanceError::Lifecycle(error)) if error == not_started));
    assert!(matches!(instance.next_id(), Err(InstanceError::Lifecycle(error)) if error == not_started));
    assert!(matches!(instance.batch(1), Err(InstanceError::Lifecycle(error)) if error == not_started));
    assert!(
        matches!(instance.observe(Id::new(1)), Err(InstanceError::Lifecycle(error)) if error == not_started)
    );
    assert_eq!(instance.stop().unwrap(), None);
    assert_eq!(instance.status().unwrap(), None);

    // A configuration at fault takes nothing; then the right one starts.
    let wrong = Policy { mark_window_ms: 0, ..Policy::CLASSIC };
    assert!(instance.start(&Layout::SNOWMINT, &wrong).is_err());
    instance.start(&Layout::SNOWMINT, &Policy::CLASSIC).unwrap();
    let again = instance.start(&Layout::SNOWMINT, &Policy::CLASSIC);
    assert!(matches!(again, Err(InstanceError::Lifecycle(Lifecycle::AlreadyStarted))));

    // Lists are bounded; runs are not.
    assert!(matches!(instance.batch(65_537), Err(InstanceError::CountAbove(65_536))));
    assert!(matches!(instance.batch(u32::MAX), Err(InstanceError::CountAbove(65_536))));
    assert!(matches!(instance.batch(0), Err(InstanceError::Core(MintError::ZeroCount))));
    assert_eq!(instance.mint(u32::MAX).unwrap().count(), 4_096);

    let status = instance.status().unwrap().unwrap();
    assert_eq!((status.node, status.ticket, status.last_reserved_ms), (Node::new(0, 0), 7, Some(table::T)));
    assert_eq!(instance.stop().unwrap(), Some(table::T));
    assert_eq!(instance.status().unwrap().unwrap().last_reserved_ms, None);
}

/// 4 regions of 200 workers in one frozen millisecond, every sequence of each: fields in range, all different. 800
/// instances at once, one memory each.
#[test]
fn eight_hundred_workers_in_one_millisecond_are_all_different() {
    let engine = Engine::new(None).unwrap();
    let layout = Layout::SNOWMINT;
    let mut ids = Vec::with_capacity(800 * 4_096);
    let mut instances = Vec::new();
    for (region, worker) in (0..4).flat_map(|region| (0..200).map(move |worker| (region, worker))) {
        let world = World::new(layout.node(region, worker).unwrap(), 0);
        let mut instance = engine.start(&layout, &Policy::CLASSIC, Box::new(world)).unwrap();
        let run = instance.mint(u32::MAX).unwrap();
        assert_eq!(run.count(), 4_096);
        for id in run {
            let parts = layout.decode(id);
            assert_eq!((parts.region, parts.worker), (u64::from(region), u64::from(worker)));
            assert!(!parts.reserved);
            ids.push(id);
        }
        instances.push(instance);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4 * 200 * 4_096);
}
