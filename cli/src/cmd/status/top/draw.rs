//! Draws `plimsoll top`: only rows that are visible, and no colour, so that every terminal shows the same.

use plimsoll_policy::UnixSeconds;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Stylize;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table, Wrap};

use super::rows::{Cell, columns};
use super::state::{Top, View};
use crate::output::printable;

/// Lines around the rows of a table.
pub(super) const FRAME_LINES: u16 = 6;
/// Age in seconds from which an answer is shown as old. The controller is asked each second.
const OLD_S: i64 = 5;
/// Columns of words, beside the first one.
const TEXTS: [&str; 4] = ["BUCKET", "MODE", "REASON", "STATE"];
const KEYS: &str =
    "q quit Enter open Esc back 1 buckets 2 tenants 3 zones 4 problems s sort / find";

pub(super) fn draw(frame: &mut Frame<'_>, top: &Top, now_s: i64) {
    let heights = [2, 1, 1, 0, 1].map(|lines| match lines {
        0 => Constraint::Fill(1),
        lines => Constraint::Length(lines),
    });
    let [verdict, freshness, title, body, keys] = Layout::vertical(heights).areas(frame.area());
    let said = printable(top.status.as_ref().map_or("", |it| &it.verdict));
    frame.render_widget(
        Paragraph::new(said.bold()).wrap(Wrap { trim: true }),
        verdict,
    );
    frame.render_widget(Line::raw(printable(&freshness_of(top, now_s))), freshness);
    let place = match top.is_table() {
        true => draw_table(frame, top, body),
        false => {
            let text = top.text();
            let first = top.page.at.min(text.lines().count().saturating_sub(1));
            let shown: Vec<&str> = text.lines().skip(first).collect();
            let shown = Paragraph::new(printable(&shown.join("\n")));
            frame.render_widget(shown.wrap(Wrap { trim: false }), body);
            String::new()
        }
    };
    frame.render_widget(Line::raw(title_of(top, &place)).reversed(), title);
    let shown = match top.is_typing {
        true => format!(
            "find: {}_  (Enter keeps it, Esc clears it)",
            top.page.filter
        ),
        false => KEYS.to_owned(),
    };
    frame.render_widget(Line::raw(printable(&shown)), keys);
}

fn freshness_of(top: &Top, now_s: i64) -> String {
    let cause = top.failure.as_deref().and_then(|it| it.lines().next());
    let Some(at) = top.answered_s else {
        return format!("NO ANSWER: {}", cause.unwrap_or("asking .."));
    };
    if cause.is_some() || now_s - at >= OLD_S {
        let cause = cause.unwrap_or("the controller has not answered yet");
        let (since, age) = (UnixSeconds::from_secs(at), now_s.saturating_sub(at));
        return format!("OLD since {since}, for {age} s: {cause}");
    }
    match &top.status {
        // The verdict of a healthy fleet has the summary.
        Some(status) if status.problems.is_empty() => format!(
            "controller: epoch {}, policy {}, version {}",
            status.epoch, status.policy_hash, status.version
        ),
        Some(status) => status.summary.clone(),
        None => String::new(),
    }
}

fn title_of(top: &Top, place: &str) -> String {
    let page = &top.page;
    let view = match &page.view {
        View::Buckets => "buckets".to_owned(),
        View::Tenants(None) => "tenants".to_owned(),
        View::Tenants(Some(bucket)) => format!("tenants of {bucket}"),
        View::Zones => "zones".to_owned(),
        View::Problems => "problems".to_owned(),
        View::Why(bucket, tenant) => format!("why {tenant} {bucket}"),
    };
    let way = if page.is_rising { "up" } else { "down" };
    let order = columns(&page.view).get(page.sort);
    let order = order.map_or(String::new(), |column| format!(", {way} by {column}"));
    let filter = match page.filter.as_str() {
        "" => String::new(),
        filter => format!(", with {filter}"),
    };
    printable(&format!("{view} {place}{order}{filter} "))
}

/// Draws the rows that fit. Returns the place of the selected one.
fn draw_table(frame: &mut Frame<'_>, top: &Top, area: Rect) -> String {
    let (columns, (rows, selected)) = (columns(&top.page.view), top.rows());
    // Whole pages need no memory of what was scrolled.
    let height = usize::from(area.height).saturating_sub(1).max(1);
    let first = selected / height * height;
    let visible = rows.iter().enumerate().skip(first).take(height);
    let visible = visible.map(|(at, row)| {
        let mark = if at == selected { ">" } else { " " };
        let line = |(column, cell): (usize, &Cell<'_>)| match columns[column] {
            _ if column == 0 => Line::raw(printable(&format!("{mark}{cell}"))),
            title if TEXTS.contains(&title) => Line::raw(printable(&cell.to_string())),
            _ => Line::raw(cell.to_string()).right_aligned(),
        };
        let row = Row::new(row.cells.iter().enumerate().map(line));
        if at == selected { row.reversed() } else { row }
    });
    let titles = columns.iter().enumerate().map(|(at, title)| match at {
        0 => Line::raw(format!(" {title}")),
        _ if TEXTS.contains(title) => Line::raw(*title),
        _ => Line::raw(*title).right_aligned(),
    });
    let width = |(at, title): (usize, &&str)| match *title {
        _ if at == 0 => Constraint::Min(16),
        "BUCKET" | "REASON" | "STATE" => Constraint::Length(16),
        _ => Constraint::Length(8),
    };
    let widths = columns.iter().enumerate().map(width);
    let table = Table::new(visible, widths).header(Row::new(titles).bold());
    frame.render_widget(table, area);
    match rows.len() {
        0 => "none".to_owned(),
        count => format!("{} of {count}", selected + 1),
    }
}
