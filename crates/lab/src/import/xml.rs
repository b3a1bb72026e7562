//! Reads small XML files with `roxmltree`, and their attributes as numbers.

use super::trace::problem;
use crate::problem::Problems;
use roxmltree::{Document, Node, ParsingOptions};

/// Limit on the elements and texts of a file: ours.
const NODES_MAX: u32 = 1 << 23;

/// Parses a file. It has no document type, so no entity can grow.
pub(super) fn parse<'a>(file: &str, text: &'a str) -> Result<Document<'a>, Problems> {
    let options = ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).map_err(|error| {
        let line = error.pos().row as usize;
        problem(file, Some(line.max(1)), "", format!("is no XML: {error}"), "was the file cut off?")
    })
}

/// The name of the first element; `None` if the text is no XML.
pub(super) fn root(text: &str) -> Option<&str> {
    let mut rest = text.trim_start();
    loop {
        rest = rest.strip_prefix('<')?;
        let end = match rest.as_bytes().first()? {
            b'?' => "?>",
            b'!' => "-->",
            _ => return rest.split(|c: char| c.is_whitespace() || c == '>' || c == '/').next(),
        };
        rest = rest.split_once(end)?.1.trim_start();
    }
}

/// An element with its place.
#[derive(Clone, Copy)]
pub(super) struct Element<'a, 'd> {
    pub(super) file: &'a str,
    pub(super) node: Node<'a, 'd>,
}

impl<'a, 'd> Element<'a, 'd> {
    pub(super) fn name(&self) -> &'a str {
        self.node.tag_name().name()
    }

    pub(super) fn line(&self) -> usize {
        self.node.document().text_pos_at(self.node.range().start).row as usize
    }

    /// Elements directly inside this one.
    pub(super) fn children(&self) -> impl Iterator<Item = Element<'a, 'd>> + use<'a, 'd> {
        let file = self.file;
        self.node.children().filter(Node::is_element).map(move |node| Element { file, node })
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.node.attribute(name)
    }

    pub(super) fn wrong(&self, value: &str, what: impl Into<String>, remedy: &str) -> Problems {
        problem(self.file, Some(self.line()), value, what, remedy)
    }

    /// A whole number; `default` if the attribute is missing.
    pub(super) fn number(&self, name: &str, default: Option<i64>, low: i64, high: i64) -> Result<i64, Problems> {
        let Some(text) = self.text(name) else {
            let what = format!("<{}> has no {name}", self.name());
            return default.ok_or_else(|| self.wrong("", what, "add the attribute"));
        };
        let fits = text.trim().parse::<i64>().ok().filter(|n| (low..=high).contains(n));
        fits.ok_or_else(|| self.wrong(text, format!("is no {name} from {low} to {high}"), "write a whole number"))
    }
}
