//! The table of cases through core itself.

use snowmint_core::{Id, MintError, Minter, ObserveError, Run};

#[path = "cases/mod.rs"]
mod table;

use table::{Face, World};

impl Face for Minter<World> {
    fn mint(&mut self, max: u32) -> Result<Run, MintError> {
        self.mint(max)
    }

    fn observe(&mut self, id: Id) -> Result<(), ObserveError> {
        self.observe(id)
    }

    fn stop(&mut self) -> Option<u64> {
        self.stop()
    }
}

#[test]
fn core_answers_the_table() {
    table::check_all(&|layout, policy, world| Ok(Box::new(Minter::start(*layout, *policy, world)?)));
}
