//! Compares the all-reduce with reference values, and checks inquiries with mistakes.

use super::*;

/// Timeouts, and the paper's choice of a code.
fn usual() -> Inquiry {
    let schemes = vec![Scheme::SrRto, Scheme::Coded(Code::mds(32, 8).expect("a code"))];
    Inquiry { rule: Rule::Paper, schemes, samples: 50_000, ..Inquiry::default() }
}

/// Means must agree within one percent. 99.9th percentiles must be equal, or differ by one timeout (`rto`, in the same
/// unit).
fn check_ring(inquiry: &Inquiry, mean: f64, tails: &[f64], rto: f64) {
    let answers = ask(inquiry).expect("sound");
    let [sr, coded] = &answers.rows[0].schemes[..] else { panic!("two schemes") };
    let what = format!("{:?} sites, {} lost, {}", inquiry.sites, inquiry.loss, inquiry.size);
    let found = sr.mean_us / coded.mean_us;
    assert!((found / mean - 1.0).abs() < 0.01, "{what}: mean {found}, asked {mean}");
    let found = sr.p999_us / coded.p999_us;
    let near = tails.iter().any(|t| (found / t - 1.0).abs() < 0.01 || ((found - t).abs() / rto - 1.0).abs() < 0.05);
    assert!(near, "{what}: p99.9 {found}, asked {tails:?}, a timeout is {rto}");
}

/// The reference table has 50,000 to 400,000 samples. In some cells, one more step has a probability close to 1 in
/// 1,000.
#[test]
fn a_ring_of_sites_gains_what_it_should() {
    /// By loss: the accepted 99.9th percentiles, and the mean.
    type Cells = [(&'static [f64], f64); 5];
    let table: [(&str, Cells, f64); 4] = [
        ("2", [(&[2.39, 3.76], 1.08), (&[3.80], 1.77), (&[3.80], 3.68), (&[6.57], 3.89), (&[9.40], 6.58)], 1.41),
        ("4", [(&[1.96], 1.09), (&[3.40], 1.71), (&[3.89], 3.64), (&[4.86], 3.99), (&[7.76], 6.61)], 0.48),
        ("8", [(&[1.63], 1.09), (&[2.26], 1.58), (&[3.94], 3.20), (&[4.58], 4.04), (&[7.10], 6.20)], 0.21),
        ("16", [(&[1.39], 1.08), (&[1.79], 1.44), (&[3.18], 2.65), (&[4.27], 4.05), (&[6.15], 5.66)], 0.10),
    ];
    for (sites, cells, rto) in table {
        for (loss, (tails, mean)) in ["1e-6", "1e-5", "1e-4", "1e-3", "1e-2"].into_iter().zip(cells) {
            // Fewer samples where each one takes long and the mean is precise enough.
            let samples = if sites == "16" { 20_000 } else { 50_000 };
            let inquiry = Inquiry { sites: Some(sites.into()), loss: loss.into(), samples, ..usual() };
            check_ring(&inquiry, mean, tails, rto);
        }
    }
    for (size, tail, mean, rto) in
        [("32 MiB", 3.97, 2.41, 0.495), ("512 MiB", 4.05, 3.61, 0.43), ("2 GiB", 3.20, 2.88, 0.33)]
    {
        let inquiry = Inquiry { sites: Some("4".into()), loss: "1e-4".into(), size: size.into(), ..usual() };
        check_ring(&inquiry, mean, &[tail], rto);
    }
}

#[test]
fn the_best_scheme_is_named_with_its_margin() {
    let schemes =
        ["sr_rto", "sr_nack", "xor:32,8", "mds:32,8", "mds:32,4"].map(|s| s.parse().expect("a scheme")).to_vec();
    let answers = ask(&Inquiry { schemes: schemes.clone(), ..usual() }).expect("sound");
    let best = &answers.rows[0].best_mean;
    assert_eq!((best.scheme.as_str(), best.next.as_deref()), ("MDS(32,4)", Some("MDS(32,8)")));
    assert!((best.margin - 0.012).abs() < 0.001, "{best:?}");
    // Without losses, no scheme is better than plain sending; the first of equal schemes is named.
    let answers = ask(&Inquiry { schemes, loss: "0".into(), ..usual() }).expect("sound");
    let best = &answers.rows[0].best_p999;
    assert_eq!((best.scheme.as_str(), best.next.as_deref(), best.margin), ("SR-RTO", Some("SR-NACK"), 0.0));
}

#[test]
fn distances_become_round_trips() {
    let inquiry = Inquiry { vary: Some(Vary::Distance), values: vec!["75 km".into(), "6000 km".into()], ..usual() };
    let rows = ask(&inquiry).expect("sound").rows;
    assert_eq!(rows.iter().map(|r| (r.value, r.rtt_us)).collect::<Vec<_>>(), [(75e3, 500.0), (6e6, 40_000.0)]);
}

#[test]
fn a_code_that_the_cores_cannot_encode_is_not_the_best() {
    let schemes: Vec<Scheme> =
        ["sr_nack", "mds:32,8", "mds:32,16"].map(|name| name.parse().expect("a scheme")).to_vec();
    let answer = |cores, rate: &str| {
        let inquiry = Inquiry { schemes: schemes.clone(), loss: "1e-3".into(), cores, rate: rate.into(), ..usual() };
        ask(&inquiry).expect("sound").rows.remove(0)
    };
    let all = answer(None, "400 Gbps");
    assert_eq!(all.best_mean.scheme, "MDS(32,8)");
    let cores: Vec<Option<f64>> =
        all.schemes.iter().map(|s| s.encode_cores.map(|c| (c * 100.0).round() / 100.0)).collect();
    assert_eq!(cores, [None, Some(4.71), Some(9.41)]);
    assert_eq!(answer(Some(4), "400 Gbps").best_mean.scheme, "SR-NACK");
    assert_eq!(answer(Some(1), "40 Gbps").best_mean.next.as_deref(), Some("MDS(32,16)"));
    let codes = Inquiry { schemes: schemes[1..].to_vec(), cores: Some(0), ..usual() };
    assert_eq!(ask(&codes).expect("sound").rows[0].best_mean.scheme, "none");
}

#[test]
fn a_maximum_of_many_samples_is_likelier_to_be_large() {
    let inquiry = Inquiry { size: "64 MiB".into(), loss: "1e-2".into(), ..usual() };
    let reach = |samples, rank| crate::model::reach(&inquiry, 12.2, samples, rank).expect("sound");
    // A fourth timeout of one of 16,384 chunks: 16,384 x 1e-8.
    assert!((reach(1, 1) - 1.64e-4).abs() < 1e-6, "{}", reach(1, 1));
    assert!((reach(1000, 1) - 0.151).abs() < 1e-3, "{}", reach(1000, 1));
    assert!((reach(1000, 2) - 0.0121).abs() < 1e-3, "{}", reach(1000, 2));
    assert!(reach(1, 2).abs() < 1e-12, "one sample has no second");
}

#[test]
fn packets_have_headers_and_chunks_have_packets() {
    let inquiry =
        Inquiry { payload: "1344 B".into(), header: "170 B".into(), chunk: 48, rate: "1 Gbps".into(), ..usual() };
    let question = Question::read(&inquiry).expect("sound");
    assert_eq!(question.transfer.chunks, 2081);
    assert!((question.transfer.chunk_time - 48.0 * 1514.0 * 8e-3).abs() < 1e-9);
    assert!((question.transfer.loss - 48e-5).abs() < 2e-7);
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let inquiry = Inquiry {
        size: "128".into(),
        rate: "0 Gbps".into(),
        rtt: Some("25".into()),
        distance: Some("20 miles".into()),
        loss: "0.7".into(),
        chunk: 0,
        alpha: f64::NAN,
        sites: Some("1".into()),
        ..usual()
    };
    let said = ask(&inquiry).expect_err("unsound").to_string();
    for part in [
        "--size 128: a size needs a unit; write \"128 MB\"",
        "--rate 0 Gbps: must be more than zero",
        "--rtt 25: a time needs a unit",
        "--distance 20 miles: `miles` is no unit of distance",
        "--loss 0.7: the share of lost packets must be between 0 and 0.5; write, say, 1e-5 or 0.1%",
        "--sites 1: a ring has 2 to 64 sites",
        "--rtt: is given together with --distance",
        "--chunk 0:",
        "--alpha: must be a number from zero on",
    ] {
        assert!(said.contains(part), "{part} in\n{said}");
    }
    let inquiry = Inquiry { size: "9000 TB".into(), payload: "64 B".into(), ..usual() };
    let said = ask(&inquiry).expect_err("unsound").to_string();
    assert!(said.contains("chunks are more than") && said.contains("--size"), "{said}");
    let said = ask(&Inquiry { chunk: u64::MAX, loss: "0.1".into(), ..usual() }).expect_err("unsound").to_string();
    assert!(said.contains("a share of 1.00 of the chunks is lost; ask for a smaller --chunk"), "{said}");
}
