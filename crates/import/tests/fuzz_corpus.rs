//! Replays the corpora of the fuzz targets: no parser panics on any of these inputs.

use std::path::Path;

fn replay(target: &str, parse: impl Fn(&str)) {
    replay_bytes(target, |bytes| parse(&String::from_utf8_lossy(bytes)));
}

fn replay_bytes(target: &str, parse: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).expect("a corpus") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("readable");
        parse(&bytes);
        // Truncated files are the most common damage: cut them at many places.
        for at in (0..bytes.len()).step_by(1 + bytes.len() / 200) {
            parse(&bytes[..at]);
        }
        inputs += 1;
    }
    assert!(inputs > 0, "{} is empty", folder.display());
}

#[test]
fn matrices_never_panic() {
    replay("cm_parse", |text| drop(strandway_import::htsim::parse_cm(text)));
}

#[test]
fn topologies_never_panic() {
    replay("topo_parse", |text| drop(strandway_import::htsim::parse_topo(text)));
}

#[test]
fn traces_never_panic() {
    use strandway_import::{chakra, goal};
    replay_bytes("chakra_parse", |bytes| {
        let options = chakra::Options { control: true, ..chakra::Options::default() };
        let mut reader = chakra::Reader::new("a.et", options);
        if reader.rank("a.et", bytes).is_ok() {
            let _ = reader.finish(true).map(|trace| trace.describe());
        }
    });
    replay("chakra_json_parse", |text| {
        let mut reader = chakra::Reader::new("a.json", chakra::Options::default());
        if reader.rank_of_json("a.json", text).is_ok() {
            let _ = reader.finish(true).map(|trace| trace.describe());
        }
    });
    replay_bytes("goal_parse", |bytes| {
        let _ = goal::parse("a.goal", bytes);
        let _ = goal::describe("a.goal", bytes);
    });
}

#[test]
fn files_of_other_projects_never_panic() {
    use strandway_collective::Collective;
    use strandway_import::{aicb, infragraph, measured, msccl, mscclpp, nccl, nccl_tuner, simai, simai_topology};
    replay("requests_parse", |text| drop(strandway_import::requests::parse("a", text)));
    replay("simai_parse", |text| drop(simai::parse("a", text).map(|workload| workload.describe())));
    replay("aicb_parse", |text| drop(aicb::parse("a", text, Some(16))));
    replay("aicb_parse", |text| drop(aicb::parse("a", text, None)));
    replay("mscclpp_parse", |text| {
        drop(mscclpp::parse_as("a", text, Collective::AllToAll).map(|made| made.describe()))
    });
    replay("measured_parse", |text| drop(measured::parse("a", text).map(|measured| measured.describe())));
    replay("msccl_parse", |text| drop(msccl::parse("a", text).map(|made| made.describe())));
    replay("simai_topology_parse", |text| {
        drop(simai_topology::read("a", text).map(|made| simai_topology::describe(&made.0)))
    });
    replay("infragraph_parse", |text| {
        let _ = infragraph::parse("a", text, None).map(|made| made.describe());
        let _ = infragraph::parse_protobuf("a", text.as_bytes(), None).map(|made| made.describe());
    });
    replay("nccl_parse", |text| {
        let _ = nccl::parse("a", text).map(|server| server.describe());
        let _ = nccl::describe_graphs("a", text);
        let _ = nccl_tuner::parse("a", text).map(|tuner| tuner.describe());
    });
}
