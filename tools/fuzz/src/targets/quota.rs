//! The target for a quota server: any input of a client of the Redis protocol.

use plimsoll_quota::resp::{COMMAND_BYTES_MAX, Rehearsal};
use redis_protocol::{resp2, resp3};

/// Any bytes get complete replies, the same for every division into parts, and wait only within the
/// bound of one command.
pub(super) fn resp(data: &[u8]) {
    let (first, data) = data.split_first().unwrap_or((&0, data));
    let (at, needs_token) = (usize::from(*first) * data.len() / 256, first % 2 == 1);
    let mut whole = Rehearsal::new(needs_token);
    let is_open = whole.feed(data);
    assert!(
        whole.waiting() <= COMMAND_BYTES_MAX || !is_open,
        "{} bytes wait",
        whole.waiting()
    );
    let mut replies = whole.replies();
    while !replies.is_empty() {
        let length = match resp2::decode::decode_range(replies) {
            Ok(Some((_, length))) => length,
            // The client has requested the other version.
            _ => {
                resp3::decode::complete::decode_range(replies)
                    .unwrap()
                    .unwrap()
                    .1
            }
        };
        replies = &replies[length..];
    }
    let mut parts = Rehearsal::new(needs_token);
    let is_open_at_the_end = parts.feed(&data[..at]) && parts.feed(&data[at..]);
    assert_eq!(
        (parts.replies(), is_open_at_the_end),
        (whole.replies(), is_open),
        "divided at {at}"
    );
}
