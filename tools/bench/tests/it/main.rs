//! The measuring program on real processes: its client streams, and counts while tiers are killed.

#[cfg(test)]
mod books;
#[cfg(test)]
mod streams;
