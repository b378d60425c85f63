//! The tokens of a guard, shared by all threads of a process.

use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::token_bucket::Tokens;

/// What a guard may still let pass. Filled off the request path, so that a decision reads no clock.
#[derive(Debug, Default)]
pub(crate) struct Pool(AtomicU64);

impl Pool {
    /// Takes a token; false when there is none. Several threads never take the same one.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        self.update(Tokens::take)
    }

    /// Changes the tokens to what `f` makes of them.
    pub(crate) fn set(&self, f: impl Fn(Tokens) -> Tokens) {
        self.update(|tokens| Some(f(tokens)));
    }

    #[inline]
    fn update(&self, f: impl Fn(Tokens) -> Option<Tokens>) -> bool {
        let next = |bits| f(Tokens::from_bits(bits)).map(Tokens::to_bits);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    #[cfg(test)]
    pub(crate) fn tokens(&self) -> Tokens {
        Tokens::from_bits(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_race_take_each_token_once() {
        let pool = Pool::default();
        pool.set(|_| Tokens::new(10_000.5));
        let taken = || (0..10_000).filter(|_| pool.take()).count();
        let all: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(taken)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!((all, pool.tokens()), (10_000, Tokens::new(0.5)));
    }
}
