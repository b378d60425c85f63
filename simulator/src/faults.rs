//! What breaks in a run, and when it is mended.

/// A scripted fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) what: What,
    pub(crate) at_s: f64,
    /// `None`: for good.
    pub(crate) until_s: Option<f64>,
    /// Whoever lost its parent comes back within so many seconds after the end.
    pub(crate) reconnect_s: (f64, f64),
}

/// What breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The controller's process dies; the next one knows nothing but what was stored.
    ControllerDown,
    /// Every zone is cut off from the controller, which goes on.
    ControllerCut,
    /// The link between one zone and the controller is cut.
    ZonePartition(u32),
    /// A zone's aggregator dies and another one takes its place.
    ZoneCrash(u32),
    /// A zone's aggregator and clients vanish for good.
    ZoneDead(u32),
    /// A client's process dies and another one takes its place.
    ClientCrash(u32),
    /// The link between one client and its aggregator is cut.
    ClientPartition(u32),
}

impl Fault {
    /// Whether the load of a client in `zone` is lost at `t`, because nobody is there to send or take it.
    pub(crate) fn takes_load(&self, client: u32, zone: u32, t: f64) -> bool {
        let concerned = match self.what {
            What::ZoneDead(dead) => dead == zone,
            What::ClientCrash(crashed) => crashed == client,
            _ => false,
        };
        concerned && t >= self.at_s && self.until_s.is_none_or(|until| t < until)
    }
}
