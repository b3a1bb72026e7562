//! The example in C, compiled and run: alone, under valgrind, and with AddressSanitizer.

use crate::header::here;
use std::path::PathBuf;
use std::process::Command;

/// Compilers of this host.
pub(crate) fn compilers() -> Vec<&'static str> {
    let found: Vec<&str> = ["gcc", "clang"].into_iter().filter(|name| is_there(name)).collect();
    if found.is_empty() {
        eprintln!("skipped: neither gcc nor clang is here");
    }
    found
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The library that cargo has built for these tests.
pub(crate) fn library() -> Option<PathBuf> {
    let tests = std::env::current_exe().expect("this program");
    let folder = tests.parent().expect("a folder");
    let found =
        [folder.join("libstrandway.so"), folder.join("../libstrandway.so")].into_iter().find(|path| path.exists());
    assert!(found.is_some(), "libstrandway.so is not beside {}", tests.display());
    found
}

fn compile(compiler: &str, flags: &[&str], out: &std::path::Path) -> bool {
    let Some(library) = library() else { return false };
    let output = Command::new(compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-I"])
        .arg(here("include"))
        .args(flags)
        .arg(here("examples/ping.c"))
        .arg(&library)
        .arg(format!("-Wl,-rpath,{}", library.parent().expect("a folder").display()))
        .arg("-o")
        .arg(out)
        .output()
        .expect("the compiler");
    let said = String::from_utf8_lossy(&output.stderr);
    if !flags.is_empty() && said.contains("cannot find") {
        eprintln!("skipped: {compiler} has no {flags:?}");
        return false;
    }
    assert!(output.status.success(), "{compiler} {flags:?}: {said}");
    true
}

fn run(command: &mut Command) {
    let output = command.output().expect("the example");
    let (out, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}{said}");
    assert!(out.contains("50 messages there and back"), "{out}");
}

#[test]
fn the_example_runs_as_each_compiler_makes_it() {
    let work = tempfile::tempdir().expect("a folder");
    for compiler in compilers() {
        let program = work.path().join(compiler);
        assert!(compile(compiler, &[], &program));
        run(&mut Command::new(&program));
    }
}

#[test]
fn the_example_touches_no_memory_that_is_not_its_own() {
    let work = tempfile::tempdir().expect("a folder");
    let flags = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer"];
    for compiler in compilers() {
        let program = work.path().join(compiler);
        if compile(compiler, &flags, &program) {
            run(&mut Command::new(&program));
        }
    }
}

#[test]
fn the_example_runs_under_valgrind() {
    if !is_there("valgrind") {
        eprintln!("skipped: valgrind is not here");
        return;
    }
    let work = tempfile::tempdir().expect("a folder");
    for compiler in compilers().into_iter().take(1) {
        let program = work.path().join(compiler);
        assert!(compile(compiler, &[], &program));
        // Its processor has no instructions for the cipher.
        let flags = [
            "--quiet",
            "--error-exitcode=9",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
            "--fair-sched=try",
        ];
        let known = format!("--suppressions={}", here("tests/valgrind.supp").display());
        run(Command::new("valgrind").args(flags).arg(known).arg(&program).arg("none"));
    }
}
