//! Tables for people. Owns their form, the colours, and the width: no line is wider than the
//! terminal.

use std::io::{IsTerminal as _, stdout};

use comfy_table::{Attribute, Color, ColumnConstraint, ContentArrangement, Row, Width};

use quorlock::embed::plain_line;

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
        let mut inner = bare(width());
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
    pub(crate) fn render(mut self) -> String {
        if self.keep_words_whole() { lines(&self.inner, "") } else { self.stacked() }
    }

    /// Each row as a paragraph, for rows that are about something with a long name: the name, and
    /// below it a line for each other cell.
    fn stacked(&self) -> String {
        let width = self.inner.width().unwrap_or(WIDE);
        let headings: Vec<_> = self.inner.header().into_iter().flat_map(Row::cell_iter).collect();
        let paragraph = |row: &Row| {
            let (mut name, mut rest) = (bare(width), bare(width.saturating_sub(INDENT_WIDTH)));
            name.add_row(row.cell_iter().take(1).cloned().collect::<Vec<_>>());
            for (heading, cell) in headings.iter().zip(row.cell_iter()).skip(1) {
                if !cell.content().is_empty() {
                    rest.add_row(vec![(*heading).clone(), cell.clone()]);
                }
            }
            format!("{}\n{}", lines(&name, ""), lines(&rest, INDENT))
        };
        self.inner.row_iter().map(paragraph).collect::<Vec<_>>().join("\n")
    }

    /// Gives each column room for its longest word, so that lines are broken between words. Returns
    /// false, and does nothing, where the table is too wide for that.
    fn keep_words_whole(&mut self) -> bool {
        let mut widths = self.inner.column_max_content_widths();
        let padding = |column: &comfy_table::Column| column.padding_width();
        let paddings: u16 = self.inner.column_iter().map(padding).sum();
        for (index, width) in widths.iter_mut().enumerate().skip(1) {
            let cells = self.inner.column_cells_iter(index).flatten();
            let heading = self.inner.header().and_then(|row| row.cell_iter().nth(index));
            let words = heading.into_iter().chain(cells).map(longest_word);
            *width = words.max().unwrap_or(0).min(*width);
        }
        let room = self.inner.width().unwrap_or(WIDE).saturating_sub(paddings);
        if widths.iter().sum::<u16>() > room {
            return false;
        }
        for (index, width) in widths.iter().enumerate().skip(1) {
            if let Some(column) = self.inner.column_mut(index) {
                let width = *width + column.padding_width();
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width)));
            }
        }
        true
    }
}

/// A table without lines.
fn bare(width: u16) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    // The escapes are taken out again where nobody wants colours.
    table.enforce_styling();
    table
}

/// The lines of the table, each behind `indent`.
fn lines(table: &comfy_table::Table, indent: &str) -> String {
    let text = table.to_string();
    let lines = text.lines().map(|line| format!("{indent}{}", line.trim_end()));
    lines.collect::<Vec<_>>().join("\n")
}

/// The width of a cell's longest word.
fn longest_word(cell: &comfy_table::Cell) -> u16 {
    let words = cell.content();
    let longest = words.split_whitespace().map(|word| word.chars().count()).max();
    u16::try_from(longest.unwrap_or(0)).unwrap_or(u16::MAX)
}

impl Cell {
    pub(crate) fn plain(text: &str) -> Self {
        Self::new(text, Tone::Plain)
    }

    pub(crate) fn new(text: &str, tone: Tone) -> Self {
        let cell = comfy_table::Cell::new(plain_line(text));
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
const INDENT: &str = "  ";
const INDENT_WIDTH: u16 = 2;
