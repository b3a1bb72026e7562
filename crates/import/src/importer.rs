//! The table of text formats.

use crate::trace::Trace;
use crate::{
    Problems, aicb, goal, htsim, infragraph, measured, msccl, mscclpp, nccl, nccl_tuner, simai, simai_topology,
};
use strandway_collective::Collective;

/// A function that reads a trace from a file of this name and text, for a number of GPUs if the file does not say it.
pub type ReadTrace = fn(file: &str, text: &str, gpus: Option<u32>) -> Result<Trace, Problems>;

/// A text format that this crate reads. Files of several ranks (Chakra, recordings) and GOAL's binary form are found by
/// [`crate::describe_file`] before a text is read.
pub struct Importer {
    /// The name of the format.
    pub name: &'static str,
    /// Is this text in the format? It looks at the first lines.
    pub recognises: fn(text: &str) -> bool,
    /// Says what is in a file of this name and text, for a number of GPUs if the file does not say it.
    pub describe: fn(file: &str, text: &str, gpus: Option<u32>) -> Result<String, Problems>,
    /// Reads the file as a trace, which `[job] file` runs; `None` if the format is no trace.
    pub trace: Option<ReadTrace>,
}

/// All text formats. The first one that recognises a text describes and reads it.
pub const IMPORTERS: &[Importer] = &[
    Importer {
        name: "a workload of SimAI",
        recognises: simai::is_workload,
        describe: |file, text, _| Ok(simai::parse(file, text)?.describe()),
        trace: None,
    },
    Importer {
        name: "a GOAL schedule",
        recognises: |text| goal::is_text(text.as_bytes()),
        describe: |file, text, _| goal::describe(file, text.as_bytes()),
        trace: Some(|file, text, _| goal::parse(file, text.as_bytes())),
    },
    Importer {
        name: "an algorithm of MSCCL",
        recognises: msccl::is_algorithm,
        describe: |file, text, _| Ok(msccl::parse(file, text)?.describe()),
        trace: None,
    },
    Importer {
        name: "an execution plan of MSCCL++",
        recognises: mscclpp::is_plan,
        describe: |file, text, _| Ok(mscclpp::parse_as(file, text, Collective::AllToAll)?.describe()),
        trace: None,
    },
    Importer {
        name: "a topology of NCCL",
        recognises: nccl::is_topology,
        describe: |file, text, _| Ok(nccl::parse(file, text)?.describe()),
        trace: None,
    },
    Importer {
        name: "graphs of NCCL",
        recognises: nccl::is_graphs,
        describe: |file, text, _| nccl::describe_graphs(file, text),
        trace: None,
    },
    Importer {
        name: "a table of NCCL's tuner",
        recognises: nccl_tuner::is_tuner,
        describe: |file, text, _| Ok(nccl_tuner::parse(file, text)?.describe()),
        trace: None,
    },
    Importer {
        name: "a list of AICB",
        recognises: aicb::is_list,
        describe: |file, text, gpus| Ok(aicb::parse(file, text, gpus)?.describe()),
        trace: Some(aicb::parse),
    },
    Importer {
        name: "an InfraGraph",
        recognises: infragraph::is_infragraph,
        describe: |file, text, _| Ok(infragraph::parse(file, text, None)?.describe()),
        trace: None,
    },
    Importer {
        name: "measured points",
        recognises: measured::is_measured,
        describe: |file, text, _| Ok(measured::parse(file, text)?.describe()),
        trace: None,
    },
    Importer {
        name: "an htsim topology",
        recognises: htsim::is_topology,
        describe: |file, text, _| htsim::describe_topology(file, text),
        trace: None,
    },
    Importer {
        name: "an htsim traffic matrix",
        recognises: htsim::is_matrix,
        describe: |file, text, _| htsim::describe_matrix(file, text),
        trace: None,
    },
    Importer {
        name: "a topology of SimAI",
        recognises: simai_topology::is_topology,
        describe: |file, text, _| Ok(simai_topology::describe(&simai_topology::read(file, text)?.0)),
        trace: None,
    },
];

impl Importer {
    /// The importer of a text; `None` if it is of no kind that is known.
    pub fn of(text: &str) -> Option<&'static Importer> {
        IMPORTERS.iter().find(|importer| (importer.recognises)(text))
    }
}
