//! Buffers of a SONiC switch: pools, profiles, and their queues and priority groups.

use super::{CONTROL, CUT, DATA, Tables, ethernet};
use crate::LinuxFabric;
use crate::export::limits::buffer_of;
use crate::export::switch::SwitchPlan;
use crate::export::{Buffers, Gap, gap};

/// Adds the tables of buffers.
pub(super) fn put(
    tables: &mut Tables,
    fabric: &LinuxFabric,
    buffers: &Buffers,
    switch: &SwitchPlan,
    gaps: &mut Vec<Gap>,
) {
    let ports = switch.ports.len() as u64;
    let headroom = buffers.pfc.map_or(0, |pfc| pfc.headroom.0 * ports);
    let whole = (buffer_of(fabric, buffers, ports) - headroom).to_string();
    let mode = if buffers.shared.is_some() { "dynamic" } else { "static" };
    for kind in ["ingress", "egress"] {
        let pool = format!("{kind}_pool");
        tables.put("BUFFER_POOL", &pool, &[("type", kind), ("mode", mode), ("size", &whole)]);
    }
    if headroom > 0 {
        tables.put("BUFFER_POOL", "ingress_pool", &[("xoff", &headroom.to_string())]);
    }
    // How much of its pool a queue or priority group may take.
    let dynamic = buffers.shared.map(|shared| exponent(shared.alpha, gaps).to_string());
    let most = |bytes: u64| match &dynamic {
        Some(exponent) => ("dynamic_th", exponent.clone()),
        None => ("static_th", bytes.to_string()),
    };
    let mut profile = |name: &str, pool: &str, size: u64, threshold: (&str, String)| {
        let fields = [("pool", pool), ("size", &size.to_string()[..]), (threshold.0, &threshold.1[..])];
        tables.put("BUFFER_PROFILE", name, &fields);
    };
    // With PFC, a packet that has been accepted is never dropped on its way out.
    let all = whole.parse().unwrap_or(fabric.queue);
    let queue = if buffers.pfc.is_some() { all } else { fabric.queue };
    let egress = match (&dynamic, buffers.pfc) {
        (Some(_), Some(_)) => ("dynamic_th", "7".to_string()),
        _ => most(queue),
    };
    profile("data_queue", "egress_pool", 0, egress);
    profile("control_queue", "egress_pool", 0, most(buffers.control_queue.max(1)));
    match buffers.pfc {
        Some(pfc) => {
            profile("data_group", "ingress_pool", if dynamic.is_some() { pfc.xoff.0 } else { 0 }, most(pfc.xoff.0));
            let xon = if dynamic.is_some() { "xon_offset" } else { "xon" };
            let fields = [("xoff", &pfc.headroom.0.to_string()[..]), (xon, &pfc.xon.0.to_string())];
            tables.put("BUFFER_PROFILE", "data_group", &fields);
        }
        None => profile("data_group", "ingress_pool", 0, most(all)),
    }
    let action = if fabric.trimming { "trim" } else { "drop" };
    tables.put("BUFFER_PROFILE", "data_queue", &[("packet_discard_action", action)]);
    for port in (0..switch.ports.len()).map(ethernet) {
        tables.put("BUFFER_PG", &format!("{port}|{DATA}"), &[("profile", "data_group")]);
        tables.put("BUFFER_QUEUE", &format!("{port}|{DATA}"), &[("profile", "data_queue")]);
        for class in [CUT, CONTROL] {
            tables.put("BUFFER_QUEUE", &format!("{port}|{class}"), &[("profile", "control_queue")]);
        }
    }
    gaps.push(gap(
        "cells of a buffer",
        "an ASIC counts cells of some 200 to 300 bytes",
        "thresholds are in bytes; the ASIC rounds them up to cells",
    ));
}

/// The exponent of two for the factor of a dynamic threshold.
fn exponent(alpha: f64, gaps: &mut Vec<Gap>) -> i32 {
    let exponent = (alpha.log2().round() as i32).clamp(-8, 7);
    if alpha != f64::from(exponent).exp2() {
        gaps.push(gap(
            format!("a dynamic threshold of {alpha} times the free bytes"),
            "dynamic_th is a power of two from 1/256 to 128",
            format!("2^{exponent}"),
        ));
    }
    exponent
}
