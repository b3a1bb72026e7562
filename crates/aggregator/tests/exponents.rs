//! SwitchML with exponents for each block: every sum is that of the arithmetic that the sheet gives, bit by bit.

use super::common::{Running, esa, options, run, switch};
use strandway_aggregator::SwitchConfig;
use strandway_group::aggregation::{By, NetworkOptions, Why};
use strandway_switch::System;

const SWITCHML: System = System::SwitchMl { strict_order: true };
const LANES: usize = 64;

fn blocks(admission: std::net::SocketAddrV6) -> NetworkOptions {
    NetworkOptions { exponents: true, ..options(admission, 1) }
}

/// Numbers whose sizes differ by up to 2^160 between blocks, and by up to 2^20 within one.
fn wide(rank: u32, place: usize, round: u32) -> f32 {
    let mixed = (place as u32 ^ round << 20).wrapping_mul(2_654_435_761).wrapping_add(rank.wrapping_mul(0x9e37_79b9));
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b);
    let block = (place / (LANES / 2)) as i32 * 37 % 160 - 80;
    let size = f64::from(block - (mixed % 20) as i32).exp2();
    ((f64::from(mixed >> 8) / f64::from(1 << 23) - 1.0) * size) as f32
}

/// The sums by the definition: the exponent of a half block is that of the largest number of all ranks in it.
fn expected(buffers: &[Vec<f32>]) -> Vec<f32> {
    let (ranks, length) = (buffers.len(), buffers[0].len());
    let mut out = vec![0.0; length];
    for block in 0..length.div_ceil(LANES) {
        for half in [0, 1] {
            let first = (block * LANES + half * LANES / 2).min(length);
            let places = first..(first + LANES / 2).min(length);
            let most =
                buffers.iter().flat_map(|b| &b[places.clone()]).fold(0f64, |most, x| most.max(f64::from(x.abs())));
            let mut exponent = -90;
            while f64::from(exponent).exp2() <= most {
                exponent += 1;
            }
            let factor = (f64::from(i32::MAX) / ranks as f64 - 0.5) / f64::from(exponent).exp2();
            for place in places {
                let integers =
                    buffers.iter().map(|buffer| (f64::from(buffer[place]) * factor).round_ties_even() as i64);
                out[place] = (integers.sum::<i64>() as f64 * (1.0 / factor)) as f32;
            }
        }
    }
    out
}

#[test]
fn sums_are_those_of_the_sheets_arithmetic_for_numbers_of_any_size() {
    for (loss, ports, racks) in [(0.0, 1, false), (0.02, 2, false), (0.01, 1, true)] {
        let parent = Running::start(SwitchConfig { loss, ports, racks, slots: 512, ..switch(SWITCHML, 1) });
        let mut admissions = [parent.admissions[0]; 3];
        let admission = parent.admissions[0];
        let above = std::net::SocketAddrV6::new(*admission.ip(), admission.port() - 1, 0, 0);
        let config = SwitchConfig { loss, slots: 512, parent: Some(above), ..switch(SWITCHML, 1) };
        let below = racks.then(|| Running::start(config));
        if let Some(below) = &below {
            (admissions[0], admissions[1]) = (below.admissions[0], below.admissions[0]);
        }
        run(3, |mut team| {
            let options = NetworkOptions { loss, ..blocks(admissions[team.rank() as usize]) };
            let mut network = team.join_switch(options, &|| false).expect("it lets us in");
            for (round, length) in (0..).zip([1, 33, 64, 65, 64 * 70, 130, 0, 20_001, 64 * 63, 7]) {
                let buffers: Vec<Vec<f32>> =
                    (0..3).map(|rank| (0..length).map(|place| wide(rank, place, round)).collect()).collect();
                let mut buffer = buffers[team.rank() as usize].clone();
                let reduced = team.all_reduce(&mut network, &mut buffer, &|| false).expect("it works");
                assert_eq!((reduced.by, reduced.floats), (By::Switch, 0), "{length} with loss {loss}");
                let right = expected(&buffers);
                let wrong = (0..length).find(|&place| buffer[place].to_bits() != right[place].to_bits());
                assert_eq!(wrong, None, "{length}: {:?}", wrong.map(|place| (buffer[place], right[place])));
            }
            let halves: Vec<Vec<u16>> = (0..3)
                .map(|rank| (0..500).map(|place| (wide(rank, place, 90).to_bits() >> 16) as u16).collect())
                .collect();
            let widened: Vec<Vec<f32>> = halves
                .iter()
                .map(|half| half.iter().map(|&bits| f32::from_bits(u32::from(bits) << 16)).collect())
                .collect();
            let mut buffer = halves[team.rank() as usize].clone();
            team.all_reduce_bf16(&mut network, &mut buffer, &|| false).expect("it works");
            for (half, sum) in buffer.iter().zip(expected(&widened)) {
                let got = f32::from_bits(u32::from(*half) << 16);
                assert!((got - sum).abs() <= sum.abs() / 256.0, "{got} of {sum}");
            }
        });
    }
}

#[test]
fn numbers_without_an_exponent_go_by_the_ring_and_only_switchml_has_exponents() {
    let serving = Running::start(switch(SWITCHML, 1));
    let admission = serving.admissions[0];
    run(2, |mut team| {
        let mut network = team.join_switch(blocks(admission), &|| false).expect("it lets us in");
        let mut buffer = vec![1.7e38; 300];
        let reduced = team.all_reduce(&mut network, &mut buffer, &|| false).expect("it works");
        assert_eq!((reduced.by, buffer[299]), (By::Switch, 1.7e38 * 2.0));
        let mut buffer = vec![1.0; 300];
        if team.rank() == 1 {
            buffer[200] = f32::INFINITY;
        }
        let reduced = team.all_reduce(&mut network, &mut buffer, &|| false).expect("it works");
        assert_eq!(reduced.by, By::Ring { rank: 1, why: Why::Overflow });
        assert_eq!((buffer[0], buffer[200]), (2.0, f32::INFINITY));
        let mut buffer = vec![0.0; 10];
        let reduced = team.all_reduce(&mut network, &mut buffer, &|| false).expect("it works");
        assert_eq!((reduced.by, buffer), (By::Switch, vec![0.0; 10]), "a new session, and zeros");
    });
    let serving = Running::start(switch(esa(), 1));
    let admission = serving.admissions[0];
    let errors = run(2, |mut team| team.join_switch(blocks(admission), &|| false).err().map(|error| error.to_string()));
    let said = "exponents for each block: the switch runs esa, only switchml has them";
    assert!(errors.iter().all(|error| error.as_deref().is_some_and(|error| error.contains(said))), "{errors:?}");
}
