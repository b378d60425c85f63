//! Scripted faults and their ends.

/// A scripted fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) failure: Failure,
    pub(crate) at_s: f64,
    /// The end of the fault; `None` for a permanent one.
    pub(crate) until_s: Option<f64>,
    /// The span after the end in which children reconnect, from and to, in seconds.
    pub(crate) reconnect_s: (f64, f64),
}

/// The failing process or link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The controller's process dies; the next one starts from the saved state.
    ControllerDown,
    /// The links of all zones to the controller are cut while the controller runs.
    ControllerCut,
    /// The link between one zone and the controller is cut.
    ZonePartition(u32),
    /// A zone's aggregator dies and is replaced at the fault's end.
    ZoneCrash(u32),
    /// A zone's aggregator and clients die for good.
    ZoneDead(u32),
    /// A client's process dies and is replaced at the fault's end.
    ClientCrash(u32),
    /// The link between one client and its aggregator is cut.
    ClientPartition(u32),
}

impl Fault {
    /// Returns true if the load of a client in `zone` is lost at `t`, because the client's process does not
    /// run.
    pub(crate) fn takes_load(&self, client: u32, zone: u32, t: f64) -> bool {
        let concerned = match self.failure {
            Failure::ZoneDead(dead) => dead == zone,
            Failure::ClientCrash(crashed) => crashed == client,
            _ => false,
        };
        concerned && t >= self.at_s && self.until_s.is_none_or(|until| t < until)
    }
}
