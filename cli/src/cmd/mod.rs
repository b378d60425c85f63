//! The commands of operators, and the demo service.

pub(crate) mod apply;
pub(crate) mod audit;
pub(crate) mod check;
pub(crate) mod credentials;
pub(crate) mod history;
pub(crate) mod kill;
pub(crate) mod quota;
pub(crate) mod rollout;
pub(crate) mod service;
pub(crate) mod simulate;
pub(crate) mod state;
pub(crate) mod status;
