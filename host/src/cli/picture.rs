//! A layout as a picture of its bits.

use std::fmt;

use snowmint_core::{ID_BITS, Id, Layout};

/// The bits of an ID, or of any ID, grouped by field, with the fields' names below: two lines, no end of line.
pub(super) struct Picture<'a> {
    pub(super) layout: &'a Layout,
    pub(super) id: Option<Id>,
    /// What every line begins with.
    pub(super) indent: &'static str,
}

impl fmt::Display for Picture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shift = ID_BITS;
        f.write_str(self.indent)?;
        for (nth, field) in self.layout.fields().iter().enumerate() {
            if nth > 0 {
                f.write_str(" ")?;
            }
            shift -= field.bits();
            let bits = field.bits() as usize;
            match self.id {
                Some(id) => write!(f, "{:0bits$b}", (id.get() >> shift) & field.value_max())?,
                None => write!(f, "{:-<bits$}", "")?,
            }
        }
        writeln!(f)?;
        f.write_str(self.indent)?;
        for (nth, field) in self.layout.fields().iter().enumerate() {
            let bits = field.bits() as usize;
            let last = nth + 1 == self.layout.fields().len();
            // A name wider than its field is cut: the table has it in full.
            match (nth > 0, last) {
                (true, true) => write!(f, " {:.bits$}", field.name())?,
                (true, false) => write!(f, " {:<bits$.bits$}", field.name())?,
                (false, true) => write!(f, "{:.bits$}", field.name())?,
                (false, false) => write!(f, "{:<bits$.bits$}", field.name())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures() {
        let of = |id| Picture { layout: &Layout::SNOWMINT, id, indent: "  " }.to_string();
        assert_eq!(
            of(Some(Id::new((5 << 22) | (3 << 20) | (7 << 12) | 1))),
            "  0 00000000000000000000000000000000000000101 11 00000111 000000000001\n\
             \x20 r timestamp                                 re worker   sequence"
        );
        assert!(of(None).starts_with("  - -----------------------------------------"));
    }
}
