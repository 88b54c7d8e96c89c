//! Random numbers that a seed repeats.

/// A stream of numbers that its seed decides.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number: splitmix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    pub(crate) fn pick<'list, T>(&mut self, list: &'list [T]) -> &'list T {
        &list[self.index(list.len())]
    }

    pub(crate) fn one_in(&mut self, end: u64) -> bool {
        self.below(end) == 0
    }

    /// Returns a number that a careless program may not expect.
    pub(crate) fn edge(&mut self) -> u64 {
        let near =
            [0, 1, 63, 64, 65, 1000, 1001, 1023, 1024, 1025, 1 << 31, 1 << 32, 1 << 40, 1 << 63, u64::MAX];
        match self.below(4) {
            0 => self.next(),
            1 => self.next() >> self.below(64),
            _ => self.pick(&near).wrapping_add(self.below(3)).wrapping_sub(1),
        }
    }
}
