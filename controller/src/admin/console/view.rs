//! What a viewer asks for, and the page of a long list that answers it: a large fleet is searched, sorted and cut here,
//! not in a browser.

use plimsoll_core::names::Bucket;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of rows of a page.
pub(super) const ROWS_MAX: usize = 50;
/// Maximum length of a text that is searched for, in bytes.
const SEARCH_BYTES_MAX: usize = 128;

/// The parameters of the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::admin) struct View {
    /// A part of the names of buckets.
    #[schemars(length(max = SEARCH_BYTES_MAX))]
    pub(super) search: String,
    pub(super) sort: Sort,
    /// From 0; the last one if there are fewer.
    pub(super) page: usize,
    /// The bucket that is shown with its tenants.
    pub(super) bucket: Option<Bucket>,
    /// A part of the names of its tenants.
    #[schemars(length(max = SEARCH_BYTES_MAX))]
    pub(super) tenant: String,
    pub(super) tenant_page: usize,
}

/// The order of buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Sort {
    /// Killed ones and the most refused requests/s first, then by name.
    #[default]
    Worst,
    Name,
    Offered,
}

/// A part of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Page<T> {
    /// Number of all items.
    pub(super) total: usize,
    /// Number of the items that were searched for.
    pub(super) matching: usize,
    /// The page, from 0, and the number of pages.
    pub(super) page: usize,
    pub(super) pages: usize,
    pub(super) rows: Vec<T>,
}

// === impl View ===

impl View {
    /// Checks that the texts are short.
    ///
    /// # Errors
    /// With the reason if one is too long.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.search.len().max(self.tenant.len()) {
            0..=SEARCH_BYTES_MAX => Ok(()),
            _ => Err(format!(
                "search, tenant: must have at most {SEARCH_BYTES_MAX} bytes"
            )),
        }
    }
}

// === impl Page ===

impl<T> Page<T> {
    /// Cuts a sorted list of the items that were found.
    pub(super) fn cut<I>(
        total: usize,
        found: Vec<I>,
        page: usize,
        row: impl FnMut(I) -> T,
    ) -> Self {
        let matching = found.len();
        let pages = matching.div_ceil(ROWS_MAX).max(1);
        let page = page.min(pages - 1);
        let shown = found.into_iter().skip(page * ROWS_MAX).take(ROWS_MAX);
        Self {
            total,
            matching,
            page,
            pages,
            rows: shown.map(row).collect(),
        }
    }
}
