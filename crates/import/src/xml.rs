//! Reads small XML files with `roxmltree`, and their attributes as numbers.

use super::trace::problem;
use crate::problem::Problems;
use roxmltree::{Document, Node, ParsingOptions};

/// Limit on the elements and texts of a file: ours.
const NODES_MAX: u32 = 1 << 23;
/// Limit on the attributes of an element: ours. The parser compares each with all others of its element.
const ATTRIBUTES_MAX: usize = 256;
/// Limit on the namespaces that a file declares: ours. The parser searches them for each element; the files that we
/// read have none.
const NAMESPACES_MAX: usize = 64;

/// Parses a file. It has no document type, so no entity can grow.
pub(super) fn parse<'a>(file: &str, text: &'a str) -> Result<Document<'a>, Problems> {
    if let Err((at, what)) = bounded(text) {
        let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        return Err(problem(file, Some(line), "", what, "is it a file of this format?"));
    }
    let options = ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).map_err(|error| {
        let line = error.pos().row as usize;
        problem(file, Some(line.max(1)), "", format!("is no XML: {error}"), "was the file cut off?")
    })
}

/// Checks in one pass that no element has too many attributes, and that the file has few namespaces. An error has the
/// element's place.
fn bounded(text: &str) -> Result<(), (usize, String)> {
    let (mut at, mut namespaces) = (0, 0);
    while let Some(begin) = text[at..].find('<').map(|found| at + found) {
        let rest = &text[begin..];
        let skip =
            [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>")].into_iter().find(|(from, _)| rest.starts_with(from));
        if let Some((from, to)) = skip {
            // Without an end it is no XML, and the parser says so.
            let Some(end) = rest[from.len()..].find(to) else { return Ok(()) };
            at = begin + from.len() + end + to.len();
            continue;
        }
        let (mut attributes, mut quote) = (0, None);
        let mut end = rest.len();
        for (place, byte) in rest.bytes().enumerate() {
            match (quote, byte) {
                (Some(open), byte) if byte == open => quote = None,
                (Some(_), _) => {}
                (None, b'"' | b'\'') => quote = Some(byte),
                (None, b'=') => attributes += 1,
                (None, b'x') if rest[place..].starts_with("xmlns") => namespaces += 1,
                (None, b'>') => {
                    end = place + 1;
                    break;
                }
                _ => {}
            }
        }
        if attributes > ATTRIBUTES_MAX {
            return Err((begin, format!("has an element with more than {ATTRIBUTES_MAX} attributes")));
        }
        if namespaces > NAMESPACES_MAX {
            return Err((begin, format!("declares more than {NAMESPACES_MAX} namespaces")));
        }
        at = begin + end;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_with_many_attributes_is_refused_at_once() {
        let of = |count: usize| (0..count).map(|i| format!(" a{i}='>'")).collect::<String>();
        let text = |count| format!("<!-- <x {} --><top>\n<x{}/><![CDATA[ <y {} ]]></top>", of(500), of(count), of(500));
        assert!(parse("f", &text(ATTRIBUTES_MAX)).is_ok());
        let said = parse("f", &text(ATTRIBUTES_MAX + 1)).expect_err("too many").to_string();
        assert!(said.contains("more than 256 attributes") && said.contains("f:2"), "{said}");
        assert!(parse("f", &text(400_000)).is_err(), "without comparing each with all others");
        let spaces: String = (0..400_000).map(|i| format!("<a xmlns:n{i}='u{i}'>")).collect();
        let said = parse("f", &spaces).expect_err("too many").to_string();
        assert!(said.contains("more than 64 namespaces"), "{said}");
    }
}
