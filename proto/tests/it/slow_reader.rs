//! A child that does not read gets the latest state when it reads again, not everything it missed.

use plimsoll_core::directive::{BucketDirective, Directives};
use plimsoll_proto::DirectivesDecoder;

use crate::scripted::{Server, Stream, directive, greeting};

/// How often what holds changes while the one child reads and the other does not.
const CHANGES: u32 = 1_000;
/// Tenants enough for a message of some 5 KiB: the window of a stream holds some 50 of them.
const TENANTS: usize = 40;

async fn read_until(stream: &mut Stream, limit: u32) -> usize {
    let mut decoder = DirectivesDecoder::default();
    let mut last = Directives::default();
    let due = BucketDirective { whole: false, ..directive(limit, TENANTS) };
    for messages in 1.. {
        let Some(message) = decoder.decode(stream.next().await).unwrap() else { continue };
        assert!(message.seq == last.seq + 1, "{} after {}", message.seq, last.seq);
        if message.buckets == [due.clone()] {
            return messages;
        }
        last = Directives { seq: message.seq, ..Directives::default() };
    }
    unreachable!("no message is the last")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_is_conflated() {
    let server = Server::start(9);
    let (mut slow, mut fast) = (server.stream().await, server.stream().await);
    slow.send(greeting(1)).await;
    fast.send(greeting(2)).await;
    let mut messages = 0;
    for limit in 2..2 + CHANGES {
        server.post(&directive(limit, TENANTS));
        let due = directive(limit, TENANTS).terms.limit.per_second().unwrap().per_second() * 1e3;
        loop {
            messages += 1;
            let limits = fast.next().await.buckets.into_iter().filter_map(|bucket| bucket.limit);
            let mut limits = limits.map(|limit| match limit {
                plimsoll_proto::wire::bucket_directive::Limit::LimitMilliRps(milli) => milli as f64,
                plimsoll_proto::wire::bucket_directive::Limit::Unlimited(_) => f64::INFINITY,
            });
            if limits.any(|limit| limit == due) {
                break;
            }
        }
    }
    assert!(messages >= CHANGES, "one who reads misses nothing: {messages}");
    let messages = read_until(&mut slow, 1 + CHANGES).await;
    assert!(messages < 100, "{messages} messages for {CHANGES} changes");
}
