//! The model against reference values, which were calculated by another implementation of the same formulas.

use strandway_proto::repair::Code;
use strandway_proto::repair::model::{Completion, Effort, Fallback, Transfer, chunk_loss};

const MIB: f64 = 1_048_576.0;

/// A message of `bytes` bytes in chunks of 4 KiB; times in milliseconds.
fn transfer(bytes: f64, gbps: f64, rtt: f64, loss: f64) -> Transfer {
    Transfer { chunks: (bytes / 4096.0) as u64, chunk_time: 4096.0 * 8.0 / gbps * 1e-6, rtt, loss }
}

fn code(text: &str) -> Code {
    text.parse().expect("a code")
}

/// By the name of a column: `rto`, `nack` or a code.
fn scheme(transfer: &Transfer, name: &str, effort: Effort) -> Completion {
    match name {
        "rto" => transfer.retransmitted(3.0 * transfer.rtt, effort),
        "nack" => transfer.retransmitted(transfer.rtt, effort),
        name => transfer.coded(code(name), &Fallback::new(3.0 * transfer.rtt), effort),
    }
}

/// Is the value within the given share of the reference, or within the rounding of its print?
fn near(what: &str, found: f64, asked: &str, share: f64) {
    let value: f64 = asked.parse().expect("a number");
    let digits = asked.split('e').next().and_then(|a| a.split_once('.')).map_or(0, |(_, d)| d.len());
    let exponent: i32 = asked.split_once('e').map_or(0, |(_, e)| e.parse().expect("an exponent"));
    let printed = 0.501 * 10f64.powi(exponent - digits as i32);
    let off = (found - value).abs();
    assert!(off <= share * value.abs() || off <= printed, "{what}: {found}, asked {asked}");
}

/// The size in bytes, and the rest of the line.
fn size(text: &str) -> f64 {
    let (number, unit) = text.split_once(' ').expect("a unit");
    let unit = match unit {
        "KiB" => MIB / 1024.0,
        "MiB" => MIB,
        _ => MIB * 1024.0,
    };
    number.parse::<f64>().expect("a number") * unit
}

fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().map(str::trim).filter(|l| !l.is_empty()).map(|l| l.split('|').map(str::trim).collect())
}

#[test]
fn slowdown_by_size() {
    let table = "
        128 KiB | 25.003 | 1.001 / 1.000 | 1.000 / 1.000 | 1.000
        1 MiB | 25.021 | 1.008 / 3.997 | 1.003 / 1.999 | 1.000
        8 MiB | 25.168 | 1.060 / 3.980 | 1.020 / 1.993 | 1.002
        32 MiB | 25.671 | 1.229 / 3.921 | 1.076 / 1.974 | 1.007
        128 MiB | 27.684 | 1.744 / 3.709 | 1.240 / 1.903 | 1.024
        512 MiB | 35.737 | 2.446 / 3.098 | 1.425 / 1.699 | 1.075
        2 GiB | 67.950 | 1.981 / 2.104 | 1.253 / 1.368 | 1.158
        8 GiB | 196.799 | 1.340 / 1.381 | 1.087 / 1.127 | 1.218
        32 GiB | 712.195 | 1.094 / 1.105 | 1.024 / 1.035 | 1.241
        128 GiB | 2773.779 | 1.024 / 1.027 | 1.006 / 1.009 | 1.248";
    for row in rows(table) {
        let transfer = transfer(size(row[0]), 400.0, 25.0, 1e-5);
        near(row[0], transfer.ideal(), row[1], 1e-4);
        for (name, cell) in ["rto", "nack", "mds:32,8"].iter().zip(&row[2..]) {
            let completion = scheme(&transfer, name, Effort::FINE);
            let (mean, tail) = cell.split_once(" / ").unwrap_or((cell, cell));
            let what = format!("{} {name}", row[0]);
            near(&what, completion.mean() / transfer.ideal(), mean, 0.002);
            near(&what, completion.quantile(0.999) / transfer.ideal(), tail, 0.002);
        }
        assert!(scheme(&transfer, "mds:32,8", Effort::FINE).fallback() < 1e-25);
    }
}

#[test]
fn slowdown_by_loss_and_fallback_probability() {
    let columns = ["rto", "nack", "mds:32,8", "xor:32,8", "mds:32,4", "mds:32,16"];
    let table = "
        1e-6 | 1.086 / 3.706 | 1.028 / 1.900 | 1.024 / 1.024, 0 | 1.024 / 1.024, 8.19e-8 | 1.012 / 1.012, 3.86e-22 | 1.048 / 1.048, 0
        1e-5 | 1.744 / 3.709 | 1.240 / 1.903 | 1.024 / 1.024, 0 | 1.024 / 1.024, 8.19e-6 | 1.012 / 1.012, 3.86e-17 | 1.048 / 1.048, 0
        1e-4 | 3.583 / 3.709 | 1.844 / 1.903 | 1.024 / 1.024, 2.79e-25 | 1.026 / 1.024, 8.19e-4 | 1.012 / 1.012, 3.85e-12 | 1.048 / 1.048, 0
        1e-3 | 3.792 / 6.415 | 1.928 / 2.803 | 1.024 / 1.024, 2.72e-16 | 1.173 / 5.539, 0.079 | 1.012 / 1.012, 3.76e-7 | 1.048 / 1.048, 0
        3e-3 | 4.391 / 6.418 | 2.122 / 2.806 | 1.024 / 1.024, 5.07e-12 | 2.139 / 5.540, 0.519 | 1.012 / 1.012, 8.68e-5 | 1.048 / 1.048, 5.14e-28
        1e-2 | 6.379 / 9.125 | 2.776 / 3.707 | 1.024 / 1.024, 2.12e-7 | 5.303 / 8.250, 1.000 | 1.088 / 5.527, 0.029 | 1.048 / 1.048, 3.24e-19
        2e-2 | 7.041 / 11.82 | 3.003 / 4.595 | 1.024 / 1.024, 8.18e-5 | 6.448 / 10.96, 1.000 | 2.781 / 8.237, 0.521 | 1.048 / 1.048, 3.16e-14
        3e-2 | 8.056 / 11.84 | 3.335 / 4.611 | 1.033 / 5.539, 2.37e-3 | 8.011 / 13.67, 1.000 | 5.630 / 10.95, 0.987 | 1.048 / 1.048, 2.31e-11
        5e-2 | 9.586 / 14.54 | 3.844 / 5.510 | 1.553 / 8.249, 0.124 | 9.697 / 16.38, 1.000 | 8.381 / 13.66, 1.000 | 1.048 / 1.048, 7.43e-8
        1e-1 | 12.56 / 19.94 | 4.831 / 7.299 | 9.428 / 16.38, 1.000 | 13.61 / 21.81, 1.000 | 12.90 / 19.10, 1.000 | 1.059 / 5.564, 2.04e-3";
    for row in rows(table) {
        let transfer = transfer(128.0 * MIB, 400.0, 25.0, row[0].parse().expect("a loss"));
        for (name, cell) in columns.iter().zip(&row[1..]) {
            let completion = scheme(&transfer, name, Effort::FINE);
            let (times, fallback) = cell.split_once(", ").unwrap_or((cell, "0"));
            let (mean, tail) = times.split_once(" / ").expect("two numbers");
            let what = format!("{} {name}", row[0]);
            near(&what, completion.mean() / transfer.ideal(), mean, 0.005);
            near(&what, completion.quantile(0.999) / transfer.ideal(), tail, 0.005);
            match fallback {
                "0" => assert!(completion.fallback() < 1e-29, "{what}: {}", completion.fallback()),
                _ => near(&what, completion.fallback(), fallback, 0.005),
            }
        }
    }
}

#[test]
fn speed_up_of_coding_by_size_and_loss() {
    let table = "
        128 KiB | 1.000 (1.00) | 1.001 (1.00) | 1.010 (4.00) | 1.095 (4.00) | 1.835 (7.00)
        1 MiB | 1.001 (1.00) | 1.007 (4.00) | 1.076 (4.00) | 1.678 (4.00) | 3.844 (6.99)
        8 MiB | 1.004 (3.97) | 1.059 (3.97) | 1.549 (3.97) | 3.594 (6.95) | 4.530 (9.92)
        32 MiB | 1.017 (3.89) | 1.221 (3.90) | 2.611 (3.90) | 3.916 (6.80) | 5.537 (9.70)
        64 MiB | 1.033 (3.80) | 1.409 (3.80) | 3.238 (3.80) | 3.841 (6.61) | 6.095 (9.42)
        128 MiB | 1.060 (3.62) | 1.703 (3.62) | 3.498 (3.62) | 3.702 (6.26) | 6.228 (8.91)
        512 MiB | 1.153 (2.88) | 2.275 (2.88) | 2.863 (4.62) | 3.104 (4.83) | 5.041 (8.53)
        1 GiB | 1.184 (2.34) | 2.122 (2.34) | 2.331 (3.63) | 2.630 (3.79) | 4.069 (6.53)
        2 GiB | 1.151 (1.82) | 1.711 (1.82) | 1.810 (2.67) | 2.104 (2.77) | 3.056 (4.58)
        8 GiB | 0.929 (1.13) | 1.100 (1.13) | 1.132 (1.41) | 1.242 (1.45) | 1.556 (2.04)";
    for row in rows(table) {
        for (loss, cell) in [1e-6, 1e-5, 1e-4, 1e-3, 1e-2].into_iter().zip(&row[1..]) {
            let transfer = transfer(size(row[0]), 400.0, 25.0, loss);
            let [rto, coded] = ["rto", "mds:32,8"].map(|name| scheme(&transfer, name, Effort::FINE));
            let (mean, tail) = cell.trim_end_matches(')').split_once(" (").expect("two numbers");
            let what = format!("{} {loss}", row[0]);
            near(&what, rto.mean() / coded.mean(), mean, 0.005);
            near(&what, rto.quantile(0.999) / coded.quantile(0.999), tail, 0.005);
        }
    }
}

#[test]
fn slowdown_by_distance_and_where_coding_begins_to_win() {
    let at = |km: f64, name| {
        let transfer = transfer(8.0 * 1024.0 * MIB, 400.0, km / 150.0, 1e-5);
        scheme(&transfer, name, Effort::FINE).mean() / transfer.ideal()
    };
    let table = "
        75 | 1.001 | 1.000 | 1.249
        750 | 1.046 | 1.007 | 1.243
        1500 | 1.121 | 1.023 | 1.236
        2250 | 1.197 | 1.043 | 1.230
        3000 | 1.270 | 1.065 | 1.224
        3750 | 1.340 | 1.087 | 1.218
        4500 | 1.405 | 1.109 | 1.213
        6000 | 1.528 | 1.150 | 1.203";
    for row in rows(table) {
        for (name, cell) in ["rto", "nack", "mds:32,8"].iter().zip(&row[1..]) {
            near(&format!("{} km {name}", row[0]), at(row[0].parse().expect("km"), name), cell, 0.005);
        }
    }
    let gain = |km| at(km, "rto") - at(km, "mds:32,8");
    assert!(gain(2_530.0) < 0.0 && gain(2_582.0) > 0.0, "the crossover is at 2,556 km, within 1 %");
}

#[test]
fn slowdown_by_distance_and_rate() {
    let table = "
        75 | 1.00/1.00/1.24 | 1.01/1.00/1.23 | 1.04/1.00/1.21 | 1.13/1.02/1.18 | 1.28/1.05/1.14
        750 | 1.18/1.02/1.17 | 1.34/1.07/1.13 | 1.50/1.14/1.09 | 1.63/1.19/1.05 | 1.72/1.23/1.03
        1500 | 1.34/1.07/1.13 | 1.50/1.14/1.09 | 1.63/1.19/1.05 | 1.72/1.23/1.03 | 1.78/1.25/1.02
        3750 | 1.55/1.16/1.08 | 1.67/1.21/1.04 | 1.74/1.24/1.02 | 1.79/1.26/1.01 | 1.81/1.27/1.01
        7500 | 1.67/1.21/1.04 | 1.74/1.24/1.02 | 1.79/1.26/1.01 | 1.81/1.27/1.01 | 1.83/1.27/1.00";
    for row in rows(table) {
        for (gbps, cell) in [100.0, 200.0, 400.0, 800.0, 1600.0].into_iter().zip(&row[1..]) {
            let km: f64 = row[0].parse().expect("km");
            let transfer = transfer(128.0 * MIB, gbps, km / 150.0, 1e-5);
            for (name, asked) in ["rto", "nack", "mds:32,8"].iter().zip(cell.split('/')) {
                let found = scheme(&transfer, name, Effort::FINE).mean() / transfer.ideal();
                near(&format!("{km} km, {gbps} Gb/s, {name}"), found, asked, 0.005);
            }
        }
    }
}

#[test]
fn chunks_of_many_packets_fail_more_often() {
    let table = "
        1e-4 | 2.79e-25 | 1.14e-15 | 8.19e-4 | 0.013
        1e-3 | 2.72e-16 | 7.20e-7 | 0.079 | 0.714
        2e-3 | 1.36e-13 | 2.21e-4 | 0.278 | 0.992
        3e-3 | 5.07e-12 | 5.11e-3 | 0.519 | 1.000
        5e-3 | 4.76e-10 | 0.170 | 0.868 | 1.000
        1e-2 | 2.12e-7 | 1.000 | 1.000 | 1.000";
    for row in rows(table) {
        let columns = [("mds:32,8", 1), ("mds:32,8", 16), ("xor:32,8", 1), ("xor:32,8", 16)];
        for ((name, packets), cell) in columns.into_iter().zip(&row[1..]) {
            let loss = chunk_loss(row[0].parse().expect("a loss"), packets);
            let transfer = Transfer { chunks: 32_768 / packets, chunk_time: 1e-3, rtt: 25.0, loss };
            let found = scheme(&transfer, name, Effort::FINE).fallback();
            near(&format!("{} {name}, {packets} packets", row[0]), found, cell, 0.01);
        }
    }
}

/// Goodput at 1 Gb/s, 1,344 B of payload in 1,514 B frames: messages of many bandwidth-delay products.
#[test]
fn goodput_at_one_gigabit() {
    let columns = ["rto", "nack", "mds:32,2", "mds:32,4", "mds:32,8"];
    let table = "
        4 MiB, 25 | 1e-3 | 0.269 | 0.434 | 0.515 | 0.497 | 0.464
        4 MiB, 25 | 1e-2 | 0.220 | 0.376 | 0.360 | 0.495 | 0.464
        4 MiB, 100 | 1e-2 | 0.065 | 0.129 | 0.133 | 0.234 | 0.228
        4 MiB, 100 | 3e-2 | 0.046 | 0.102 | 0.048 | 0.119 | 0.228
        128 MiB, 25 | 1e-3 | 0.827 | 0.860 | 0.819 | 0.775 | 0.699
        128 MiB, 25 | 3e-2 | 0.778 | 0.842 | 0.670 | 0.698 | 0.698
        128 MiB, 100 | 1e-3 | 0.670 | 0.768 | 0.773 | 0.735 | 0.666
        128 MiB, 100 | 1e-2 | 0.595 | 0.745 | 0.566 | 0.723 | 0.666
        1 GiB, 25 | 1e-2 | 0.877 | 0.883 | 0.819 | 0.784 | 0.709
        1 GiB, 100 | 1e-2 | 0.836 | 0.867 | 0.780 | 0.771 | 0.704";
    for row in rows(table) {
        let (bytes, rtt) = row[0].split_once(", ").expect("size and round trip");
        let (bytes, rtt) = (size(bytes), rtt.parse().expect("a round trip"));
        let (chunks, chunk_time) = ((bytes / 1344.0).ceil() as u64, 1514.0 * 8e-6);
        let transfer = Transfer { chunks, chunk_time, rtt, loss: row[1].parse().expect("a loss") };
        for (name, cell) in columns.iter().zip(&row[2..]) {
            let goodput = bytes * 8.0 / scheme(&transfer, name, Effort::FINE).mean() / 1e6;
            near(&format!("{} {} {name}", row[0], row[1]), goodput, cell, 0.01);
        }
    }
}

#[test]
fn quick_answers_are_close_to_fine_ones_and_percentiles_are_sharp() {
    for bytes in [4096.0, 1e6, 128e6, 20e9] {
        for loss in [0.0, 1e-4, 1e-2, 0.2] {
            for (gbps, rtt) in [(400.0, 25.0), (1.0, 100.0), (1.0, 0.5)] {
                let transfer = transfer(bytes, gbps, rtt, loss);
                for name in ["rto", "nack", "xor:32,8", "mds:32,8", "mds:32,2"] {
                    let [fine, quick] = [Effort::FINE, Effort::QUICK].map(|e| scheme(&transfer, name, e));
                    let what = format!("{transfer:?} {name}");
                    assert!(
                        (quick.mean() / fine.mean() - 1.0).abs() < 0.01,
                        "{what}: {} {}",
                        quick.mean(),
                        fine.mean()
                    );
                    for completion in [&fine, &quick] {
                        let tail = completion.quantile(0.999);
                        assert!(completion.at_most(tail) >= 0.999, "{what}: {tail} is enough");
                        assert!(
                            completion.at_most(tail * (1.0 - 1e-9)) < 0.999,
                            "{what}: {tail} is no more than needed"
                        );
                    }
                    let [fine, quick] = [fine, quick].map(|c| c.quantile(0.999));
                    assert!((quick / fine - 1.0).abs() < 0.02, "{what}: {quick} {fine}");
                }
            }
        }
    }
}

/// Two draws in [0, 1) at a time, from a seed.
fn draws(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A message whose last group is smaller, simulated chunk by chunk: lost chunks, failed groups, and the number of times
/// each chunk is sent again.
fn played(transfer: &Transfer, code: &Code, fallback: &Fallback, draw: &mut impl FnMut() -> f64) -> f64 {
    let (mut chunks, mut sent, mut again) = (transfer.chunks as usize, 0, 0);
    while chunks > 0 {
        let group = if chunks < code.data() { code.shortened(chunks) } else { *code };
        let mut present = strandway_proto::repair::Pieces::none();
        (0..group.pieces()).filter(|_| draw() >= transfer.loss).for_each(|piece| {
            present.insert(piece);
        });
        if !group.decodable(&present) {
            let missing = present.missing_below(group.data()).iter().count();
            again += if fallback.whole_groups { group.data() } else { missing.max(1) };
        }
        sent += group.pieces();
        chunks -= group.data();
    }
    let sent = sent as f64 * transfer.chunk_time;
    if again == 0 {
        return sent + transfer.rtt;
    }
    let arrival = |i: usize| {
        let mut at = i as f64 * transfer.chunk_time;
        while draw() < transfer.loss {
            at += fallback.rto + transfer.chunk_time;
        }
        at
    };
    sent + (1.0 + fallback.beta) * transfer.rtt + (1..=again).map(arrival).fold(0.0, f64::max) + transfer.rtt
}

#[test]
fn messages_that_are_no_multiple_of_a_group_are_as_when_played_chunk_by_chunk() {
    let mut draw = draws(5);
    for (name, chunks) in
        [("mds:32,8", 75), ("mds:32,2", 33), ("mds:5,1", 3), ("xor:32,8", 50), ("xor:30,8", 70), ("xor:7,3", 10)]
    {
        for whole_groups in [true, false] {
            let transfer = Transfer { chunks, chunk_time: 0.02, rtt: 25.0, loss: 0.1 };
            let fallback = Fallback { whole_groups, ..Fallback::new(75.0) };
            let mut times: Vec<f64> =
                (0..20_000).map(|_| played(&transfer, &code(name), &fallback, &mut draw)).collect();
            times.sort_by(f64::total_cmp);
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            let completion = transfer.coded(code(name), &fallback, Effort::FINE);
            let what = format!("{name}, {chunks} chunks, {fallback:?}");
            assert!((completion.mean() / mean - 1.0).abs() < 0.02, "{what}: {} and played {mean}", completion.mean());
            for share in [0.5, 0.9, 0.99] {
                let (modelled, found) = (completion.quantile(share), times[(share * 20_000.0) as usize]);
                let round = 75.02 + 1.0;
                assert!((modelled - found).abs() < round, "{what}: {modelled} and played {found}");
            }
            // Samples are drawn from the same distribution.
            let sampler = completion.sampler();
            let drawn = (0..20_000).map(|_| sampler.draw(draw(), draw())).sum::<f64>() / 20_000.0;
            assert!((drawn / completion.mean() - 1.0).abs() < 0.02, "{what}: {} and drawn {drawn}", completion.mean());
        }
    }
}

#[test]
fn links_on_which_hardly_anything_arrives_have_an_answer() {
    for loss in [0.7, 0.9, 1.0] {
        for bytes in [4096.0, 128.0 * MIB] {
            let transfer = transfer(bytes, 400.0, 25.0, loss);
            for name in ["rto", "xor:32,8", "mds:32,8"] {
                let completion = scheme(&transfer, name, Effort::QUICK);
                let (mean, tail) = (completion.mean(), completion.quantile(0.999));
                assert!(
                    mean.is_finite() && mean > transfer.ideal() && tail > mean,
                    "{transfer:?} {name}: {mean}, {tail}"
                );
            }
        }
    }
}

/// No function of a mathematics library is called, so results are the same in all builds and on all machines.
#[test]
fn every_build_gives_the_same_bits() {
    let bits = |name: &str, loss: f64| {
        let completion = scheme(&transfer(128.0 * MIB, 400.0, 25.0, loss), name, Effort::QUICK);
        [completion.mean().to_bits(), completion.quantile(0.999).to_bits(), completion.fallback().to_bits()]
    };
    assert_eq!(bits("rto", 1e-2), [0x406612c490bd554d, 0x406f9420939e57ef, 0]);
    assert_eq!(bits("mds:32,4", 1e-2), [0x403e1bb0f530da3d, 0x406320b7d0bc4596, 0x3f9e13ab9c0bcb76]);
    assert_eq!(bits("xor:32,8", 1e-3), [0x40403cabb9881fdb, 0x40632b6e8dfd2e3f, 0x3fb418d437bf9169]);
    let source = include_str!("../src/repair/model.rs");
    for function in ["ln", "ln_1p", "exp", "exp_m1", "powi", "powf", "log2", "log10", "mul_add"] {
        assert!(!source.contains(&format!(".{function}(")), "{function}");
    }
}
