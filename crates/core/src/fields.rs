//! IDs by their fields, whatever the layout: what a reader shows, and what a writer of any scheme puts together.

use crate::{Field, FieldError, ID_BITS, Id, Layout, Role};

impl Layout {
    /// The fields of an ID with their values, from the most significant bit. Unlike [`Layout::decode`], which knows
    /// roles, this shows every field, also those that only the scheme's maker understands.
    ///
    /// ```
    /// use snowmint_core::{Layout, Role};
    ///
    /// let layout = Layout::SNOWMINT;
    /// let id = layout.compose(1_000, layout.node(3, 17)?, 5)?;
    /// let values: Vec<_> = layout.values(id).map(|(field, value)| (field.role(), value)).collect();
    /// assert_eq!(values[1], (Role::Timestamp, 1_000));
    /// assert_eq!(layout.compose_values(|field| layout.value(id, field.role()))?, id);
    /// # Ok::<(), snowmint_core::FieldError>(())
    /// ```
    pub fn values(&self, id: Id) -> impl Iterator<Item = (Field, u64)> {
        self.placed().map(move |(field, shift)| (field, (id.get() >> shift) & field.value_max()))
    }

    /// The value of the first field with this role; 0 where the layout has none.
    pub fn value(&self, id: Id, role: Role) -> u64 {
        self.values(id).find(|(field, _)| field.role() == role).map_or(0, |(_, value)| value)
    }

    /// Puts an ID together from a value for each field, which is asked for from the most significant bit. Every
    /// value is checked against its field, never masked; reserved bits take 0 only.
    pub fn compose_values(&self, mut value_of: impl FnMut(&Field) -> u64) -> Result<Id, FieldError> {
        let mut bits = 0;
        for (field, shift) in self.placed() {
            let value = value_of(&field);
            let max = if field.role() == Role::Reserved { 0 } else { field.value_max() };
            if value > max {
                return Err(FieldError { role: field.role(), value, max });
            }
            bits |= value << shift;
        }
        Ok(Id::new(bits))
    }

    /// The fields with how far each lies above the lowest bit.
    pub(crate) fn placed(&self) -> impl Iterator<Item = (Field, u32)> {
        let mut shift = ID_BITS;
        self.fields().iter().map(move |field| {
            shift -= field.bits();
            (*field, shift)
        })
    }

    /// The first field that differs between IDs of one tick although it stands above the timestamp.
    pub(crate) fn variable_above_timestamp(&self) -> Option<(Field, u32)> {
        self.placed()
            .take_while(|(field, _)| field.role() != Role::Timestamp)
            .find(|(field, _)| field.role() != Role::Reserved)
    }

    /// The bits that differ between IDs of one tick: all but the timestamp's and the reserved ones.
    pub(crate) fn variable_mask(&self) -> u64 {
        self.placed()
            .filter(|(field, _)| !matches!(field.role(), Role::Reserved | Role::Timestamp))
            .fold(0, |mask, (field, shift)| mask | (field.value_max() << shift))
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::NS_PER_MS;

    /// Any layout for decoding: 1 to 8 fields whose widths add up to 64, one of them the timestamp.
    fn any_layout() -> impl Strategy<Value = Layout> {
        let roles = [Role::Shard, Role::Region, Role::Worker, Role::Sequence, Role::Reserved, Role::Other];
        (
            proptest::sample::subsequence(roles.to_vec(), 1..=6).prop_shuffle(),
            proptest::collection::vec(1_u32..40, 7),
            any::<prop::sample::Index>(),
            0..u64::from(u32::MAX),
        )
            .prop_filter_map("widths must leave room", |(mut roles, widths, at, epoch_s)| {
                roles.insert(at.index(roles.len() + 1), Role::Timestamp);
                let mut left = ID_BITS;
                let mut fields = Vec::new();
                for (nth, role) in roles.iter().enumerate() {
                    let after = u32::try_from(roles.len() - nth - 1).ok()?;
                    let bits = if after == 0 { left } else { widths[nth].min(left - after) };
                    left -= bits;
                    fields.push(Field::new(*role, u8::try_from(bits).ok()?));
                }
                Layout::for_decoding(&fields, epoch_s * 1_000, NS_PER_MS).ok()
            })
    }

    proptest! {
        /// Composing what was decoded gives the same ID, in any layout, for any 64 bits with no reserved bit set.
        #[test]
        fn compose_undoes_decode(layout in any_layout(), bits in any::<u64>()) {
            let reserved = layout
                .placed()
                .filter(|(field, _)| field.role() == Role::Reserved)
                .fold(0, |mask, (field, shift)| mask | (field.value_max() << shift));
            let id = Id::new(bits & !reserved);
            let mut values = layout.values(id).map(|(_, value)| value).collect::<Vec<_>>().into_iter();
            prop_assert_eq!(layout.compose_values(|_| values.next().unwrap()), Ok(id));
            prop_assert_eq!(layout.value(id, Role::Timestamp), layout.decode(id).tick);
            prop_assert_eq!(layout.value(id, Role::Sequence), layout.decode(id).sequence);
        }

        /// F19: one more than a field holds is refused with its range, whatever the layout and field; never masked.
        #[test]
        fn f19_out_of_range_is_refused(layout in any_layout(), nth in any::<prop::sample::Index>()) {
            let nth = nth.index(layout.fields().len());
            let field = layout.fields()[nth];
            let max = if field.role() == Role::Reserved { 0 } else { field.value_max() };
            let mut at = 0;
            let composed = layout.compose_values(|_| {
                at += 1;
                if at == nth + 1 { max + 1 } else { 0 }
            });
            prop_assert_eq!(composed, Err(FieldError { role: field.role(), value: max + 1, max }));
        }
    }

    /// F19: the report's own numbers.
    #[test]
    fn f19_region_4_and_worker_300() {
        let layout = Layout::SNOWMINT;
        let check = |role: Role, value: u64, max: u64| {
            let composed = layout.compose_values(|field| if field.role() == role { value } else { 0 });
            assert_eq!(composed, Err(FieldError { role, value, max }));
        };
        check(Role::Region, 4, 3);
        check(Role::Worker, 300, 255);
        check(Role::Reserved, 1, 0);
        assert_eq!(layout.node(4, 0), Err(FieldError { role: Role::Region, value: 4, max: 3 }));
        assert_eq!(layout.node(0, 300), Err(FieldError { role: Role::Worker, value: 300, max: 255 }));
    }
}
