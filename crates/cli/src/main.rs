//! The program `strandway`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let program = std::env::current_exe().map(|path| vec![path.into_os_string()]).unwrap_or_default();
    let arguments = std::env::args_os().skip(1).collect();
    ExitCode::from(strandway_cli::run(program, arguments))
}
