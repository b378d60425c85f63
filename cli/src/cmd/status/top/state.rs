//! The state of `plimsoll top`: what keys and answers make of it. It reads no clock and no terminal.

use plimsoll_controller::admin::status::Status;
use plimsoll_controller::admin::status::why::Why;
use plimsoll_core::names::{Bucket, Tenant};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::rows::{Row, columns, rows};
use crate::cmd::status::why;

const FILTER_BYTES_MAX: usize = 128;

/// A page of the screen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum View {
    #[default]
    Buckets,
    /// Tenants of one bucket, or of all.
    Tenants(Option<Bucket>),
    Zones,
    Problems,
    Why(Bucket, Tenant),
}

/// A view with its order, its filter and its selected row.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) view: View,
    /// Index of the column that rows are sorted by.
    pub(super) sort: usize,
    pub(super) is_rising: bool,
    pub(super) filter: String,
    /// [`Row::id`] of the selected row, which answers may move.
    selected: Option<[String; 2]>,
    /// Its index, for when it is gone; in a text, the first line that is shown.
    pub(super) at: usize,
}

/// An answer of the controller.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) status: Result<Status, String>,
    /// To the last question of [`Top::asks`].
    pub(super) why: Option<Result<Why, String>>,
    /// In seconds since 1970.
    pub(super) at_s: i64,
}

#[derive(Debug, Default)]
pub(super) struct Top {
    pub(super) page: Page,
    /// The pages that Esc returns to.
    under: Vec<Page>,
    /// True while keys are letters of the filter.
    pub(super) is_typing: bool,
    pub(super) status: Option<Status>,
    pub(super) answered_s: Option<i64>,
    /// Why there is no newer answer.
    pub(super) failure: Option<String>,
    why: Option<Result<Why, String>>,
    /// The number of rows that fit.
    pub(super) height: usize,
}

impl Page {
    fn new(view: View) -> Self {
        let is_rising = view == View::Zones;
        Self {
            view,
            // By zone, REFUSED or LAW.
            sort: if is_rising { 0 } else { 4 },
            is_rising,
            ..Self::default()
        }
    }
}

impl Top {
    pub(super) fn new() -> Self {
        Self {
            page: Page::new(View::Buckets),
            ..Self::default()
        }
    }

    /// Returns the question to ask besides the status.
    pub(super) fn asks(&self) -> Option<(Bucket, Tenant)> {
        match &self.page.view {
            View::Why(bucket, tenant) => Some((bucket.clone(), tenant.clone())),
            _ => None,
        }
    }

    pub(super) fn answered(&mut self, look: Look) {
        self.failure = look.status.as_ref().err().cloned();
        if let Ok(status) = look.status {
            (self.status, self.answered_s) = (Some(status), Some(look.at_s));
        }
        let asked = self.asks();
        let is_asked = |why: &Result<Why, String>| match why {
            Ok(why) => asked == Some((why.bucket.clone(), why.tenant.clone())),
            Err(_) => asked.is_some(),
        };
        self.why = look.why.filter(is_asked).or(self.why.take());
    }

    /// Returns the rows of the page that match its filter, in its order, and the index of the selected one.
    pub(super) fn rows(&self) -> (Vec<Row<'_>>, usize) {
        let page = &self.page;
        let filter = page.filter.to_lowercase();
        let all = self.status.iter().flat_map(|it| rows(it, &page.view));
        let matches = |row: &Row<'_>| row.id.iter().any(|it| it.to_lowercase().contains(&filter));
        let mut rows: Vec<Row<'_>> = all.filter(matches).collect();
        rows.sort_by(|one, other| {
            let by = |column: usize| one.cells[column].cmp(&other.cells[column]);
            let order = if page.is_rising {
                by(page.sort)
            } else {
                by(page.sort).reverse()
            };
            // Of equal rows the busier one is first, or the longer silent one.
            order
                .then(by(2).reverse())
                .then_with(|| one.id.cmp(&other.id))
        });
        let is_selected = |row: &Row<'_>| page.selected.as_ref().is_some_and(|it| *it == row.id);
        let at = rows.iter().position(is_selected).unwrap_or(page.at);
        let at = at.min(rows.len().saturating_sub(1));
        (rows, at)
    }

    /// Handles a key. Returns true if the program ends.
    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return key.code == KeyCode::Char('c');
        }
        if self.is_typing {
            self.typed(key.code);
            return false;
        }
        let screen = isize::try_from(self.height).unwrap_or(1);
        match key.code {
            KeyCode::Char('q') => return true,
            KeyCode::Char('1') => self.turn_to(View::Buckets),
            KeyCode::Char('2') => self.turn_to(View::Tenants(None)),
            KeyCode::Char('3') => self.turn_to(View::Zones),
            KeyCode::Char('4') => self.turn_to(View::Problems),
            KeyCode::Char('/') => self.is_typing = self.is_table(),
            KeyCode::Char('r') => self.page.is_rising = !self.page.is_rising,
            KeyCode::Char('s') => {
                self.page.sort = (self.page.sort + 1) % columns(&self.page.view).len().max(1);
            }
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-screen),
            KeyCode::PageDown => self.step(screen),
            KeyCode::Home => self.step(isize::MIN),
            KeyCode::End => self.step(isize::MAX),
            KeyCode::Enter => self.open(),
            KeyCode::Esc => match self.under.pop() {
                Some(page) => self.page = page,
                None => self.page.filter.clear(),
            },
            _ => {}
        }
        false
    }

    pub(super) fn is_table(&self) -> bool {
        !columns(&self.page.view).is_empty()
    }

    fn typed(&mut self, key: KeyCode) {
        let filter = &mut self.page.filter;
        match key {
            KeyCode::Backspace => drop(filter.pop()),
            KeyCode::Char(letter) if filter.len() < FILTER_BYTES_MAX => filter.push(letter),
            KeyCode::Esc => filter.clear(),
            _ => {}
        }
        self.is_typing = !matches!(key, KeyCode::Enter | KeyCode::Esc);
    }

    fn turn_to(&mut self, view: View) {
        self.under.clear();
        self.page = Page::new(view);
    }

    fn step(&mut self, by: isize) {
        let (rows, at) = self.rows();
        let (at, count) = match self.is_table() {
            true => (at, rows.len()),
            false => (self.page.at, self.text().lines().count()),
        };
        let at = at.saturating_add_signed(by).min(count.saturating_sub(1));
        let selected = rows.get(at).map(|row| row.id.map(str::to_owned));
        (self.page.at, self.page.selected) = (at, selected);
    }

    /// Opens the tenants of the selected bucket, or why the selected tenant is refused.
    fn open(&mut self) {
        // Answers may move the row before Esc returns to it.
        self.step(0);
        let Some([bucket, tenant]) = &self.page.selected else {
            return;
        };
        let (bucket, tenant) = (Bucket::new(bucket).ok(), Tenant::new(tenant).ok());
        let view = match (&self.page.view, bucket, tenant) {
            (View::Buckets, bucket @ Some(_), _) => View::Tenants(bucket),
            (View::Tenants(_), Some(bucket), Some(tenant)) => View::Why(bucket, tenant),
            _ => return,
        };
        self.why = None;
        let page = std::mem::replace(&mut self.page, Page::new(view));
        self.under.push(page);
    }

    /// Returns the text of a page without rows.
    pub(super) fn text(&self) -> String {
        let problems = self.status.iter().flat_map(|it| &it.problems);
        match (&self.page.view, &self.why) {
            (View::Why(..), None) => "asking ..".to_owned(),
            (View::Why(..), Some(Err(failure))) => failure.clone(),
            (View::Why(..), Some(Ok(why))) => {
                let mut text = Vec::new();
                // Memory takes every byte.
                let _ = why::write(&mut text, why);
                String::from_utf8_lossy(&text).into_owned()
            }
            _ if self.status.is_none() => "no answer yet".to_owned(),
            _ => {
                let each = problems
                    .map(|it| format!("{}: {}\n  {}\n", it.severity.as_str(), it.text, it.remedy));
                let text: String = each.collect();
                if text.is_empty() {
                    "no problem".to_owned()
                } else {
                    text
                }
            }
        }
    }
}
