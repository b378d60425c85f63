//! The zone as the parent of other aggregators: who may stand below it, and what they are told.

use super::*;

impl Zone {
    /// Judges who stands below a child that is an aggregator.
    pub(super) fn check_path(&self, child: InstanceId, path: &Path) -> Result<(), Refused> {
        let further = self.upstream.above().saturating_add(1);
        path.check(self.identity.instance, child, further)
    }

    /// An aggregator takes its place among those below.
    pub(super) fn open_branch(
        &mut self,
        now: MonoTime,
        stream: StreamId,
        identity: Identity,
        report: &Report,
    ) -> Result<(), Refused> {
        let child = self.roster.open(now, stream, identity.clone())?;
        // Zones hold policy before their clients have traffic.
        self.board.iter().for_each(|(bucket, _)| child.wants(bucket));
        if let Some(replaced) = self.below.greet(now, &identity, report) {
            self.roster.remove(replaced);
        }
        self.shared = None;
        Ok(())
    }

    /// A bucket is new: aggregators below hear about all that are known here.
    pub(super) fn tell_below_of(&mut self, bucket: &Bucket) {
        for (instance, _) in self.below.iter() {
            if let Some(child) = self.roster.get_mut(instance) {
                child.wants(bucket);
            }
        }
    }

    /// Divides what may pass anew between clients and aggregators below, once a tick, or at once when somebody came whom
    /// nothing was left to; true if it did.
    pub(super) fn share(&mut self, moment: Moment) -> bool {
        let clients = moment.clients > 0;
        let is_due = self.shared.is_none_or(|(at, for_clients)| {
            // Occasions come a little early or late; half of one tells which of them is meant.
            for_clients != clients
                || moment.now.since(at) + self.parameters.fast_period / 2 >= self.parameters.tick
        });
        if is_due {
            self.shared = Some((moment.now, clients));
            self.flows.share(moment, &mut self.below);
        }
        is_due
    }

    /// Works out what aggregators below are to be told.
    pub(super) fn direct_below(&mut self, moment: Moment) {
        if self.below.is_empty() {
            return;
        }
        let quiet = self.quiet.holds_back();
        for (bucket, posted) in self.board.iter() {
            let directives = self.flows.directives_below(bucket, posted, moment, quiet, &self.below);
            let mut changed = false;
            let mode = self.mode(bucket, posted.terms());
            for (branch, mut directive) in self.below.iter_mut().zip(directives) {
                directive.terms.mode = mode;
                changed |= branch.board.apply(&directive);
            }
            if changed {
                self.below.on_change();
            }
        }
    }
}
