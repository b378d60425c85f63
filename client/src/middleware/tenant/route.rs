//! Tenants by the route of a router: `/orders/{id}` as the name `/orders/:id`.

use std::fmt::{self, Write};

use axum::extract::MatchedPath;
use plimsoll_core::names::check_name;

use super::found::{Find, Found, NameBuffer};
use crate::middleware::Head;

pub(super) struct Route;

impl Find for Route {
    fn find<'a>(&'a self, request: Head<'a>, buffer: &mut NameBuffer) -> Option<Found<'a>> {
        let template = request.extensions.get::<MatchedPath>()?.as_str();
        buffer.put(format_args!("{}", AsName(template)))
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("route")
    }
}

/// A template, of which the symbols that no name has are replaced: parameters begin with a colon, and other symbols
/// become `-`.
struct AsName<'a>(&'a str);

impl fmt::Display for AsName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for symbol in self.0.chars() {
            match symbol {
                '{' => f.write_char(':')?,
                '}' | '*' => {}
                _ if symbol.is_ascii() && check_name(symbol.encode_utf8(&mut [0; 4])).is_ok() => {
                    f.write_char(symbol)?
                }
                _ => f.write_char('-')?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_of_a_route_is_a_valid_name() {
        for (template, expected) in [
            ("/", "/"),
            ("/orders/{id}", "/orders/:id"),
            ("/v{version}/orders/{id}/items", "/v:version/orders/:id/items"),
            ("/files/{*rest}", "/files/:rest"),
            ("/a b/é/%20", "/a-b/-/-20"),
        ] {
            let name = AsName(template).to_string();
            assert_eq!(name, expected);
            assert_eq!(check_name(&name), Ok(()));
        }
    }
}
