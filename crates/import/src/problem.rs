//! Problems of an input, with remedies.

use std::fmt;

/// One problem: the place, the value found there, the reason why it is wrong, and a remedy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// The file as the user named it; empty if the input did not come from a file.
    pub file: String,
    /// Line in the file, from 1, if known.
    pub line: Option<usize>,
    /// The dotted key of a scenario, such as `fabric.rate`; may be empty.
    pub key: String,
    /// The value found there, as written; may be empty.
    pub value: String,
    /// Why the value is wrong.
    pub what: String,
    /// The remedy; may be empty.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut place = String::new();
        if !self.file.is_empty() {
            place.push_str(&self.file);
            if let Some(line) = self.line {
                place.push_str(&format!(":{line}"));
            }
            place.push_str(": ");
        }
        write!(f, "{place}")?;
        match (self.key.is_empty(), self.value.is_empty()) {
            (false, false) => write!(f, "{} = {}: ", self.key, self.value)?,
            (false, true) => write!(f, "{}: ", self.key)?,
            (true, false) => write!(f, "{}: ", self.value)?,
            (true, true) => {}
        }
        write!(f, "{}", self.what)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

/// All problems of an input together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// A single problem with a whole file.
    pub fn with_file(file: &str, what: impl Into<String>, remedy: impl Into<String>) -> Problems {
        Problems(vec![Problem {
            file: file.to_string(),
            line: None,
            key: String::new(),
            value: String::new(),
            what: what.into(),
            remedy: remedy.into(),
        }])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// The entry of `known` that the user probably meant by `wrong`; `None` if none is alike.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&wrong, &name.to_lowercase()), name))
        .filter(|(score, _)| *score > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// A remedy for a name that is not in `known`: the nearest name, or the whole list.
pub fn suggest(wrong: &str, known: &[&str]) -> String {
    match nearest(wrong, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("known: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_finds_its_neighbour() {
        assert_eq!(nearest("hots", ["hosts", "spines"]), Some("hosts"));
        assert_eq!(nearest("fat_tree", ["leaf-spine", "fat-tree"]), Some("fat-tree"));
        assert_eq!(nearest("zzz", ["hosts", "spines"]), None);
    }

    #[test]
    fn a_problem_reads_as_one_line() {
        let problem = Problem {
            file: "a.toml".into(),
            line: None,
            key: "fabric.rate".into(),
            value: "400".into(),
            what: "a rate needs a unit".into(),
            remedy: "write \"400 Gbps\"".into(),
        };
        assert_eq!(problem.to_string(), "a.toml: fabric.rate = 400: a rate needs a unit; write \"400 Gbps\"");
    }
}
