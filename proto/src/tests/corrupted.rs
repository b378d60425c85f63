//! Corrupted messages are rejected, or decode to values within every range.

use proptest::sample::Index;

use super::directives::{any_directives, bytes_of};
use super::reports::any_stream;
use super::*;

/// Overwrites some bytes of a message and cuts off its end.
fn corrupt(bytes: &[u8], overwrites: &[(Index, u8)], cut: Index) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if !bytes.is_empty() {
        overwrites.iter().for_each(|(at, byte)| *at.get_mut(&mut bytes) = *byte);
        bytes.truncate(bytes.len() - cut.index(bytes.len()) / 8);
    }
    bytes
}

fn is_valid_rate(rate: Rate) -> bool {
    rate.per_second().is_finite() && rate >= Rate::ZERO
}

fn check_valid_report(report: &Report) {
    assert!(report.seq > 0 && report.epoch != Some(Epoch(0)));
    let definitions = report.definitions.values().map(|definition| &definition.key);
    for name in definitions
        .clone()
        .map(|key| &key.bucket)
        .chain(&report.subscriptions)
        .chain(report.holds.keys())
        .chain(report.modes.keys())
    {
        assert!(Bucket::new(name.as_str()).is_ok());
    }
    assert!(report.holds.values().copied().all(is_valid_rate));
    assert!(definitions.clone().all(|key| Tenant::new(key.tenant.as_str()).is_ok()));
    assert!(report.tallies.iter().is_sorted_by(|(a, _), (b, _)| a < b));
}

fn check_valid_directives(directives: &Directives) {
    assert!(directives.seq > 0 && directives.epoch != Some(Epoch(0)));
    assert!(directives.epoch.is_some() || directives.buckets.is_empty());
    assert!(directives.report_interval.is_none_or(|interval| !interval.is_zero()));
    for bucket in &directives.buckets {
        assert!(Bucket::new(bucket.bucket.as_str()).is_ok());
        let terms = &bucket.terms;
        assert!(terms.limit.per_second().into_iter().chain(terms.hold).all(is_valid_rate));
        assert!((0.0..=100.0).contains(&terms.cohort.percent.get()));
        assert!(terms.presences.is_none_or(|presences| presences >= Presences::ONE));
        for key in &bucket.keys {
            assert!(Tenant::new(key.tenant.as_str()).is_ok());
            let Values { ratio, rate, cap, entitlement, guard, offered, at_tenant_limit: _ } = key.values;
            assert!(ratio.is_none_or(|ratio| ratio <= DropRatio::ALL));
            assert!([rate, cap, guard, offered].into_iter().flatten().all(is_valid_rate));
            if let Some(Entitlement { weight, floor, tenant_limit, .. }) = entitlement {
                assert!((Weight::MIN..=Weight::MAX).contains(&weight.get()));
                assert!(tenant_limit.into_iter().chain([floor]).all(is_valid_rate));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn corrupted_messages_are_rejected_or_valid(
        reports in any_stream(),
        directives in any_directives(),
        overwrites in vec((any::<Index>(), any::<u8>()), 0..6),
        cut: Index,
    ) {
        let (mut encoder, mut decoder) = (ReportEncoder::default(), ReportDecoder::default());
        for part in reports.iter().flat_map(|report| encoder.encode(report)) {
            let bytes = corrupt(&part.encode_to_vec(), &overwrites, cut);
            if let Ok(part) = wire::Report::decode(bytes.as_slice())
                && let Ok(Some(report)) = decoder.decode(part)
            {
                check_valid_report(&report);
            }
        }
        let mut decoder = DirectivesDecoder::default();
        for bytes in bytes_of(&directives) {
            let bytes = corrupt(&bytes, &overwrites, cut);
            if let Ok(part) = wire::Directives::decode(bytes.as_slice())
                && let Ok(Some(directives)) = decoder.decode(part)
            {
                check_valid_directives(&directives);
            }
        }
    }

    #[test]
    fn random_bytes_are_rejected_or_valid(bytes in vec(any::<u8>(), 0..64)) {
        if let Ok(part) = wire::Report::decode(bytes.as_slice())
            && let Ok(Some(report)) = ReportDecoder::default().decode(part)
        {
            check_valid_report(&report);
        }
        if let Ok(part) = wire::Directives::decode(bytes.as_slice())
            && let Ok(Some(directives)) = DirectivesDecoder::default().decode(part)
        {
            check_valid_directives(&directives);
        }
    }
}
