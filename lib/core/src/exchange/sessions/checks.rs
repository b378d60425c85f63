//! Checks of reports and greetings before anything of them is taken.

use super::Sessions;
use crate::exchange::{StreamId, StreamRejected};
use crate::names::{Name, Zone};
use crate::report::{Identity, Report, Role};

impl Sessions {
    /// Checks a report before anything of it is taken, and returns the identity of the child: that of its
    /// session, or of its greeting. A report with an identity that passes is a greeting.
    ///
    /// # Errors
    /// Every cause for [`open`](Self::open) or the books of the child to refuse the report, or too many keys of
    /// its service.
    pub fn check<'a>(
        &'a self,
        stream: StreamId,
        report: &'a Report,
    ) -> Result<&'a Identity, StreamRejected> {
        let instance = self.streams.get(&stream);
        let known = instance.and_then(|instance| self.children.get(instance));
        match (
            known.filter(|child| child.stream == Some(stream)),
            &report.greeting.identity,
        ) {
            (Some(child), None) => {
                child.books.check(report)?;
                self.check_room(&child.identity, child.books.new_keys(report))?;
                Ok(&child.identity)
            }
            (None, Some(identity)) => {
                self.check_open(stream, identity)?;
                self.new_books(identity.role).check(report)?;
                self.check_room(identity, report.definitions.len())?;
                Ok(identity)
            }
            (Some(_), Some(_)) | (None, None) => Err(StreamRejected::Greeting),
        }
    }

    fn check_room(&self, child: &Identity, new_keys: usize) -> Result<(), StreamRejected> {
        if self.key_room.has_room(child, new_keys) {
            return Ok(());
        }
        let (service, keys_max) = (child.service.clone(), self.key_room.of_service_max());
        Err(StreamRejected::NoKeyRoom { service, keys_max })
    }

    pub(super) fn check_open(
        &self,
        stream: StreamId,
        identity: &Identity,
    ) -> Result<(), StreamRejected> {
        match self.children.get(&identity.instance) {
            Some(child) if child.stream.is_some_and(|present| present > stream) => {
                Err(StreamRejected::Unknown)
            }
            // Certificates fix the role and the zone, and the service of a client, so no other one takes the session
            // over.
            Some(child) if certified_part(&child.identity) != certified_part(identity) => {
                Err(StreamRejected::WrongTier(
                    "this instance has greeted with another role, zone or service; each process draws an instance of \
                     its own",
                ))
            }
            None if self.connected_count() >= self.children_max => {
                Err(StreamRejected::Full(self.children_max))
            }
            Some(_) | None => Ok(()),
        }
    }
}

const fn certified_part(identity: &Identity) -> (Role, &Zone, &Name) {
    (identity.role, &identity.zone, &identity.service)
}
