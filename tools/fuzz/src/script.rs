//! The choices that random bytes stand for.

/// Bytes that decide, one choice after the other. Once they are used up, every choice is the first.
pub(crate) struct Script<'a>(pub(crate) &'a [u8]);

impl Script<'_> {
    /// Returns any number.
    pub(crate) fn draw(&mut self) -> u64 {
        // A byte is enough for most choices, and numbers take more than one draw.
        let Some((byte, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        if *byte < 0xf0 {
            return u64::from(*byte);
        }
        let (number, rest) = self.0.split_at(self.0.len().min(8));
        self.0 = rest;
        number.iter().fold(u64::from(*byte), |number, byte| {
            number << 8 | u64::from(*byte)
        })
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// Returns an index of a list that is not empty.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        let number = self.draw() ^ if length > 0xf0 { self.draw() << 8 } else { 0 };
        (number % length as u64) as usize
    }

    /// Returns one of a list that is not empty.
    pub(crate) fn choose<'b, T>(&mut self, list: &'b [T]) -> &'b T {
        &list[self.index(list.len())]
    }

    /// Returns a number that is small, at an edge, or of any size.
    pub(crate) fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => 0,
            1..=3 => self.below(8),
            4 => 1 << self.below(64),
            5 => (1 << self.below(64)) - 1,
            6 => u64::MAX - self.below(3),
            _ => {
                let shift = self.below(64);
                self.draw() >> shift
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_is_over_with_its_bytes() {
        let mut script = Script(&[7, 0xf0, 1, 2]);
        assert_eq!(
            [script.draw(), script.draw(), script.draw()],
            [7, 0x00f0_0102, 0]
        );
    }
}
