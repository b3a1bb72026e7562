//! A step of building or changing a fabric, as data: lines for one tool in one namespace.

use std::fmt;

/// The tool that reads the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// `PATH VALUE` below `/proc/sys`.
    Sysctl,
    /// `ip -batch`.
    Ip,
    /// `tc -batch`.
    Tc,
    /// `ethtool`, a process per line.
    Ethtool,
    /// `clang -target bpf`: the object file to make, unless it exists, and its definitions.
    Clang,
}

/// Lines for one tool in one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The namespace; `None` for that of this process.
    pub namespace: Option<String>,
    /// The tool that reads the lines.
    pub tool: Tool,
    /// Lines, read in this order.
    pub lines: Vec<String>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.namespace.as_deref().unwrap_or("here");
        for line in &self.lines {
            writeln!(
                f,
                "{place}: {}{line}",
                match self.tool {
                    Tool::Sysctl => "sysctl ",
                    Tool::Ip => "ip ",
                    Tool::Tc => "tc ",
                    Tool::Ethtool => "ethtool ",
                    Tool::Clang => "clang ",
                }
            )?;
        }
        Ok(())
    }
}
