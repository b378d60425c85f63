//! The renewal of a stream for a renewed certificate: another stream to the same address is opened next to the old one,
//! at a random moment, so that a fleet with certificates that are renewed together does not connect
//! together.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::sleep;

use super::draw;
use super::search::{Candidate, share};
use super::stream::{Certificate, Stream};
use super::traffic::Traffic;
use crate::transport::Dial;

/// Time before the end of an old certificate in which its stream is renewed immediately.
const LAST: Duration = Duration::from_secs(10);
/// Minimum time between two attempts.
const RETRY_MIN: Duration = Duration::from_secs(1);

/// Waits for a newer certificate than `old`, then for a random time, and returns a stream that is opened with it. The
/// stream has not greeted. Never returns in plaintext.
pub(super) async fn renewed(
    dial: &Dial,
    candidate: Candidate,
    traffic: Option<&Arc<Traffic>>,
    old: Option<Certificate>,
) -> Stream {
    let (Some(old), Some(mut changes)) = (old, dial.certificate_changes()) else {
        return pending().await;
    };
    if changes
        .wait_for(|generation| *generation > old.generation)
        .await
        .is_err()
    {
        return pending().await;
    }
    let mut shortest = Duration::ZERO;
    loop {
        let left = old
            .not_after
            .duration_since(SystemTime::now())
            .unwrap_or_default();
        sleep(wait(left, draw()).max(shortest)).await;
        match Stream::open(dial, candidate, traffic, || None).await {
            Ok(stream) => return stream,
            Err(error) => {
                let parent = dial.authority();
                tracing::warn!(parent, %error, "renewed certificate: no stream yet, the old one goes on");
                shortest = RETRY_MIN;
            }
        }
    }
}

/// Returns the time until a stream is renewed: random in the last third of the time `left` of its certificate, but
/// before the very end. `draw` is uniform over `u32`.
fn wait(left: Duration, draw: u32) -> Duration {
    let third = left.saturating_sub(LAST) / 3;
    2 * third + third.mul_f64(share(draw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_renewed_in_the_final_third() {
        let hour = Duration::from_secs(3_600) + LAST;
        assert_eq!(wait(hour, 0), Duration::from_secs(2_400));
        assert_eq!(wait(hour, u32::MAX), Duration::from_secs(3_600));
        assert!((2_990..3_010).contains(&wait(hour, u32::MAX / 2).as_secs()));
        for left in [Duration::ZERO, LAST] {
            assert_eq!(wait(left, u32::MAX), Duration::ZERO);
        }
    }
}
