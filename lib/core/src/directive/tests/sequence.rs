//! Tests of the order of messages.

use super::*;
use crate::kill::EPOCH_JUMP_MAX;

type Message = (Option<u64>, u64);

/// Messages, with `None` for a new stream, and whether each is accepted.
fn check_order(messages: &[(Option<Message>, Result<(), StaleDirective>)]) {
    let mut order = Sequence::default();
    for (at, (message, expected)) in messages.iter().enumerate() {
        let Some((epoch, seq)) = message else {
            order.open();
            continue;
        };
        let before = order;
        assert_eq!(
            order.accept(
                epoch.map(|epoch| Leader {
                    epoch: Epoch(epoch),
                    instance: None
                }),
                *seq
            ),
            *expected,
            "message {at}"
        );
        assert!(
            expected.is_ok() || order == before,
            "message {at} was refused but remembered"
        );
        assert!(
            order.epoch() >= before.epoch(),
            "message {at} took the epoch back"
        );
    }
}

#[test]
fn directives_only_move_forward() {
    let take = |epoch, seq| (Some((epoch, seq)), Ok(()));
    let seq = |epoch, got, held| (Some((epoch, got)), Err(StaleDirective::Seq { held, got }));
    let older = |got, seq, held| {
        (
            Some((Some(got), seq)),
            Err(StaleDirective::Epoch {
                held: Epoch(held),
                got: Epoch(got),
            }),
        )
    };
    let new_stream = (None, Ok(()));

    // Within one stream numbers grow; gaps are harmless, since a message carries the whole state of the keys
    // it names.
    check_order(&[
        take(Some(5), 1),
        take(Some(5), 2),
        seq(Some(5), 2, 2),
        seq(Some(5), 1, 2),
        take(Some(5), 9),
    ]);
    // A number is used up regardless of its epoch, and zero is invalid.
    check_order(&[
        seq(Some(5), 0, 0),
        take(Some(5), 1),
        seq(Some(6), 1, 1),
        take(Some(6), 2),
    ]);
    // An older epoch is refused on every stream, and its message uses up no number.
    check_order(&[
        take(Some(5), 1),
        older(4, 2, 5),
        take(Some(5), 2),
        new_stream,
        older(4, 1, 5),
        older(4, 2, 5),
        take(Some(5), 1),
        take(Some(5 + EPOCH_JUMP_MAX), 2),
        new_stream,
        older(5, 1, 5 + EPOCH_JUMP_MAX),
    ]);
    // Implausible numbers are refused, regardless of the held state.
    for held in [None, Some(5)] {
        let got = held.unwrap_or(0) + EPOCH_JUMP_MAX + 1;
        let refused = Err(StaleDirective::EpochJump {
            held: held.map(Epoch),
            got: Epoch(got),
        });
        check_order(&[
            take(held, 1),
            (Some((Some(got), 2)), refused),
            take(held, 2),
        ]);
    }
    // Numbers start over on a new stream.
    check_order(&[
        take(Some(5), 7),
        new_stream,
        take(Some(5), 1),
        seq(Some(5), 1, 1),
    ]);
    // A parent without a controller is accepted and leaves the held epoch as it is.
    check_order(&[
        take(None, 1),
        seq(None, 1, 1),
        take(Some(5), 2),
        take(None, 3),
        older(4, 4, 5),
        new_stream,
        take(None, 1),
        older(4, 2, 5),
    ]);
}

#[test]
fn higher_controller_leads_within_one_epoch() {
    let leader = |epoch, instance| {
        Some(Leader {
            epoch: Epoch(epoch),
            instance: Some(InstanceId(instance)),
        })
    };
    let mut order = Sequence::default();
    assert_eq!(order.accept(leader(5, 2), 1), Ok(()));
    assert!(matches!(
        order.accept(leader(5, 1), 2),
        Err(StaleDirective::Rival { .. })
    ));
    assert_eq!(order.leader(), leader(5, 2));
    assert_eq!(order.accept(leader(5, 3), 2), Ok(()));
    order.open();
    assert!(
        matches!(
            order.accept(leader(5, 2), 1),
            Err(StaleDirective::Rival { .. })
        ),
        "on every stream"
    );
    assert_eq!(
        order.accept(leader(6, 1), 1),
        Ok(()),
        "a later epoch leads, whatever the instance"
    );
    assert!(matches!(
        order.accept(leader(5, 9), 2),
        Err(StaleDirective::Epoch { .. })
    ));
    let unnamed = Some(Leader {
        epoch: Epoch(6),
        instance: None,
    });
    assert_eq!(
        (order.accept(unnamed, 2), order.leader()),
        (Ok(()), leader(6, 1))
    );
}
