//! Queues whose disk works, fails, and hangs.

use super::*;

fn record(what: &str) -> Record {
    let entry = Entry { what: what.to_owned(), ..Entry::default() };
    Record::new(0, Actor::controller("gate", ""), entry)
}

fn failed(seq: Option<u64>) -> Outcome {
    Outcome::Failed { seq, reason: "no room".to_owned() }
}

/// The texts of a batch, with a mark for late ones.
fn texts(batch: &[Waiting]) -> Vec<String> {
    let text = |Waiting { record, .. }: &Waiting| {
        let late = if record.late { " late" } else { "" };
        format!("{}: {}{late}", record.what, record.after)
    };
    batch.iter().map(text).collect()
}

#[test]
fn written_entries_are_answered_with_their_numbers() {
    let mut queue = Queue::default();
    let kill = queue.note(record("kill on"));
    let mut promote = queue.await_line(record("promote"));
    assert!(!queue.has_settled(kill));
    let batch = queue.take_batch(1);
    assert_eq!(texts(&batch), ["kill on: ", "promote: "]);
    queue.on_outcome(batch, &Outcome::Written(7), 1);
    assert_eq!(promote.try_recv().unwrap(), Ok(8));
    assert!(queue.has_settled(kill) && queue.failure().is_none() && !queue.has_more(true));
    assert_eq!(queue.written, 2);
}

#[test]
fn full_disk_refuses_commands_that_wait_and_keeps_all_others() {
    let mut queue = Queue::default();
    let kill = queue.note(record("kill on"));
    let mut promote = queue.await_line(record("promote"));
    let batch = queue.take_batch(1);
    queue.on_outcome(batch, &failed(None), 1);
    assert_eq!(promote.try_recv().unwrap(), Err("no room".to_owned()));
    assert_eq!(queue.failure(), Some("no room"));
    assert!(queue.has_settled(kill), "a kill does not wait for a disk that fails");
    assert!(!queue.has_more(false));
    let mut apply = queue.await_line(record("apply"));
    queue.note(record("abort"));
    let batch = queue.take_batch(2);
    queue.on_outcome(batch, &failed(None), 2);
    assert_eq!(apply.try_recv().unwrap(), Err("no room".to_owned()));

    let batch = queue.take_batch(60);
    assert_eq!(
        texts(&batch),
        ["audit log resumed: 2 entries were not written", "kill on:  late", "abort:  late"]
    );
    let resumed = &batch[0].record;
    assert_eq!(
        (resumed.before.as_str(), resumed.why.as_str()),
        ("not written since 1970-01-01T00:00:01Z", "no room")
    );
    queue.on_outcome(batch, &Outcome::Written(1), 60);
    assert!(queue.failure().is_none() && !queue.has_more(true));
    queue.note(record("kill on"));
    assert_eq!(texts(&queue.take_batch(61)), ["kill on: "]);
}

#[test]
fn line_without_a_head_is_continued_by_one_that_says_that_nothing_was_done() {
    let mut queue = Queue::default();
    let mut promote = queue.await_line(record("promote"));
    let kill = queue.note(record("kill on"));
    let batch = queue.take_batch(1);
    queue.on_outcome(batch, &failed(Some(5)), 1);
    assert_eq!(promote.try_recv().unwrap(), Err("no room".to_owned()));
    assert!(queue.has_settled(kill));
    let batch = queue.take_batch(2);
    assert_eq!(
        texts(&batch),
        ["audit log resumed: 0 entries were not written", "promote: not carried out late"]
    );
    assert_eq!((batch[1].record.of, batch[1].record.why.as_str()), (Some(5), "no room"));
}

#[test]
fn command_that_gave_up_is_continued_once_the_disk_answers() {
    let mut queue = Queue::default();
    let promote = queue.await_line(record("promote"));
    let batch = queue.take_batch(1);
    queue.fail("no answer".to_owned(), 3);
    drop(promote);
    drop(queue.await_line(record("apply")));
    queue.on_outcome(batch, &Outcome::Written(5), 4);
    assert!(queue.has_more(true) && queue.failure().is_some(), "what was not written is still to be said");
    let batch = queue.take_batch(5);
    assert_eq!(
        texts(&batch),
        ["audit log resumed: 0 entries were not written", "promote: not carried out late"]
    );
    queue.on_outcome(batch, &Outcome::Written(6), 5);
    assert_eq!(queue.failure(), Some("no answer"), "one gave up before its line was written");
    let batch = queue.take_batch(6);
    assert_eq!(texts(&batch), ["audit log resumed: 1 entries were not written"]);
    queue.on_outcome(batch, &Outcome::Written(8), 6);
    assert!(queue.failure().is_none() && !queue.has_more(true));
}

#[test]
fn entries_beyond_the_room_are_counted() {
    let mut queue = Queue::default();
    queue.fail("no room".to_owned(), 1);
    let last = (0..KEPT_MAX + 5).map(|_| queue.note(record("kill on"))).last().unwrap();
    let (mut batches, mut late) = (Vec::new(), 0);
    while queue.failure().is_some() || !queue.waiting.is_empty() {
        let batch = queue.take_batch(2);
        assert!(batch.len() <= BATCH_MAX);
        late += batch.iter().filter(|waiting| waiting.record.late).count();
        batches.push(texts(&batch)[0].clone());
        queue.on_outcome(batch, &Outcome::Written(1), 2);
    }
    assert_eq!(batches[0], "audit log resumed: 5 entries were not written");
    assert!(late > 0 && queue.settled >= last, "{late}");
    assert_eq!(queue.written, KEPT_MAX as u64 + 1);
}

#[test]
fn commands_that_gave_up_take_no_room_while_the_disk_hangs() {
    let mut queue = Queue::default();
    queue.fail("no answer".to_owned(), 1);
    for _ in 0..2 * KEPT_MAX {
        drop(queue.await_line(record("promote")));
    }
    assert!(queue.waiting.len() <= KEPT_MAX, "{}", queue.waiting.len());
    let mut apply = queue.await_line(record("apply"));
    let kill = queue.note(record("kill on"));
    let mut said = 0;
    while queue.failure().is_some() {
        let batch = queue.take_batch(2);
        said += queue.unwritten();
        queue.on_outcome(batch, &Outcome::Written(1), 2);
    }
    assert!(apply.try_recv().unwrap().is_ok() && queue.has_settled(kill));
    assert_eq!((said, queue.written), (2 * KEPT_MAX as u64, 3), "all that gave up are counted");
}
