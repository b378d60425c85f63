//! The check that the fleet admits what the limit of a bucket allows, from the counts of all zones.

use plimsoll_core::quantity::MonoTime;

use super::BucketState;

impl BucketState {
    /// Judges the last seconds. `divisible` is the rate that is divided between zones, `None` while
    /// not all of them live on rates and report. Counts do not distinguish refusals of a tenant
    /// limit, so a bucket with a tenant limit is not judged.
    pub(crate) fn check_admissions(&mut self, now: MonoTime, divisible: Option<f64>) {
        let is_judged = !self.tenants.have_limits();
        self.admissions
            .on_tick(now, |_| divisible.filter(|rate| is_judged && *rate > 0.0));
        self.refusals.on_tick(now);
    }
}
