//! Tables for people. Owns their form, the colours, and the width: no line is wider than the
//! terminal.

use std::io::{IsTerminal as _, stdout};

use comfy_table::{Attribute, Color, ColumnConstraint, ContentArrangement};

/// A table that is filled row by row.
pub(crate) struct Table {
    inner: comfy_table::Table,
    columns: usize,
}

/// A text with a colour.
pub(crate) struct Cell(comfy_table::Cell);

/// What a colour says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Notable,
    Bad,
}

impl Table {
    /// A table with these headings.
    pub(crate) fn new(headings: &[&str]) -> Self {
        let mut inner = comfy_table::Table::new();
        inner.load_style(comfy_table::presets::NOTHING);
        inner.set_content_arrangement(ContentArrangement::Dynamic).set_width(width());
        // The escapes are taken out again where nobody wants colours.
        inner.enforce_styling();
        let heading = |text: &&str| comfy_table::Cell::new(text).add_attribute(Attribute::Bold);
        inner.set_header(headings.iter().map(heading));
        // What a row is about stays in one piece.
        if let Some(first) = inner.column_mut(0) {
            first.set_constraint(ColumnConstraint::ContentWidth);
        }
        Self { inner, columns: headings.len() }
    }

    /// Adds a row; cells that are missing at its end are empty.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        let empty = self.columns.saturating_sub(cells.len());
        let empty = std::iter::repeat_with(|| comfy_table::Cell::new("")).take(empty);
        self.inner.add_row(cells.into_iter().map(|cell| cell.0).chain(empty).collect::<Vec<_>>());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// The lines of the table.
    pub(crate) fn render(&self) -> String {
        self.inner.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }
}

impl Cell {
    pub(crate) fn plain(text: &str) -> Self {
        Self::new(text, Tone::Plain)
    }

    pub(crate) fn new(text: &str, tone: Tone) -> Self {
        let cell = comfy_table::Cell::new(text);
        Self(match tone {
            Tone::Plain => cell,
            Tone::Good => cell.fg(Color::Green),
            Tone::Notable => cell.fg(Color::Yellow),
            Tone::Bad => cell.fg(Color::Red),
        })
    }
}

/// The width of the terminal; of what reads instead of one, what `COLUMNS` says.
fn width() -> u16 {
    let terminal = stdout().is_terminal().then(terminal_size::terminal_size).flatten();
    let told = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal.map(|(width, _)| width.0).or_else(told).unwrap_or(WIDE).max(NARROWEST)
}

/// Where the width is not known: programs such as grep want a row in one line.
const WIDE: u16 = 160;
const NARROWEST: u16 = 40;
