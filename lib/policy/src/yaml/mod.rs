//! YAML as far as the policy allows it: structure with places, numbers as written, and errors that name file,
//! line and field.

mod entries;
mod error;
mod flag;
mod nearest;
mod number;
mod outline;
mod schema;
mod source;
mod spelling;

pub use entries::check_entries;
pub use error::{Checked, FAULTS_MAX, PolicyError, PolicyFault, SourcePlace};
pub use flag::Flag;
pub use nearest::hint;
pub use number::Number;
pub(crate) use outline::{NESTING_MAX, Node};
pub use schema::schema_of;
pub use source::{Document, FILE_BYTES_MAX, Field, Source};
