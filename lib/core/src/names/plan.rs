//! Plans: classes of unlisted tenants. The name of a tenant with a plan carries it, as `acme%~free`, so that every tier
//! finds the class of the name, `%~free`, in the name itself.

use super::{DEFAULT_TENANT, InvalidName, Tenant, check_name};

/// The longest name of a plan, in bytes.
pub const PLAN_BYTES_MAX: usize = 32;
/// Maximum number of plans of a policy.
pub const PLANS_MAX: usize = 64;
/// The separator between a tenant's own name and its plan. It is no escape, so no text that a caller sends contains it
/// once it is encoded.
const SEPARATOR: &str = "%~";

/// The longest name of a tenant, with its plan, in bytes.
pub const TENANT_BYTES_MAX: usize = super::NAME_BYTES_MAX + SEPARATOR.len() + PLAN_BYTES_MAX;

/// Checks the name of a plan: 1 to [`PLAN_BYTES_MAX`] bytes of the alphabet of names.
///
/// # Errors
/// The first rule that is broken.
pub fn check_plan(plan: &str) -> Result<(), InvalidName> {
    if plan.len() > PLAN_BYTES_MAX {
        return Err(InvalidName::PlanTooLong(plan.len()));
    }
    check_name(plan)
}

/// Splits the name of a tenant into its own name, which is empty for the class of a plan, and its class: that of its
/// plan, or [`DEFAULT_TENANT`]. Linear in the length.
pub fn split_class(tenant: &str) -> (&str, &str) {
    match separator_at(tenant) {
        Some(at) => tenant.split_at(at),
        None => (tenant, DEFAULT_TENANT),
    }
}

/// Returns the byte index of the separator. A search for a text prepares more than the whole search takes in a name.
fn separator_at(tenant: &str) -> Option<usize> {
    let mut pairs = tenant.as_bytes().windows(SEPARATOR.len());
    pairs.position(|pair| pair == SEPARATOR.as_bytes())
}

pub(super) fn split_plan(tenant: &str) -> (&str, Option<&str>) {
    let (own, class) = split_class(tenant);
    (own, class.strip_prefix(SEPARATOR))
}

/// Returns the plan in the name of a tenant or a class.
pub fn plan_of(tenant: &str) -> Option<&str> {
    split_plan(tenant).1
}

/// Returns the name of a tenant without its plan; that of a class as it is.
pub fn own_name(tenant: &str) -> &str {
    match split_class(tenant) {
        ("", class) => class,
        (own, _) => own,
    }
}

/// Returns true for the name of a class of unlisted tenants: [`DEFAULT_TENANT`], or the class of a plan.
pub fn is_class(tenant: &str) -> bool {
    tenant == DEFAULT_TENANT || is_class_of_plan(tenant)
}

/// Returns true for the name of the class of a plan.
pub fn is_class_of_plan(tenant: &str) -> bool {
    tenant.starts_with(SEPARATOR)
}

impl Tenant {
    /// Returns the name of the class of a plan.
    ///
    /// # Errors
    /// If `plan` is no name of a plan.
    pub fn class_of_plan(plan: &str) -> Result<Self, InvalidName> {
        check_plan(plan)?;
        Self::new(&format!("{SEPARATOR}{plan}"))
    }

    /// Returns true for a class of unlisted tenants: [`DEFAULT_TENANT`], or the class of a plan.
    pub fn is_class(&self) -> bool {
        is_class(&self.0)
    }

    /// Returns the plan that the name carries.
    pub fn plan(&self) -> Option<&str> {
        plan_of(&self.0)
    }
}

/// The name of a tenant with its plan, on the stack.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    bytes: [u8; TENANT_BYTES_MAX],
    length: usize,
}

impl Planned {
    /// Joins the valid own name of a tenant, empty for the class of the plan, and a valid plan; `None` if it is too
    /// long. Never allocates.
    pub fn of(tenant: &str, plan: &str) -> Option<Self> {
        let mut name = Self {
            bytes: [0; TENANT_BYTES_MAX],
            length: 0,
        };
        for part in [tenant, SEPARATOR, plan] {
            let room = name.bytes.get_mut(name.length..name.length + part.len())?;
            room.copy_from_slice(part.as_bytes());
            name.length += part.len();
        }
        Some(name)
    }
}

impl std::ops::Deref for Planned {
    type Target = str;

    fn deref(&self) -> &str {
        let name = self.bytes.get(..self.length);
        name.and_then(|name| str::from_utf8(name).ok())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Encoded;

    #[test]
    fn name_carries_its_plan() {
        let name = Planned::of("auth0%7C1a", "free").unwrap();
        assert_eq!(&*name, "auth0%7C1a%~free");
        assert_eq!(split_class(&name), ("auth0%7C1a", "%~free"));
        let tenant = Tenant::new(&name).unwrap();
        assert_eq!((tenant.plan(), tenant.is_class()), (Some("free"), false));
        let class = Tenant::class_of_plan("free").unwrap();
        assert_eq!((class.as_str(), class.is_class()), ("%~free", true));
        assert_eq!(split_class("acme"), ("acme", DEFAULT_TENANT));
        for (name, own) in [
            ("acme%~free", "acme"),
            ("%~free", "%~free"),
            ("acme", "acme"),
        ] {
            assert_eq!(own_name(name), own);
        }
        let longest = Planned::of(&"x".repeat(128), &"p".repeat(32)).unwrap();
        assert!(Tenant::new(&longest).is_ok());
    }

    #[test]
    fn callers_cannot_name_a_plan() {
        for text in ["%~free", "acme%~free"] {
            assert!(!Encoded::of(text).unwrap().contains(SEPARATOR), "{text}");
        }
        for name in [
            "a%~",
            "a%~b%~c",
            "a%~b c",
            "default%~b",
            &format!("a%~{}", "p".repeat(33)),
        ] {
            assert!(Tenant::new(name).is_err(), "{name}");
        }
    }
}
