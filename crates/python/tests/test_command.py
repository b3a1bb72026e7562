"""The command line that comes with the package: `python -m strandway`, and the script `strandway`."""

import html
import json
import os
import pathlib
import signal
import subprocess
import sys
import sysconfig
import time

import pytest
import strandway

ROOT = pathlib.Path(__file__).parents[3]
SCRIPT = [os.path.join(sysconfig.get_path("scripts"), "strandway")]
MODULE = [sys.executable, "-m", "strandway"]
# The program without Python.
PROGRAM = os.environ.get("STRANDWAY", str(ROOT / "target" / "release" / "strandway"))
# Minutes of traffic, so that an interrupt comes before the end on any machine.
LONG = '[fabric]\nhosts = 64\n[workload]\nsize = "100 GB"\n[run]\ntime_limit = "1000 s"\n[sweep]\n"run.seed" = [1, 2, 3]\n'


def run(*words, cwd=None, **more):
    return subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=cwd, check=False, **more)


def without_speed(text):
    """The lines of a report, but for the one with times of this machine."""
    return [line for line in text.splitlines() if "peak memory" not in line]


@pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["script", "module"])
def test_both_ways_start_the_command(command, tmp_path):
    told = run(*command, "--version", cwd=tmp_path)
    assert (told.returncode, told.stdout, told.stderr) == (0, f"strandway {strandway.__version__}\n", "")
    told = run(*command, "--help", cwd=tmp_path)
    assert told.returncode == 0 and "Usage: strandway [COMMAND]" in told.stdout


@pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["script", "module"])
def test_reports_and_exit_statuses_are_those_of_the_program(command, tmp_path):
    smoke = ROOT / "scenarios" / "smoke" / "permutation.toml"
    (tmp_path / "wrong.toml").write_text("[fabric]\nhost = 16\n")
    (tmp_path / "late.toml").write_text('[fabric]\nhosts = 16\n[workload]\nsize = "100 kB"\n[run]\ntime_limit = "1 us"\n')
    (tmp_path / "missed.toml").write_text('[fabric]\nhosts = 16\n[workload]\nsize = "100 kB"\n[expect]\n"fct_us.max" = "< 0.1"\n')
    cases = [
        (0, ["run", str(smoke)]),
        (1, ["run", "late.toml"]),
        (2, ["run", "wrong.toml"]),
        (2, ["run", "--no-such-option"]),
        (2, ["no-such-command"]),
        (3, ["run", "missed.toml"]),
        (0, ["explain", "uec"]),
        (0, ["completions", "bash"]),
    ]
    for status, words in cases:
        told = run(*command, *words, cwd=tmp_path)
        assert told.returncode == status, (words, told)
        if os.path.exists(PROGRAM):
            native = run(PROGRAM, *words, cwd=tmp_path)
            assert native.returncode == status and native.stderr == told.stderr, words
            assert without_speed(native.stdout) == without_speed(told.stdout), words
    report = json.loads(run(*command, "run", str(smoke), "--quiet", "--json", "-").stdout)
    assert report["digest"] == strandway.Scenario(smoke).run().digest


def test_a_report_names_the_command_that_repeats_it(tmp_path):
    (tmp_path / "a b.toml").write_text('[fabric]\nhosts = 16\n[workload]\nsize = "100 kB"\n')
    told = run(*MODULE, "run", "a b.toml", "--seed", "7", "--html", "page.html", "--quiet", cwd=tmp_path)
    assert told.returncode == 0, told
    assert "strandway run 'a b.toml' --seed 7" in html.unescape((tmp_path / "page.html").read_text())


def until(true, what, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def threads(process):
    try:
        return len(os.listdir(f"/proc/{process.pid}/task"))
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("words", [["sweep", "--quiet"], ["run", "--quiet"]], ids=["sweep", "run"])
def test_ctrl_c_ends_a_run_early_with_its_report(words, tmp_path):
    (tmp_path / "long.toml").write_text(LONG if words[0] == "sweep" else LONG.split("[sweep]")[0])
    command = [*SCRIPT, *words, "long.toml", "--json", "report.json"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: threads(process) >= 3, "the runs have begun")
        time.sleep(0.5)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1, said
    assert "Traceback" not in said and "KeyboardInterrupt" not in said
    # Usually some ten milliseconds; this machine may be busy.
    assert time.monotonic() - began < 10
    assert '"interrupted"' in (tmp_path / "report.json").read_text()


def test_a_server_prints_at_once_and_ends_on_ctrl_c():
    process = subprocess.Popen([*MODULE, "perf", "server", "--plane", "[::1]:0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().startswith("listening on [::1]:")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()


def test_a_reader_that_ends_early_is_no_error():
    told = run("bash", "-c", 'set -o pipefail; "$@" | head -n 1', "bash", *MODULE, "explain", "uec")
    assert told.returncode == 0 and told.stderr == "", told


def test_simulations_start_again_with_huge_pages(tmp_path):
    kernel = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not kernel.exists() or "[madvise]" not in kernel.read_text():
        pytest.skip("this kernel does not wait to be asked for huge pages")
    (tmp_path / "long.toml").write_text(LONG.split("[sweep]")[0])
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    for command in (SCRIPT, MODULE, [sys.executable, "-X", "utf8", "-m", "strandway"]):
        process = subprocess.Popen([*command, "run", "long.toml", "--quiet"], cwd=tmp_path, env=environment)
        try:
            own = pathlib.Path(f"/proc/{process.pid}")
            until(lambda own=own: b"GLIBC_TUNABLES=glibc.malloc.hugetlb=1" in (own / "environ").read_bytes(), "it starts again")
            words = (own / "cmdline").read_bytes().decode().split("\0")
            assert words[-4:] == ["run", "long.toml", "--quiet", ""] and words[0].startswith(sys.prefix), words
        finally:
            process.kill()
            process.wait()


def test_a_process_of_the_command_carries_the_long_links_of_a_fabric():
    name = f"py{os.getpid() % 100_000}"
    if os.geteuid() != 0 or run(*SCRIPT, "fabric", "check").returncode != 0:
        pytest.skip("no namespaces can be made here")
    up = run(*SCRIPT, "fabric", "up", str(ROOT / "scenarios" / "wire" / "long_link.toml"), "--name", name)
    try:
        if "ethtool" in up.stderr:
            pytest.skip("there is no ethtool")
        assert up.returncode == 0, up.stderr
        status = run(*SCRIPT, "fabric", "status", "--probe", "--name", name)
        assert status.returncode == 0, status
        version = run(*SCRIPT, "fabric", "exec", "--name", name, "h0", "--", *MODULE, "--version")
        assert version.stdout.startswith("strandway "), version
    finally:
        down = run(*SCRIPT, "fabric", "down", "--name", name)
    assert down.returncode == 0, down.stderr
