//! Sites (constants, parameters, casts) in classes that only grow together.
//!
//! Must not: know what a class means.

/// The classes of all sites. A site is in a class of its own at first.
#[derive(Default)]
pub(super) struct Classes {
    /// The class of each site.
    of: Vec<usize>,
    /// The sites of each class; none for one that became a part of another.
    members: Vec<Vec<usize>>,
}

impl Classes {
    /// Adds the next site.
    pub(super) fn add(&mut self) {
        let site = self.of.len();
        self.of.push(self.members.len());
        self.members.push(vec![site]);
    }

    /// Puts the sites of both classes into one. Returns whether they were two.
    pub(super) fn merge(&mut self, one: usize, other: usize) -> bool {
        let (Some(a), Some(b)) = (self.of.get(one).copied(), self.of.get(other).copied()) else {
            return false;
        };
        if a == b {
            return false;
        }
        let len = |class: usize| self.members.get(class).map_or(0, Vec::len);
        let (small, large) = if len(a) < len(b) { (a, b) } else { (b, a) };
        let moved = self
            .members
            .get_mut(small)
            .map(std::mem::take)
            .unwrap_or_default();
        for site in &moved {
            if let Some(class) = self.of.get_mut(*site) {
                *class = large;
            }
        }
        if let Some(members) = self.members.get_mut(large) {
            members.extend(moved);
        }
        true
    }

    /// Returns the sites of the class that this one is in.
    pub(super) fn members(&self, site: usize) -> &[usize] {
        let class = self.of.get(site);
        let members = class.and_then(|class| self.members.get(*class));
        members.map_or(&[], Vec::as_slice)
    }

    /// Takes the sites of a class away, to be given back by [`Self::put_back`].
    pub(super) fn take(&mut self, site: usize) -> Vec<usize> {
        let class = self.of.get(site);
        let members = class.and_then(|class| self.members.get_mut(*class));
        members.map(std::mem::take).unwrap_or_default()
    }

    /// Gives the sites of a class back.
    pub(super) fn put_back(&mut self, site: usize, members: Vec<usize>) {
        let class = self.of.get(site);
        if let Some(kept) = class.and_then(|class| self.members.get_mut(*class)) {
            *kept = members;
        }
    }
}
