//! The addresses of one logical parent, such as controllers of which one leads.

use tokio::sync::watch;

use super::Dial;

/// Maximum number of addresses of a parent.
const PARENTS_MAX: usize = 16;

/// The addresses of one logical parent. A child has one stream, to the address that answers as the parent.
#[derive(Clone, Debug)]
pub struct ParentList(Vec<Dial>);

/// Reason why a list of addresses is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidParentList {
    /// There is no address.
    #[error("there is no parent address")]
    Empty,
    /// There are too many addresses.
    #[error("{0} parent addresses exceed the maximum of {PARENTS_MAX}")]
    TooMany(usize),
    /// Two addresses have the same host and port.
    #[error("the parent address `{0}` is given twice")]
    Duplicate(String),
}

impl ParentList {
    /// Checks a list of addresses. Connects to nothing yet.
    ///
    /// # Errors
    /// If it is empty, has more than 16 addresses, or one twice.
    pub fn new(dials: Vec<Dial>) -> Result<Self, InvalidParentList> {
        match dials.len() {
            0 => return Err(InvalidParentList::Empty),
            count if count > PARENTS_MAX => return Err(InvalidParentList::TooMany(count)),
            _ => {}
        }
        let list = Self(dials);
        for (number, dial) in list.0.iter().enumerate() {
            let authority = dial.authority();
            if list.position(&authority) != Some(number) {
                return Err(InvalidParentList::Duplicate(authority));
            }
        }
        Ok(list)
    }

    pub(crate) fn dials(&self) -> &[Dial] {
        &self.0
    }

    pub(crate) fn position(&self, authority: &str) -> Option<usize> {
        self.0.iter().position(|dial| dial.authority() == authority)
    }

    /// Returns a receiver of the number of the current certificate, which each renewal raises; `None` without certificates.
    pub(crate) fn certificate_changes(&self) -> Option<watch::Receiver<u64>> {
        self.0.iter().find_map(Dial::certificate_changes)
    }
}

impl From<Dial> for ParentList {
    fn from(dial: Dial) -> Self {
        Self(vec![dial])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Security;

    fn list(addresses: &[String]) -> Result<usize, InvalidParentList> {
        let security = Security::Plain { anywhere: true };
        let dials = addresses
            .iter()
            .map(|address| Dial::new(address, &security).unwrap());
        ParentList::new(dials.collect()).map(|list| list.dials().len())
    }

    #[test]
    fn list_names_each_address_once() {
        let hosts = |count| (0..count).map(|host| format!("http://h{host}:1"));
        let each: Vec<String> = hosts(17).collect();
        assert_eq!(list(&each[..1]), Ok(1));
        assert_eq!(list(&each[..16]), Ok(16));
        assert_eq!(list(&each), Err(InvalidParentList::TooMany(17)));
        assert_eq!(list(&[]), Err(InvalidParentList::Empty));
        let twice: Vec<String> = hosts(2).chain(["http://H0:1/".to_owned()]).collect();
        assert_eq!(
            list(&twice),
            Err(InvalidParentList::Duplicate("h0:1".to_owned()))
        );
    }
}
