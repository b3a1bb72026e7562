//! Tables that fit a terminal: the least important columns are left out, and a line names them.

use comfy_table::{Cell, CellAlignment, Table, presets};

/// An empty table with our frame.
pub(crate) fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table
}

/// A column that is never left out.
pub(crate) const ALWAYS: u8 = u8::MAX;

/// A table whose columns have ranks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grid {
    heads: Vec<Head>,
    rows: Vec<Vec<String>>,
}

#[derive(Clone, Debug)]
struct Head {
    text: String,
    rank: u8,
    right: bool,
}

impl Grid {
    /// Adds a column. On a narrow terminal, columns with the lowest rank are left out first.
    pub(crate) fn column(&mut self, text: impl Into<String>, rank: u8, right: bool) {
        self.heads.push(Head { text: text.into(), rank, right });
    }

    /// Adds a row with one text per column. Line breaks within a text are kept.
    pub(crate) fn row(&mut self, texts: impl IntoIterator<Item = String>) {
        self.rows.push(texts.into_iter().collect());
    }

    /// The table, at most `width` characters wide if possible, and the names of the columns that were left out.
    pub(crate) fn fit(&self, width: Option<usize>) -> (String, Vec<&str>) {
        let mut shown: Vec<usize> = (0..self.heads.len()).collect();
        let mut left = Vec::new();
        loop {
            let made = self.draw(&shown);
            let fits = width.is_none_or(|width| made.lines().all(|line| line.chars().count() <= width));
            let least = shown.iter().map(|i| self.heads[*i].rank).min().unwrap_or(ALWAYS);
            if fits || least == ALWAYS {
                return (made, left);
            }
            left.extend(shown.iter().filter(|i| self.heads[**i].rank == least).map(|i| self.heads[*i].text.as_str()));
            shown.retain(|i| self.heads[*i].rank != least);
        }
    }

    /// The table, followed by a line with the names of the columns that were left out.
    pub(crate) fn text(&self, width: Option<usize>) -> String {
        let (made, left) = self.fit(width);
        if left.is_empty() {
            return format!("{made}\n");
        }
        format!("{made}\nleft out for lack of room: {}; --markdown and --json have all\n", left.join(", "))
    }

    fn draw(&self, shown: &[usize]) -> String {
        let mut table = table();
        table.set_header(shown.iter().map(|i| Cell::new(&self.heads[*i].text)));
        for row in &self.rows {
            let cell = |i: &usize| {
                let cell = Cell::new(row.get(*i).map_or("", String::as_str));
                if self.heads[*i].right { cell.set_alignment(CellAlignment::Right) } else { cell }
            };
            table.add_row(shown.iter().map(cell));
        }
        table.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_important_columns_go_first() {
        let mut grid = Grid::default();
        for (text, rank) in [("name", ALWAYS), ("often", 3), ("seldom", 1), ("never", 2)] {
            grid.column(text, rank, true);
        }
        grid.row(["a", "b", "c", "d"].map(String::from));
        assert_eq!(grid.fit(None).1, Vec::<&str>::new());
        assert_eq!(grid.fit(Some(30)).1, ["seldom"]);
        let (made, left) = grid.fit(Some(20));
        assert_eq!(left, ["seldom", "never"]);
        assert!(made.contains("name") && made.contains("often") && !made.contains("never"), "{made}");
        // Columns of rank `ALWAYS` stay on any terminal.
        assert!(grid.text(Some(3)).contains("left out for lack of room: seldom, never, often"));
    }
}
