//! PRIME's rows about acknowledgements that cover several packets.

use super::{FOUR, Place, degraded, healthy, kind_of, place};
use crate::table::{Cell, RowSpec, SLOWEST, Table, Value};
use strandway_report::reproduction::Source;

/// A note for rows with acknowledgements every 64 KiB.
const OVERFLOW: &str = "the simulator below the model counts the bytes to acknowledge in 16 bits, so it never reaches 65,536 and acknowledges full \
    windows only (1,105 acknowledgements of 62,720 packets); with 32 bits it is as fast as ours: rows 64kib-mended";

/// Acknowledgements every 64 KiB, beside the public simulator with a counter of 32 bits for the bytes to acknowledge; means
/// of five permutations.
fn mended(table: &mut Table, kind: &str, cell: &Cell, reference: [f64; 3]) {
    let cell = cell.clone().set("profile.transport.ack_every", "64 KiB");
    for (selector, reference) in FOUR.iter().zip(reference) {
        let id = format!("acks/{kind}/64kib-mended/{}", selector.id);
        let what = format!("every 64 KiB, {}, slowest flow", selector.name);
        let row = RowSpec::new(id, what, "us", Value::slowest(&selector.on(&cell)));
        table.row(row.near(reference, Source::ReferenceSimulator, SLOWEST));
    }
}

/// The selectors with acknowledgements every packet, every 16 KiB and every 64 KiB.
pub(super) fn coalescing(table: &mut Table, settings: &mut Vec<Place>) {
    let model = [
        ("1p", "every packet", "4096 B", [59.7, 52.9, 55.0, 50.3], [70.9, 57.2, 56.6, 53.7]),
        ("16kib", "every 16 KiB", "16 KiB", [59.2, 57.3, 54.5, 49.9], [70.6, 67.9, 56.8, 52.7]),
        ("64kib", "every 64 KiB", "64 KiB", [78.6, 78.3, 78.6, 76.1], [85.3, 117.5, 78.0, 75.0]),
    ];
    for (kind, name, cell) in [("healthy", "healthy", healthy()), ("degraded", "a slow uplink per leaf", degraded())] {
        table.section(format!("Acknowledgements coalesced, 128 hosts, {name}"));
        for (id, what, every, healthy_model, degraded_model) in model {
            // 16 KiB is the profiles' default: these are the same runs as in the permutations above.
            let cell =
                if id == "16kib" { cell.clone() } else { cell.clone().set("profile.transport.ack_every", every) };
            let model = if kind == "healthy" { healthy_model } else { degraded_model };
            for (selector, model) in FOUR.iter().zip(model) {
                let row = RowSpec::new(
                    format!("acks/{kind}/{id}/{}", selector.id),
                    format!("{what}, {}, slowest flow", selector.name),
                    "us",
                    Value::slowest(&selector.on(&cell)),
                );
                let note = if id == "64kib" { OVERFLOW } else { "" };
                table.row(row.near(model, Source::ReferenceModel, SLOWEST).note(note));
            }
            if id != "16kib" {
                let name = format!("acknowledged {what}, 128 hosts, {name}");
                settings.push(place(&format!("acks/{kind}/{id}"), &name, cell, kind_of(kind)));
            }
        }
        mended(table, kind, &cell, if kind == "healthy" { [59.1, 58.6, 54.7] } else { [70.6, 69.6, 56.0] });
    }
}
