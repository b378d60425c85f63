//! Where the store is, and one connection to each of its members.

mod address;
mod member;
mod options;
#[cfg(test)]
mod tests;
mod tls;

pub(crate) use address::Endpoint;
pub use address::{AddressError, ENDPOINTS_MAX, PREFIX_BYTES_MAX, StoreAddress};
pub(crate) use member::Member;
pub use options::{Credentials, Options};
pub use tls::{ClientFiles, TlsError, TlsFiles};
