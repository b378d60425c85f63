//! One request from when it was let through to when it ended: how long it took, and how.

use std::time::Instant;

use plimsoll_core::report::Side;

use crate::limiter::Recorder;
use crate::responses::Ending;

/// A request that was let through. One that is dropped before it ended was given up by its caller.
#[derive(Debug)]
pub(super) struct Timing {
    recorder: Recorder,
    side: Side,
    begun: Instant,
    ended: bool,
}

impl Timing {
    pub(super) fn begin(recorder: Recorder) -> Self {
        let side = recorder.table.responses.side(recorder.bucket as usize);
        Self { recorder, side, begun: Instant::now(), ended: false }
    }

    pub(super) fn end(&mut self, ending: Ending) {
        if !std::mem::replace(&mut self.ended, true) {
            let responses = &self.recorder.table.responses;
            responses.ended(self.recorder.bucket as usize, self.side, self.begun.elapsed(), ending);
        }
    }
}

impl Drop for Timing {
    fn drop(&mut self) {
        self.end(Ending::Aborted);
    }
}

/// A request was answered in the service's place.
pub(super) fn refused(recorder: &Recorder, status: u16) {
    let (responses, bucket) = (&recorder.table.responses, recorder.bucket as usize);
    responses.refused(bucket, responses.side(bucket), status);
}
