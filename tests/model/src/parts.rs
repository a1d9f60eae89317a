//! The parts of a state, shared with the states before and after it: a step changes few of them, so most are neither
//! copied nor hashed again. Owns the copy of a part that changes, and the fingerprint of each.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::ops::{Index, IndexMut};
use std::rc::Rc;

use crate::print::fingerprint;

/// A list of parts. What asks for a part to change it makes it a part of this state alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Parts<T>(Vec<Part<T>>);

#[derive(Clone, Debug)]
struct Part<T> {
    shared: Rc<T>,
    /// Its fingerprint, once it was asked for.
    print: Cell<Option<u64>>,
}

impl<T> Parts<T> {
    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, place: usize) -> Option<&T> {
        self.0.get(place).map(|part| &*part.shared)
    }

    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut T>
    where
        T: Clone,
    {
        self.0.get_mut(place).map(Part::own)
    }

    pub(crate) fn push(&mut self, part: T) {
        self.0.push(Part { shared: Rc::new(part), print: Cell::new(None) });
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &T> + Clone {
        self.0.iter().map(|part| &*part.shared)
    }
}

impl<T: Clone> Part<T> {
    fn own(&mut self) -> &mut T {
        self.print.set(None);
        Rc::make_mut(&mut self.shared)
    }
}

impl<T> FromIterator<T> for Parts<T> {
    fn from_iter<I: IntoIterator<Item = T>>(parts: I) -> Self {
        let mut list = Self(Vec::new());
        list.extend(parts);
        list
    }
}

impl<T> Extend<T> for Parts<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, parts: I) {
        parts.into_iter().for_each(|part| self.push(part));
    }
}

impl<T> Index<usize> for Parts<T> {
    type Output = T;

    fn index(&self, place: usize) -> &T {
        &self.0[place].shared
    }
}

impl<T: Clone> IndexMut<usize> for Parts<T> {
    fn index_mut(&mut self, place: usize) -> &mut T {
        self.0[place].own()
    }
}

impl<T: PartialEq> PartialEq for Part<T> {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.shared, &other.shared) || self.shared == other.shared
    }
}

impl<T: Eq> Eq for Part<T> {}

impl<T: Hash> Hash for Part<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let print = self.print.get().unwrap_or_else(|| fingerprint(&*self.shared));
        self.print.set(Some(print));
        state.write_u64(print);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_changes_changes_here_alone_and_has_another_fingerprint() {
        let before: Parts<Vec<u8>> = [vec![1], vec![2]].into_iter().collect();
        let print = fingerprint(&before);
        let mut after = before.clone();
        assert_eq!(fingerprint(&after), print);
        after[1].push(3);
        assert_eq!((&before[1], &after[1]), (&vec![2], &vec![2, 3]));
        assert_ne!(fingerprint(&after), print);
        assert_eq!(fingerprint(&before), print);
        // What comes to the same is the same, whatever led to it.
        after[1].pop();
        assert_eq!(fingerprint(&after), print);
        assert_eq!(after, before);
    }
}
