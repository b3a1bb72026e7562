//! Executes steps with `ip`, `tc`, `ethtool` and `clang`, one process per step or line.

use crate::command::{LinuxError, run};
use crate::queue::PROGRAM;
use crate::step::{Step, Tool};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// Compiles the program of a port with the definitions in the line, unless its object file exists. The kernel runs it
/// with root's rights, so a file counts only if no other user can have written it.
fn compile(line: &str) -> Result<(), LinuxError> {
    let (object, definitions) = line.split_once(' ').unwrap_or((line, ""));
    match fs::symlink_metadata(object) {
        Ok(there) if is_ours(&there) => return Ok(()),
        Ok(_) => return Err(LinuxError(format!("{object}: another user can have written it; remove it"))),
        Err(_) => {}
    }
    let mut arguments: Vec<&str> = "-O2 -g -target bpf -x c -c -o".split(' ').collect();
    arguments.push(object);
    arguments.extend(definitions.split_whitespace());
    arguments.push("-");
    let output = run(None, "clang", &arguments, PROGRAM)?;
    if output.status.success() {
        let readable = fs::set_permissions(object, fs::Permissions::from_mode(0o644));
        return readable.map_err(|e| LinuxError(format!("{object}: {e}")));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason was given");
    Err(LinuxError(format!("`clang` cannot compile the program of a port: {first}; it must know `-target bpf`")))
}

/// Is it a plain file that belongs to this user, and that no one else can write?
fn is_ours(file: &fs::Metadata) -> bool {
    file.is_file() && file.uid() == rustix::process::geteuid().as_raw() && file.mode() & 0o022 == 0
}

/// Executes one step.
pub(crate) fn carry_out(step: &Step) -> Result<(), LinuxError> {
    let (program, arguments): (&str, &[&str]) = match step.tool {
        Tool::Clang => return step.lines.iter().try_for_each(|line| compile(line)),
        Tool::Sysctl => ("sh", &["-c", "while read -r key value; do echo $value > /proc/sys/$key || exit 1; done"]),
        Tool::Ip => ("ip", &["-batch", "-"]),
        Tool::Tc => ("tc", &["-batch", "-"]),
        Tool::Ethtool => ("sh", &["-c", "while read -r line; do ethtool $line || exit 1; done"]),
    };
    let output = run(step.namespace.as_deref(), program, arguments, &(step.lines.join("\n") + "\n"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    // "Command failed -:3" names the line.
    let number = said.split("Command failed -:").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    let line = number.and_then(|n: usize| step.lines.get(n.checked_sub(1)?)).map_or("", String::as_str);
    let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason was given");
    let place = step.namespace.as_deref().unwrap_or("this namespace");
    Err(LinuxError(format!("in {place}, `{program} {line}`: {first}")))
}
