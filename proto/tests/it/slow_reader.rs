//! A child that stops reading gets the latest state when it reads again, not all changes in between.

use plimsoll_core::directive::{BucketDirective, Directives};
use plimsoll_proto::{DirectivesDecoder, wire};

use crate::scripted::{Server, Stream, directive, greeting};

/// Changes of the directive while one child reads and the other does not.
const CHANGES: u32 = 1_000;
/// Tenants in a directive: a message has about 5 KiB, of which the window of a stream holds about 50.
const TENANTS: usize = 40;

async fn read_until(stream: &mut Stream, limit: u32) -> usize {
    let mut decoder = DirectivesDecoder::default();
    let mut last = Directives::default();
    let expected = BucketDirective { whole: false, ..directive(limit, TENANTS) };
    for messages in 1.. {
        let Some(message) = decoder.decode(stream.next().await).unwrap() else { continue };
        assert!(message.seq == last.seq + 1, "{} after {}", message.seq, last.seq);
        if message.buckets == [expected.clone()] {
            return messages;
        }
        last = Directives { seq: message.seq, ..Directives::default() };
    }
    unreachable!("the range of messages has no end")
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_for_a_slow_reader_are_conflated() {
    let server = Server::start(9);
    let (mut slow, mut fast) = (server.stream().await, server.stream().await);
    slow.send(greeting(1)).await;
    fast.send(greeting(2)).await;
    let mut messages = 0;
    for limit in 2..2 + CHANGES {
        // Both children are alive, for as long as it takes.
        for stream in [&slow, &fast] {
            stream.send(wire::Report { seq: limit.into(), ..wire::Report::default() }).await;
        }
        server.post(&directive(limit, TENANTS));
        let expected = directive(limit, TENANTS).terms.limit.per_second().unwrap().per_second() * 1e3;
        loop {
            messages += 1;
            let limits = fast.next().await.buckets.into_iter().filter_map(|bucket| bucket.limit);
            let mut limits = limits.map(|limit| match limit {
                wire::bucket_directive::Limit::LimitMilliRps(milli) => milli as f64,
                wire::bucket_directive::Limit::Unlimited(_) => f64::INFINITY,
            });
            if limits.any(|limit| limit == expected) {
                break;
            }
        }
    }
    assert!(messages >= CHANGES, "a child that reads sees every change: {messages}");
    let messages = read_until(&mut slow, 1 + CHANGES).await;
    assert!(messages < 100, "{messages} messages for {CHANGES} changes");
}
