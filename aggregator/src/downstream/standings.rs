//! The standings of unlisted names that each client was sent. A client receives the standing of a
//! name after it has reported requests of it, so it receives no names of other clients.

use std::collections::HashMap;

use plimsoll_core::directive::STANDINGS_MAX;
use plimsoll_core::law::tail::Standing;
use plimsoll_core::names::KeyId;
use plimsoll_core::report::InstanceId;

use super::classes::SentClasses;

#[derive(Debug, Default)]
pub(crate) struct Standings {
    by_client: HashMap<InstanceId, SentStandings>,
}

#[derive(Debug, Default)]
pub(crate) struct SentStandings {
    /// Codes of standings, by the client's id of the key; [`UNKNOWN`] before the first.
    codes: Vec<u16>,
    /// Ids with a changed standing since the last message.
    changed: Vec<KeyId>,
    pub(crate) classes: SentClasses,
}

/// No code: the client was sent no standing.
const UNKNOWN: u16 = u16::MAX;

impl Standings {
    pub(crate) fn open(&mut self, client: InstanceId) {
        self.by_client.insert(client, SentStandings::default());
    }

    pub(crate) fn prune(&mut self, is_known: impl Fn(InstanceId) -> bool) {
        self.by_client.retain(|client, _| is_known(*client));
    }

    pub(crate) fn of(&mut self, client: InstanceId) -> &mut SentStandings {
        self.by_client.entry(client).or_default()
    }
}

impl SentStandings {
    /// Gives the id to another name, of which the client was sent nothing.
    pub(crate) fn define(&mut self, id: KeyId) {
        if let Some(code) = self.codes.get_mut(id.index()) {
            *code = UNKNOWN;
        }
        self.classes.define(id);
    }

    /// Returns the standing that the client was sent, or is sent with the next messages.
    #[inline]
    pub(crate) fn held(&self, id: KeyId) -> Option<Standing> {
        Standing::from_code(self.code(id).into()).ok()
    }

    #[inline]
    fn code(&self, id: KeyId) -> u16 {
        self.codes.get(id.index()).copied().unwrap_or(UNKNOWN)
    }

    /// Notes the present standing of a name. A new bin without another change is not worth a
    /// message unless `has_bins` is true, because names are cut.
    #[inline]
    pub(crate) fn note(&mut self, id: KeyId, standing: Standing, has_bins: bool) {
        let (code, held) = (standing.code(), self.code(id));
        if held == code || (!has_bins && held != UNKNOWN && (held ^ code) & 1 == 0) {
            return;
        }
        if self.codes.len() <= id.index() {
            self.codes.resize(id.index() + 1, UNKNOWN);
        }
        self.codes[id.index()] = code;
        self.changed.push(id);
    }

    /// Takes the changes since the last message, by ascending ids, and at most as many as one carries.
    pub(crate) fn take(&mut self) -> Vec<(KeyId, Standing)> {
        self.changed.sort_unstable();
        self.changed.dedup();
        let later = self
            .changed
            .split_off(self.changed.len().min(STANDINGS_MAX));
        let now = std::mem::replace(&mut self.changed, later);
        let standing = |id| self.held(id).unwrap_or_default();
        now.into_iter().map(|id| (id, standing(id))).collect()
    }
}
