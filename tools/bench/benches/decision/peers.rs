//! The peers: other rate limiters, each used as its documentation shows, with more tokens than the benchmark
//! can use, so that every measured decision admits.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use limitador::limit::{Context, Limit};
use throttlecrab::AdaptiveStore;

use crate::rounds::{Candidate, spin};

pub(crate) fn all(tenants: &[String]) -> Vec<Candidate<'_>> {
    vec![
        governor(tenants),
        governor_direct(),
        throttlecrab(tenants),
        limitador(tenants),
        textbook(tenants),
    ]
}

fn governor(tenants: &[String]) -> Candidate<'_> {
    let limiter = DefaultKeyedRateLimiter::<String>::keyed(Quota::per_second(NonZeroU32::MAX));
    Candidate {
        name: "governor 0.10, keyed",
        spin: spin(move |at| limiter.check_key(&tenants[at]).is_ok()),
    }
}

/// One limit for all requests: no name is looked up.
fn governor_direct() -> Candidate<'static> {
    let limiter = RateLimiter::direct(Quota::per_second(NonZeroU32::MAX));
    Candidate {
        name: "governor 0.10, direct",
        spin: spin(move |_| limiter.check().is_ok()),
    }
}

fn throttlecrab(tenants: &[String]) -> Candidate<'_> {
    let limiter = Mutex::new(throttlecrab::RateLimiter::new(AdaptiveStore::new()));
    let decide = move |at: usize| {
        let mut limiter = limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = limiter.rate_limit(
            &tenants[at],
            1_000_000_000,
            1_000_000_000,
            1,
            1,
            SystemTime::now(),
        );
        answer.is_ok_and(|(allowed, _)| allowed)
    };
    Candidate {
        name: "throttlecrab 0.4, behind a mutex",
        spin: spin(decide),
    }
}

fn limitador(tenants: &[String]) -> Candidate<'_> {
    let limiter = limitador::RateLimiter::new(tenants.len() as u64 * 2);
    let tenant = "tenant".try_into().unwrap();
    limiter.add_limit(Limit::new("checkout", u64::MAX, 1, vec![], vec![tenant]));
    let namespace = "checkout".into();
    let decide = move |at: usize| {
        let values = HashMap::from([("tenant".to_owned(), tenants[at].clone())]);
        let context = Context::from(values);
        let answer = limiter.check_rate_limited_and_update(&namespace, &context, 1);
        answer.is_ok_and(|result| !result.limited)
    };
    Candidate {
        name: "limitador 0.14, in memory",
        spin: spin(decide),
    }
}

/// The limiter of introductory articles: a map of counters and a map of ratios, each behind a lock.
fn textbook(tenants: &[String]) -> Candidate<'_> {
    let counters: RwLock<HashMap<String, Arc<AtomicU64>>> = RwLock::default();
    let ratios: RwLock<HashMap<String, f64>> =
        RwLock::new(tenants.iter().map(|t| (t.clone(), 0.5)).collect());
    let decide = move |at: usize| {
        let tenant = tenants[at].as_str();
        let counted = counters.read().ok().and_then(|counters| {
            counters
                .get(tenant)
                .map(|counter| counter.fetch_add(1, Ordering::Relaxed))
        });
        if counted.is_none()
            && let Ok(mut counters) = counters.write()
        {
            counters
                .entry(tenant.to_owned())
                .or_default()
                .fetch_add(1, Ordering::Relaxed);
        }
        let ratio = ratios
            .read()
            .ok()
            .and_then(|ratios| ratios.get(tenant).copied())
            .unwrap_or_default();
        rand::random::<f64>() >= ratio
    };
    Candidate {
        name: "the textbook's Allow()",
        spin: spin(decide),
    }
}
