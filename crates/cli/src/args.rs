//! The command line. Its help should teach: every command ends with examples.

mod calibrate;
mod localise;
mod model;
#[cfg_attr(not(target_os = "linux"), path = "args/elsewhere.rs")]
mod real_hosts;
mod run;
mod search;
mod setup;
mod what_if;

use clap::{Parser, Subcommand};

pub(crate) use calibrate::CalibrateArgs;
pub(crate) use localise::LocaliseArgs;
pub(crate) use model::{ModelArgs, ModelOf, SdrArgs};
pub(crate) use real_hosts::*;
pub(crate) use run::{Common, CompareArgs, ExplainArgs, ImportArgs, ReproduceArgs, RunArgs, SweepArgs};
pub(crate) use search::SearchArgs;
pub(crate) use setup::{CompletionsArgs, ManArgs};
pub(crate) use what_if::WhatIfArgs;

const ABOUT: &str =
    "Simulates AI-training network fabrics, packet by packet and reproducibly; runs the same engines on sockets";

const LONG: &str = "\
Strandway simulates AI-training network fabrics packet by packet: leaf-spine, fat-tree and multi-plane
fabrics; RoCEv2 and Ultra Ethernet style transports; failures; your own traffic matrices. The same
scenario and seed give the same result on any machine and any number of threads.

Without a command it runs a built-in showcase (a few seconds) and writes strandway-showcase.html.";

const EXAMPLES: &str = "\
Examples:
  strandway                                            the showcase: RoCEv2 and Ultra Ethernet on one fabric
  strandway run scenarios/smoke/permutation.toml       run a scenario, print its report
  strandway run my-matrix.cm --html report.html        an htsim traffic matrix on the smallest fat tree for it
  strandway compare my.toml --profiles rocev2,uec      one table, one row per protocol
  strandway search job.toml --out worst                the failures that hurt most, as scenarios to repeat
  strandway what-if job.toml --drain T1-3,T1-7         what draining two switches costs, and in which order
  strandway calibrate all_reduce.txt --scenario my.toml   constants of a scenario from nccl-tests' output
  strandway explain uec                                a profile's parameters, defaults and sources
  strandway reproduce prime --html prime.html          published results next to ours
  strandway model sdr --loss 1e-4 --rtt 50ms           which reliability scheme for this long link?
  strandway perf client ::1                            the same engines over real sockets (after: perf server &)
  strandway copy data '[fd00::2]:backup' --key key      files to another host (after: copy --serve DIR there)
  strandway cast weights --to h1 --to h2 --node h0.toml files to many hosts by multicast (after: cast --receive DIR)
  strandway switch                                     adds gradients of ranks (perf collective --algorithm in-network)
  strandway top /run/strandway/metrics/                what running programs do; they serve where STRANDWAY_METRICS says
  strandway fabric up scenarios/wire/two_planes.toml   the scenario's fabric from Linux namespaces (as root)

Exit status: 0 fine, 1 the run failed or did not finish, 2 bad usage or scenario, 3 an [expect] bound or a
published result was missed.
Scenario reference: docs/scenario.md. Tutorial: docs/tutorial.md.";

#[derive(Debug, Parser)]
#[command(name = "strandway", version, about = ABOUT, long_about = LONG, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one scenario and print its report
    #[command(after_help = run::RUN_EXAMPLES)]
    Run(RunArgs),
    /// Run one scenario with several profiles: one table, one row per profile
    #[command(after_help = run::COMPARE_EXAMPLES)]
    Compare(CompareArgs),
    /// Run all combinations of a scenario's sweep: one row per combination
    #[command(after_help = run::SWEEP_EXAMPLES)]
    Sweep(SweepArgs),
    /// Find the links, ports or switches whose failure hurts a scenario most, and the worst moment
    #[command(after_help = search::EXAMPLES)]
    Search(Box<SearchArgs>),
    /// Tell the cost of draining switches, links or planes, and an order of draining
    #[command(after_help = what_if::EXAMPLES)]
    WhatIf(WhatIfArgs),
    /// Simulate random gray faults of a cable, and tell how often the localiser names it
    #[command(after_help = localise::EXAMPLES)]
    Localise(LocaliseArgs),
    /// Fit constants of a scenario (latency, rates, cost of a message) to measured times, and predict others
    #[command(after_help = calibrate::EXAMPLES)]
    Calibrate(Box<CalibrateArgs>),
    /// Describe a profile, policy or fabric: parameters, defaults, units, sources
    #[command(after_help = run::EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Describe a file of another simulator, and what is assumed of it
    #[command(after_help = run::IMPORT_EXAMPLES)]
    Import(ImportArgs),
    /// Run the experiments of papers and print our numbers next to theirs, with a verdict per row
    #[command(after_help = run::REPRODUCE_EXAMPLES)]
    Reproduce(ReproduceArgs),
    /// Calculate completion times without a run: which reliability scheme suits a long, lossy link
    Model(ModelArgs),
    /// Measure bandwidth or latency between two hosts, with the same engines over real UDP sockets
    #[cfg_attr(target_os = "linux", command(after_help = real_hosts::perf::PERF_EXAMPLES))]
    Perf(PerfArgs),
    /// Copy files and directories to another host over a long or lossy path; a stopped copy can be continued
    #[cfg_attr(target_os = "linux", command(after_help = real_hosts::copy::EXAMPLES))]
    Copy(Box<CopyArgs>),
    /// Multicast files and directories to many hosts at once; receivers repair each other's losses
    #[cfg_attr(target_os = "linux", command(after_help = real_hosts::cast::EXAMPLES))]
    Cast(Box<CastArgs>),
    /// Run a switch that adds gradients (ESA, ATP, SwitchML), with the jobs' parameter servers; or show its state
    #[cfg_attr(target_os = "linux", command(after_help = real_hosts::switch::EXAMPLES))]
    Switch(Box<SwitchArgs>),
    /// Run a node from its node file until Ctrl-C: it answers `strandway perf client` and prints its traffic
    #[cfg_attr(target_os = "linux", command(after_help = real_hosts::node::NODE_EXAMPLES))]
    Node(NodeArgs),
    /// Check this machine for real sockets: what works, what is slow, and how to fix it
    #[cfg_attr(target_os = "linux", command(after_help = real_hosts::node::DOCTOR_EXAMPLES))]
    Doctor(DoctorArgs),
    /// Build a scenario's fabric from Linux network namespaces; break and repair it; run programs on its hosts
    #[cfg_attr(target_os = "linux", command(after_help = real_hosts::fabric::FABRIC_EXAMPLES))]
    Fabric(FabricArgs),
    /// Show what running programs do, live: who is missing, since when, and which call waits for whom
    #[cfg_attr(target_os = "linux", command(after_help = real_hosts::top::EXAMPLES))]
    Top(TopArgs),
    /// Print a script that makes a shell complete commands and options
    #[command(after_help = setup::COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Print the manual page, or write the pages of all commands
    #[command(after_help = setup::MAN_EXAMPLES)]
    Man(ManArgs),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits a command line into words, like a shell, up to a comment, a pipe, a redirection or the next command.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        for c in line.chars() {
            match (quote, c) {
                (None, '\'' | '"') => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                (Some(open), _) if open == c => quote = None,
                (None, '#') if word.is_none() => break,
                (None, '|' | '&' | ';' | '>') => break,
                (None, _) if c.is_whitespace() => words.extend(word.take()),
                _ => word.get_or_insert_default().push(c),
            }
        }
        words.extend(word);
        words
    }

    /// All Markdown files in `docs` and below, but the generated one.
    fn pages(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder of pages") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                pages(&path, found);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path);
            }
        }
    }

    #[test]
    fn every_command_of_the_pages_can_be_typed() {
        let mut all = vec!["../../README.md".into()];
        pages("../../docs".as_ref(), &mut all);
        let (mut tried, mut wrong) = (0, Vec::new());
        for page in all {
            let text = std::fs::read_to_string(&page).expect("a page").replace("\\\n", " ");
            let blocks = text.split("\n```").skip(1).step_by(2);
            let blocks = blocks.filter(|block| block.starts_with("sh\n") || block.starts_with("console\n"));
            for line in blocks.flat_map(str::lines) {
                let line = line.trim_start_matches("$ ").trim_start_matches("sudo ");
                // Variables and capitals are for the reader to fill in.
                if !line.starts_with("strandway ") || line.contains('$') || line.contains("FILE") {
                    continue;
                }
                tried += 1;
                if let Err(said) = Args::try_parse_from(words(line)) {
                    wrong.push(format!("{}: {line}: {said}", page.display()));
                }
            }
        }
        assert!(wrong.is_empty() && tried > 60, "{tried} commands\n{}", wrong.join("\n"));
    }

    #[test]
    fn every_command_line_that_rows_print_can_be_typed() {
        let names: Vec<String> = strandway_reproduce::list().iter().map(|s| s.name.to_string()).collect();
        let work = strandway_reproduce::choose(&names, None, true).expect("rows");
        let rows = work.commands().into_iter().map(|(_, line)| line);
        for line in rows.chain(work.cell_commands()).chain(work.model_commands()) {
            assert!(Args::try_parse_from(words(&line)).is_ok(), "{line}");
        }
        for line in work.cell_commands() {
            let Some(Command::Sweep(args)) = Args::try_parse_from(words(&line)).expect("parsed").command else {
                panic!("no sweep: {line}");
            };
            let file = std::path::Path::new("../..").join(&args.common.scenario);
            let mut scenario = strandway_lab::Scenario::load(&file).expect("a scenario of the repository");
            for set in &args.common.set {
                scenario.set(set).unwrap_or_else(|said| panic!("{line}: {said}"));
            }
        }
    }
}
