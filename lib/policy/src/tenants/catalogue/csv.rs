//! Catalogues as comma-separated values: a line of names of columns, then a row a line.

use std::borrow::Cow;

use csv::{ReaderBuilder, StringRecord};
use plimsoll_core::names::nearest;

use super::rows::{RawRow, Rows};
use crate::yaml::{Checked, PolicyError};

const COLUMNS: [&str; 5] = ["tenant", "plan", "weight", "floor_rps", "limits"];

/// Reads all rows. An error is about the file as a whole.
pub(super) fn read(text: &str, rows: &mut Rows<'_>) -> Result<(), PolicyError> {
    let mut reader = ReaderBuilder::new()
        .flexible(true)
        .from_reader(text.as_bytes());
    let columns = match reader.headers() {
        Ok(header) => columns(header, rows)?,
        Err(error) => return Err(rows.fault(1, "", &error.to_string(), HEADER_HINT).into()),
    };
    let mut record = StringRecord::new();
    while rows.goes_on() {
        let line = reader.position().line();
        match reader.read_record(&mut record) {
            Ok(false) => break,
            Ok(true) => {
                let line = record.position().map_or(line, csv::Position::line);
                let row = row(line, &record, &columns, rows);
                rows.add(line, row);
            }
            Err(error) => {
                let fault = rows.fault(line, "", &error.to_string(), "see the line");
                rows.add(line, Err(fault));
                break;
            }
        }
    }
    Ok(())
}

const HEADER_HINT: &str =
    "the first line names the columns: tenant, and any of plan, weight, floor_rps and limits";

/// Returns the column of each cell, by its number among [`COLUMNS`].
fn columns(header: &StringRecord, rows: &Rows<'_>) -> Checked<Vec<usize>> {
    let mut columns = Vec::with_capacity(header.len());
    for name in header {
        let column = COLUMNS.iter().position(|column| *column == name);
        let Some(column) = column.filter(|column| !columns.contains(column)) else {
            let what = match column {
                Some(_) => format!("two columns `{name}`"),
                None => format!("unknown column `{name}`"),
            };
            let near = nearest(name, COLUMNS).map(|near| format!("did you mean `{near}`? "));
            let hint = near.unwrap_or_default() + HEADER_HINT;
            return Err(rows.fault(1, "", &what, &hint));
        };
        columns.push(column);
    }
    if !columns.contains(&0) {
        return Err(rows.fault(1, "", "there is no column `tenant`", HEADER_HINT));
    }
    Ok(columns)
}

fn row<'r>(
    line: u64,
    record: &'r StringRecord,
    columns: &[usize],
    rows: &Rows<'_>,
) -> Checked<RawRow<'r>> {
    if record.len() != columns.len() {
        let what = format!("{} cells, and {} columns", record.len(), columns.len());
        let hint = "write a comma for each empty cell, and quotes around a text with a comma";
        return Err(rows.fault(line, "", &what, hint));
    }
    let number = |column: &str, cell: &str| {
        cell.trim().parse::<f64>().map_err(|_| {
            let hint = "a number is written without units and separators, such as 12.5";
            rows.fault(line, column, &format!("`{cell}` is no number"), hint)
        })
    };
    let mut row = RawRow::default();
    let cells = record.iter().zip(columns);
    for (cell, column) in cells.filter(|(cell, _)| !cell.is_empty()) {
        match COLUMNS.get(*column).copied().unwrap_or_default() {
            "tenant" => row.tenant = Cow::Borrowed(cell),
            "plan" => row.plan = Some(Cow::Borrowed(cell)),
            name @ "weight" => row.weight = Some(number(name, cell)?),
            name @ "floor_rps" => row.floor_rps = Some(number(name, cell)?),
            name => {
                for limit in cell.split(';') {
                    let Some((bucket, rate)) = limit.split_once('=') else {
                        let what = format!("`{limit}` is no limit");
                        let hint = "write BUCKET=RATE, with `;` between two, such as checkout=50";
                        return Err(rows.fault(line, name, &what, hint));
                    };
                    let limit = (Cow::Borrowed(bucket.trim()), number(name, rate)?);
                    row.limits.push(limit);
                }
            }
        }
    }
    Ok(row)
}
