//! Layers inside of layers: a request that passes two layers is decided and counted once for each bucket.
//!
//! A layer leaves a mark in the extensions of the requests that it admits. A mark is an allocation, so each thread
//! marks its first requests and few after them, until a limiter has met a request twice. Then the layers of that
//! limiter mark all.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Extensions;
use plimsoll_client::Limiter;
use plimsoll_client::internals::Recorder;

use super::Head;

/// The first keys of admitted requests of a thread, which are all marked.
const MARKED_FIRST: u64 = 1_000;
/// After those, one key of this many is marked.
const MARKED_EVERY: u64 = 256;
/// Maximum number of marks of one request. A further mark replaces all of them.
const MARKS_MAX: usize = 16;

thread_local! {
    /// Number of keys of admitted requests of this thread, each a candidate for a mark.
    static SEEN: Cell<u64> = const { Cell::new(0) };
}

/// The decisions that a request has behind it, the last one first.
#[derive(Clone)]
struct Marks(Arc<Mark>);

/// One decision, valid for the next layer of the same bucket, once: a request with the extensions
/// of another, such as a retry or one request of a batch, is counted again.
struct Mark {
    /// The limiter and the bucket.
    counts_for: (u32, u32),
    is_used: AtomicBool,
    before: Option<Arc<Mark>>,
}

/// Returns true if a layer outside of this one has decided about the request for the same bucket. Then the request is
/// neither decided nor counted again. Uses up the mark, so it is called once for each key of a request.
#[inline]
pub(super) fn is_counted(request: Head<'_>, limiter: &Limiter, recorder: Recorder) -> bool {
    request
        .extensions
        .get::<Marks>()
        .is_some_and(|marks| marks.meet(limiter, recorder))
}

#[inline]
pub(super) fn mark(extensions: &mut Extensions, recorder: Recorder) {
    let seen = SEEN.try_with(|seen| seen.replace(seen.get().wrapping_add(1)));
    let is_due = seen.is_ok_and(|seen| seen < MARKED_FIRST || seen.is_multiple_of(MARKED_EVERY));
    if is_due || recorder.is_stacked() {
        Marks::push(extensions, recorder.counts_for());
    }
}

/// Marks a request again that an outer layer has counted, for layers further inside: for the bucket whose mark was
/// used and is most recent.
#[cold]
pub(super) fn mark_again(extensions: &mut Extensions) {
    let used = extensions.get::<Marks>().and_then(|marks| {
        let used = marks
            .iter()
            .find(|mark| mark.is_used.load(Ordering::Relaxed))?;
        Some(used.counts_for)
    });
    if let Some(counts_for) = used {
        Marks::push(extensions, counts_for);
    }
}

impl Marks {
    #[cold]
    fn push(extensions: &mut Extensions, counts_for: (u32, u32)) {
        let before = extensions
            .get::<Self>()
            .filter(|marks| marks.iter().count() < MARKS_MAX);
        let before = before.map(|marks| Arc::clone(&marks.0));
        extensions.insert(Self(Arc::new(Mark {
            counts_for,
            is_used: AtomicBool::new(false),
            before,
        })));
    }

    fn iter(&self) -> impl Iterator<Item = &Mark> {
        std::iter::successors(Some(&*self.0), |mark| mark.before.as_deref())
    }

    /// Uses the most recent mark of a bucket; returns false if there is none, or it is used. Raises a setup problem for
    /// the first request of each bucket.
    #[cold]
    fn meet(&self, limiter: &Limiter, recorder: Recorder) -> bool {
        let mut marks = self.iter();
        let Some(mark) = marks.find(|mark| mark.counts_for == recorder.counts_for()) else {
            return false;
        };
        if mark.is_used.swap(true, Ordering::Relaxed) {
            return false;
        }
        limiter.raise_layer_twice(recorder);
        true
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::decide::tests::{limiter, recorder};

    fn pass(request: &mut Request<()>, limiter: &Limiter, bucket: &str) -> bool {
        let recorder = recorder(limiter, bucket);
        let counted_before = is_counted(Head::of(request), limiter, recorder);
        match counted_before {
            true => mark_again(request.extensions_mut()),
            false => mark(request.extensions_mut(), recorder),
        }
        !counted_before
    }

    fn raised(limiter: &Limiter) -> Vec<String> {
        let problems = limiter
            .setup_problems()
            .into_iter()
            .filter(|problem| problem.kind() == "layer_twice");
        problems
            .map(|problem| problem.subject().to_owned())
            .collect()
    }

    #[test]
    fn request_counts_per_limiter_and_bucket() {
        let (ours, other) = (limiter(), limiter());
        let layers = [
            (&ours, "a"),
            (&ours, "b"),
            (&ours, "a"),
            (&ours, "a"),
            (&other, "a"),
            (&ours, "b"),
            (&ours, "a"),
        ];
        let counted = [true, true, false, false, true, false, false];
        let mut request = Request::new(());
        for (at, ((limiter, bucket), counted)) in layers.into_iter().zip(counted).enumerate() {
            assert_eq!(pass(&mut request, limiter, bucket), counted, "layer {at}");
        }
        assert_eq!(
            (raised(&ours), raised(&other)),
            (vec!["a".to_owned(), "b".to_owned()], vec![])
        );
    }

    #[test]
    fn mark_stands_for_one_decision() {
        let limiter = limiter();
        let mut outer = Request::new(());
        assert!(pass(&mut outer, &limiter, "a"));
        let counted: Vec<bool> = (0..4)
            .map(|_| pass(&mut outer.clone(), &limiter, "a"))
            .collect();
        assert_eq!(
            counted,
            [false, true, true, true],
            "requests with the extensions of one are a batch"
        );
    }

    #[test]
    fn marks_of_a_request_are_bounded() {
        let limiter = limiter();
        let mut request = Request::new(());
        for _ in 0..10 * MARKS_MAX {
            pass(&mut request, &limiter, "a");
            assert!(request.extensions().get::<Marks>().unwrap().iter().count() <= MARKS_MAX);
        }
    }

    #[test]
    fn thread_marks_first_requests_then_few() {
        let (limiter, stacked) = (limiter(), limiter());
        let is_marked = |limiter: &Limiter, bucket| {
            let mut request = Request::new(());
            mark(request.extensions_mut(), recorder(limiter, bucket));
            request.extensions().get::<Marks>().is_some()
        };
        let thread = || {
            assert!((0..MARKED_FIRST).all(|_| is_marked(&limiter, "a")));
            let rest = MARKED_EVERY * 100;
            assert_eq!((0..rest).filter(|_| is_marked(&limiter, "a")).count(), 100);
            let mut request = Request::new(());
            let outer = recorder(&stacked, "a").counts_for();
            Marks::push(request.extensions_mut(), outer);
            assert!(!pass(&mut request, &stacked, "a"));
            assert!(
                (0..rest).all(|_| is_marked(&stacked, "b")),
                "a stacked limiter marks all requests"
            );
            assert_eq!(
                (0..rest).filter(|_| is_marked(&limiter, "b")).count(),
                100,
                "another one does not"
            );
        };
        std::thread::scope(|scope| scope.spawn(thread).join()).unwrap();
    }
}
