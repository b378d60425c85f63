//! The duration and the end of one admitted request.

use std::time::Instant;

use plimsoll_core::report::Side;

use crate::limiter::Recorder;
use crate::responses::Ending;

/// The timer of an admitted request. Dropping it before the end records the request as aborted by its caller.
#[derive(Debug)]
pub(super) struct Timing {
    recorder: Recorder,
    side: Side,
    started: Instant,
    ended: bool,
}

impl Timing {
    pub(super) fn start(recorder: Recorder) -> Self {
        let side = recorder.table.responses.side(recorder.bucket as usize);
        Self { recorder, side, started: Instant::now(), ended: false }
    }

    pub(super) fn end(&mut self, ending: Ending) {
        if !std::mem::replace(&mut self.ended, true) {
            let responses = &self.recorder.table.responses;
            responses.ended(self.recorder.bucket as usize, self.side, self.started.elapsed(), ending);
        }
    }
}

impl Drop for Timing {
    fn drop(&mut self) {
        self.end(Ending::Aborted);
    }
}

/// Records a refusal.
pub(super) fn refused(recorder: &Recorder, status: u16) {
    let (responses, bucket) = (&recorder.table.responses, recorder.bucket as usize);
    responses.refused(bucket, responses.side(bucket), status);
}
