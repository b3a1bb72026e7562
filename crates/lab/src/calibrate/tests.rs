use super::*;
use strandway_import::measured;

const BASE: &str = "[fabric]\nhosts = 8\nhosts_per_leaf = 4\n[run]\nseed = 3\n";

fn scenario(more: &str) -> Scenario {
    Scenario::from_text("base.toml", &format!("{BASE}{more}")).expect("a scenario")
}

fn question(text: &str) -> CalibrateQuestion {
    let measured = measured::parse("points.csv", text).expect("points");
    let predict = Vec::new();
    CalibrateQuestion { measured, predict, fit: vec![], kind: None, ranks: Some(8), size_max: 1 << 22, jobs: 2 }
}

/// The times of the scenario with these constants, as a CSV file.
fn measured_with(values: &[(&'static str, String)], kinds: &[Kind], sizes: &[u64]) -> String {
    let mut text = "size,time_us,collective\n".to_string();
    let empty = question("size,time_us\n8,1\n16,1\n32,1\n");
    let scenario = scenario("");
    let model = Model::new(&scenario, &empty, &|| false).expect("a model");
    for &kind in kinds {
        for &bytes in sizes {
            let asked = Asked { file: String::new(), kind, ranks: 8, bytes, us: 1.0, fitted: false };
            let time = model.times(values, [&asked]).expect("a time")[0];
            text.push_str(&format!("{bytes},{time},{}\n", kind.name()));
        }
    }
    text
}

#[test]
fn constants_that_made_the_points_are_found_again() {
    let set = |key, value: &str| (key, value.to_string());
    let values = [set("fabric.rate", "180 Gbps"), set("fabric.latency", "4 us"), set("fabric.message_cost", "2.5 us")];
    let sizes = [64, 1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 21, 1 << 22];
    let text = measured_with(&values, &[Kind::AllToAll, Kind::AllReduce], &sizes);
    let found = calibrate(&scenario(""), &question(&text), &|| false).expect("a fit");
    let of = |name: &str| found.constants.iter().find(|one| one.name == name).expect(name);
    let near = |name: &str, wanted: f64| {
        let value: f64 = of(name).value.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
        assert!((value / wanted - 1.0).abs() < 0.03, "{name}: {}\n{}", of(name).value, found.text());
    };
    near("rate", 180.0);
    near("latency", 4.0);
    near("message_cost", 2.5);
    let (count, _, worst) = found.predicted().expect("predicted points");
    assert!(count == 6 && worst < 0.03, "{}", found.text());
    // The file that it writes gives these times when a scenario includes it.
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("fitted.toml"), found.toml()).expect("written");
    let path = folder.path().join("s.toml");
    std::fs::write(&path, format!("include = \"fitted.toml\"\n{BASE}")).expect("written");
    let again = Scenario::load(&path).expect("a scenario");
    assert_eq!(again.value("fabric.rate").expect("a rate").as_str(), Some(of("rate").value.as_str()));
    check(&again).expect("its keys are known");
}

#[test]
fn constants_that_points_do_not_tell_are_named() {
    // In a ring each step has one message, so its cost cannot be told from the latency.
    let sizes = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 20];
    let text = measured_with(&[("fabric.latency", "3 us".into())], &[Kind::AllReduce], &sizes);
    let found = calibrate(&scenario(""), &question(&text), &|| false).expect("a fit");
    assert!(found.constants.iter().all(|one| one.name != "message_cost"), "{}", found.text());
    assert!(found.notes.iter().any(|note| note.contains("do not tell it from latency")), "{:?}", found.notes);
}

#[test]
fn sizes_above_the_limit_are_extended() {
    let sizes = [1 << 20, 1 << 21, 1 << 22, 1 << 23, 1 << 24];
    let text = measured_with(&[], &[Kind::AllReduce], &sizes);
    let mut asked = question(&text);
    asked.fit = vec![Constant::Rate];
    let found = calibrate(&scenario(""), &asked, &|| false).expect("a fit");
    assert_eq!(found.points.iter().filter(|point| point.extended).count(), 2);
    assert!(found.points.iter().all(|point| point.error().abs() < 0.02), "{}", found.text());
}

#[test]
fn missing_kinds_and_ranks_are_asked_for() {
    let mut asked = question("size,time_us\n1024,10\n2048,12\n4096,13\n");
    let said = calibrate(&scenario(""), &asked, &|| false).expect_err("no kind").to_string();
    assert!(said.contains("--collective"), "{said}");
    (asked.kind, asked.ranks) = (Some(Kind::AllReduce), None);
    let said = calibrate(&scenario(""), &asked, &|| false).expect_err("no ranks").to_string();
    assert!(said.contains("--ranks"), "{said}");
    asked.ranks = Some(9);
    let said = calibrate(&scenario(""), &asked, &|| false).expect_err("too many ranks").to_string();
    assert!(said.contains("ranks"), "{said}");
}
