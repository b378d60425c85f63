//! The modes of buckets in the reports to the parent: modes that a controller sent and may have
//! lost, and clients that carry out less.

use std::collections::BTreeMap;

use plimsoll_core::decision::Mode;
use plimsoll_core::names::Bucket;
use plimsoll_core::report::ReportedMode;

/// The clients that were reported on the present stream, by bucket; of a bucket without an entry none.
#[derive(Debug, Default)]
pub(crate) struct ReportedModes {
    sent: BTreeMap<Bucket, u32>,
}

impl ReportedModes {
    /// Returns the modes for the next report: in a greeting all, else modes with a changed number
    /// of clients.
    pub(crate) fn take<'a>(
        &mut self,
        is_greeting: bool,
        buckets: impl Iterator<Item = (&'a Bucket, Mode, u32)>,
    ) -> BTreeMap<Bucket, ReportedMode> {
        let mut before = std::mem::take(&mut self.sent);
        let mut changed = BTreeMap::new();
        for (bucket, directed, unapplied) in buckets {
            let sent = before
                .remove(bucket)
                .filter(|_| !is_greeting)
                .unwrap_or_default();
            if unapplied > 0 {
                self.sent.insert(bucket.clone(), unapplied);
            }
            if is_greeting || unapplied != sent {
                let directed = Some(directed).filter(|_| is_greeting);
                changed.insert(
                    bucket.clone(),
                    ReportedMode {
                        directed,
                        unapplied,
                    },
                );
            }
        }
        // A removed bucket.
        changed.extend(
            before
                .into_keys()
                .map(|bucket| (bucket, ReportedMode::default())),
        );
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greeting_reports_all_modes_then_only_changes() {
        let (api, web) = (Bucket::new("api").unwrap(), Bucket::new("web").unwrap());
        let mut modes = ReportedModes::default();
        let mut take = |is_greeting, buckets: &[(&Bucket, u32)]| {
            let buckets = buckets
                .iter()
                .map(|(bucket, unapplied)| (*bucket, Mode::Enforce, *unapplied));
            let taken = modes.take(is_greeting, buckets).into_iter();
            taken
                .map(|(bucket, mode)| (bucket, mode.directed, mode.unapplied))
                .collect::<Vec<_>>()
        };
        let enforce = Some(Mode::Enforce);
        assert_eq!(
            take(true, &[(&api, 2), (&web, 0)]),
            [(api.clone(), enforce, 2), (web.clone(), enforce, 0)]
        );
        assert_eq!(take(false, &[(&api, 2), (&web, 0)]), []);
        assert_eq!(
            take(false, &[(&api, 0), (&web, 1)]),
            [(api.clone(), None, 0), (web.clone(), None, 1)]
        );
        assert_eq!(take(false, &[(&api, 0)]), [(web.clone(), None, 0)]);
        assert_eq!(take(true, &[(&api, 0)]), [(api.clone(), enforce, 0)]);
    }
}
