//! Prepared commands of a load: the bytes of every batch are built before the load begins, so that
//! a sender only sends and counts.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

/// Limit that no load reaches, so that every command is a debit.
pub(super) const MAX: u64 = 1_000_000_000;
/// In seconds: no refill happens in a run.
const EVERY_S: u64 = 3_600;

#[derive(Debug)]
pub(super) struct Commands {
    bytes: Vec<u8>,
    /// Start of each batch, and end of the last.
    starts: Vec<usize>,
    pipeline: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Ask {
    /// `RL.REDUCE` of a quota server.
    Reduce,
    /// The script with this digest, by `EVALSHA`.
    Script(String),
}

impl Commands {
    /// At least `least` commands on `keys` keys in random order. If there are as many commands as
    /// keys, each key is in one of them.
    pub(super) fn new(ask: &Ask, keys: u64, pipeline: usize, least: usize) -> Self {
        let mut rng = SmallRng::seed_from_u64(keys);
        let batches = least.div_ceil(pipeline);
        let mut order: Vec<u64> = (0..keys).collect();
        order.shuffle(&mut rng);
        let mut ordered = order.into_iter();
        let mut key = || ordered.next().unwrap_or_else(|| rng.random_range(0..keys));
        let (mut bytes, mut starts) = (Vec::new(), vec![0]);
        for _ in 0..batches {
            (0..pipeline).for_each(|_| ask.push(key(), &mut bytes));
            starts.push(bytes.len());
        }
        Self {
            bytes,
            starts,
            pipeline,
        }
    }

    pub(super) const fn pipeline(&self) -> usize {
        self.pipeline
    }

    pub(super) const fn batches(&self) -> usize {
        self.starts.len() - 1
    }

    pub(super) fn batch(&self, at: usize) -> &[u8] {
        &self.bytes[self.starts[at]..self.starts[at + 1]]
    }
}

impl Ask {
    pub(super) fn push(&self, key: u64, to: &mut Vec<u8>) {
        let key = format!("{{tenant-{key:08}}}:api");
        let max = MAX.to_string();
        match self {
            Self::Reduce => push(to, &["RL.REDUCE", &key, &max, &EVERY_S.to_string()]),
            Self::Script(digest) => {
                let every_ms = (EVERY_S * 1_000).to_string();
                push(
                    to,
                    &["EVALSHA", digest, "1", &key, &max, &max, &every_ms, "1"],
                );
            }
        }
    }
}

pub(super) fn push(to: &mut Vec<u8>, arguments: &[&str]) {
    to.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
    for argument in arguments {
        to.extend_from_slice(format!("${}\r\n{argument}\r\n", argument.len()).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_whole_commands_of_every_key() {
        let commands = Commands::new(&Ask::Reduce, 64, 32, 64);
        assert_eq!((commands.batches(), commands.pipeline()), (2, 32));
        let text = [commands.batch(0), commands.batch(1)]
            .map(|batch| String::from_utf8(batch.to_vec()).unwrap());
        assert!(
            text.iter()
                .all(|batch| batch.matches("*4\r\n$9\r\nRL.REDUCE\r\n$21\r\n").count() == 32),
            "{text:?}"
        );
        assert!((0..64).all(|key| text.concat().contains(&format!("{{tenant-{key:08}}}:api"))));
    }
}
