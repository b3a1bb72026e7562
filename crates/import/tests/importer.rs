//! The table of formats, and the worked example of CONTRIBUTING.md: a format of one message per line.

use std::path::Path;
use strandway_import::{IMPORTERS, Importer, trace};

// In `crates/import` this is `use crate::...`.
// snippet: begin
use strandway_import::Problems;
use strandway_import::trace::{BYTES_MAX, Does, Operation, RANKS_MAX, RankTrace, Trace, problem};

/// Is this a list of messages? Its first line has the names of the columns.
fn is_message_list(text: &str) -> bool {
    text.lines().next().is_some_and(|line| line.trim() == "from,to,bytes")
}

/// Parses a list of messages. Each rank sends its messages one after the other, and waits for each.
fn parse(file: &str, text: &str) -> Result<Trace, Problems> {
    let mut ranks: Vec<RankTrace> = Vec::new();
    for (number, line) in (1..).zip(text.lines()).skip(1) {
        let bad = |what: &str, remedy: &str| problem(file, Some(number), line, what, remedy);
        let fields: Vec<u64> = line.split(',').map_while(|field| field.trim().parse().ok()).collect();
        let &[from, to, bytes] = fields.as_slice() else {
            return Err(bad("is not three whole numbers", "write FROM,TO,BYTES"));
        };
        if from == to || from.max(to) >= u64::from(RANKS_MAX) || bytes > BYTES_MAX {
            return Err(bad("is a message that cannot be sent", "correct its ranks, or write fewer bytes"));
        }
        let (from, to, tag) = (from as u32, to as u32, 0);
        ranks.resize(ranks.len().max(1 + from.max(to) as usize), RankTrace::default());
        for (rank, does) in [(from, Does::Send { to, bytes, tag }), (to, Does::Receive { from, tag })] {
            let operations = &mut ranks[rank as usize];
            let before = (operations.operations.len() as u32).checked_sub(1);
            operations.add(Operation { id: number as u64, does }, before);
        }
    }
    let assumed = vec!["a rank begins a line when it has ended its line before".to_string()];
    Ok(Trace { file: file.into(), format: "a list of messages", noun: "line", ranks, assumed, ..Trace::default() })
}

/// The row of the table `IMPORTERS`.
const MESSAGE_LIST: Importer = Importer {
    name: "a list of messages",
    recognises: is_message_list,
    describe: |file, text, _| Ok(parse(file, text)?.describe()),
    trace: Some(|file, text, _| parse(file, text)),
};
// snippet: end

const LIST: &str = "from,to,bytes\n0,1,4096\n1,2,4096\n";

#[test]
fn a_list_of_messages_becomes_a_trace() {
    assert!((MESSAGE_LIST.recognises)(LIST) && !(MESSAGE_LIST.recognises)("Nodes 4\n"));
    let trace = MESSAGE_LIST.trace.expect("it is one")("a.csv", LIST, None).expect("sound");
    assert_eq!(trace.ranks.len(), 3);
    let middle = &trace.ranks[1];
    assert_eq!(middle.operations[0].does, Does::Receive { from: 0, tag: 0 });
    assert_eq!((middle.operations[1].id, middle.needs_of(1)), (3, &[0][..]));
    assert_eq!(trace.contents().sent_bytes, 8192);
    let said = (MESSAGE_LIST.describe)("a.csv", LIST, None).expect("sound");
    assert!(said.starts_with("a list of messages: 3 ranks\n  2 messages sent, 0.008 MB in all\n"), "{said}");
}

#[test]
fn a_wrong_line_is_named_with_a_remedy() {
    for (line, remedy) in [("0,1", "write FROM,TO,BYTES"), ("2,2,1", "correct its ranks"), ("0,200000,1", "correct")] {
        let said = parse("a.csv", &format!("{LIST}{line}\n")).expect_err(line).to_string();
        assert!(said.starts_with(&format!("a.csv:4: `{line}`: is ")) && said.contains(remedy), "{said}");
    }
}

/// The text files of a fuzzing corpus.
fn corpus(target: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = std::fs::read_dir(folder).expect("a corpus").map(|entry| entry.expect("an entry").path());
    files.filter_map(|path| std::fs::read_to_string(path).ok()).collect()
}

#[test]
fn each_format_of_the_table_recognises_a_file_of_its_corpus() {
    for (number, importer) in IMPORTERS.iter().enumerate() {
        assert!(IMPORTERS[..number].iter().all(|other| other.name != importer.name), "{}", importer.name);
    }
    let corpora = [
        ("a workload of SimAI", "simai_parse"),
        ("a GOAL schedule", "goal_parse"),
        ("an algorithm of MSCCL", "msccl_parse"),
        ("an execution plan of MSCCL++", "mscclpp_parse"),
        ("measured points", "measured_parse"),
        ("a topology of NCCL", "nccl_parse"),
        ("a list of AICB", "aicb_parse"),
        ("an InfraGraph", "infragraph_parse"),
        ("an htsim topology", "topo_parse"),
        ("an htsim traffic matrix", "cm_parse"),
        ("a topology of SimAI", "simai_topology_parse"),
        ("graphs of NCCL", "nccl_parse"),
        ("a table of NCCL's tuner", "nccl_parse"),
    ];
    for importer in IMPORTERS {
        let has_one = corpora.iter().any(|(name, _)| *name == importer.name);
        assert!(has_one, "{}: add its corpus to the list in this test", importer.name);
    }
    for (name, target) in corpora {
        let found = corpus(target);
        let of = |text: &String| Importer::of(text).map(|importer| importer.name);
        assert!(found.iter().any(|text| of(text) == Some(name)), "{name}: no file of {target}");
    }
    assert!(Importer::of(LIST).is_none(), "the example is no format of ours");
}

#[test]
fn a_trace_of_the_table_is_one_that_a_job_can_run() {
    let with_traces: Vec<&str> =
        IMPORTERS.iter().filter(|importer| importer.trace.is_some()).map(|importer| importer.name).collect();
    assert_eq!(with_traces, ["a GOAL schedule", "a list of AICB"], "a new format with traces: add its name here");
    let text = "num_ranks 2\nrank 0 {\na: send 8b to 1 tag 3\n}\nrank 1 {\na: recv 8b from 0 tag 3\n}\n";
    let read = Importer::of(text).and_then(|importer| importer.trace).expect("a GOAL schedule");
    let trace: trace::Trace = read("a.goal", text, None).expect("sound");
    assert_eq!(trace.ranks.len(), 2);
}
