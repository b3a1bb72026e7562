//! Promises of reports: the JSON format, a self-contained page, names of unfinished flows, rows of sweeps and
//! comparisons.

use strandway_lab::{Experiment, Scenario, run};
use strandway_report::{self as report, Report};
use strandway_scenario::parse;
use strandway_sim::Control;

const SMALL: &str = "[fabric]\nhosts = 8\nhosts_per_leaf = 4\n[workload]\nsize = \"100 kB\"\n";

fn experiment(text: &str) -> Experiment {
    parse(text).and_then(|s| strandway_lab::check(&s)).unwrap_or_else(|e| panic!("{e}"))
}

fn report_of(text: &str) -> Report {
    run(&experiment(text), &Control::new()).report
}

#[test]
fn json_has_every_field_of_the_format_measured() {
    let report = report_of(SMALL);
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("JSON");
    for (path, keys) in [
        ("", "format version seed digest run flows fct_us goodput_gbps packets collectives expect"),
        ("/run", "wall_s simulated_us events packet_hops threads peak_rss_bytes hosts"),
        ("/flows", "total finished"),
        ("/fct_us", "min mean p50 p99 p999 max"),
        ("/goodput_gbps", "mean_per_host total"),
        ("/packets", "sent delivered dropped trimmed marked retransmitted duplicates acks"),
    ] {
        for key in keys.split(' ') {
            assert!(json.pointer(&format!("{path}/{key}")).is_some(), "{path}/{key}");
        }
    }
    for (path, positive) in [
        ("/run/wall_s", true),
        ("/run/simulated_us", true),
        ("/run/events", true),
        ("/run/packet_hops", true),
        ("/run/peak_rss_bytes", cfg!(target_os = "linux")),
        ("/goodput_gbps/total", true),
        ("/packets/sent", true),
        ("/packets/delivered", true),
        ("/packets/acks", true),
        ("/fct_us/min", true),
    ] {
        let value = json.pointer(path).and_then(serde_json::Value::as_f64).unwrap_or_default();
        assert!(!positive || value > 0.0, "{path} = {value}");
    }
    assert_eq!(json["flows"]["total"], 8);
    // 100 kB in packets of 4,096 B.
    assert_eq!(json["packets"]["delivered"], 8 * 25);
}

#[test]
fn a_partitioned_fabric_ends_at_its_time_limit_with_the_unfinished_flows_named() {
    let text = "[fabric]\nhosts = 8\nhosts_per_leaf = 4\nspines = 1\n\
                [workload]\nkind = \"flows\"\nflows = [{ from = 0, to = 1, size = \"10 kB\" }, { from = 0, to = 7, size = \"10 kB\" }]\n\
                [[faults]]\nswitch = \"spine0\"\nkind = \"down\"\nsilent = true\n[run]\ntime_limit = \"2 ms\"\n";
    let report = report_of(text);
    assert_eq!((report.flows.total, report.flows.finished), (2, 1));
    assert_eq!(report.flows.unfinished, ["host0->host7"]);
    assert_eq!(report.head.end, "time limit");
    let text = report::text::report(&report);
    assert!(text.contains("1 flows did not finish") && text.contains("host0->host7"), "{text}");
    assert!(report::html::report(&report).contains("host0-&gt;host7"));
}

#[test]
fn a_page_needs_nothing_from_outside() {
    let mut experiment = experiment(&format!("# <script>alert(1)</script>\n{SMALL}"));
    experiment.with_series();
    let report = run(&experiment, &Control::new()).report;
    assert!(report.curves.series.is_some());
    let page = report::html::report(&report);
    for outside in ["http://", "https://", "src=", "@import", "url(", "<link"] {
        assert!(!page.contains(outside), "the page contains {outside}");
    }
    assert!(!page.contains("<script>alert"), "the scenario's text is escaped");
    for title in ["Completion times", "Goodput", "Link utilisation", "Fate of packets", "Hottest links", "Scenario"] {
        assert!(page.contains(title), "{title}");
    }
}

#[test]
fn a_comparison_has_a_row_per_profile_and_keeps_the_parameters_that_apply() {
    let text = format!("{SMALL}[profile.nscc]\ngamma = 0.7\n[profile.transport]\nmtu = 2048\n");
    let scenario = parse(&text).expect("sound");
    let profiles = ["rocev2", "uec/reps", "."].map(String::from);
    let variants = strandway_lab::compare(&scenario, &profiles).unwrap_or_else(|e| panic!("{e}"));
    let labels: Vec<&str> = variants.iter().map(|v| v.label.as_str()).collect();
    assert_eq!(labels, ["rocev2", "uec/reps", "as written"]);
    for variant in &variants {
        assert_eq!(strandway_lab::check(&variant.scenario).expect("sound").profile().transport.mtu, 2048);
    }
    let rows = strandway_lab::run_all(&variants, 2, true, || false, |_, _, _| ()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(rows.len(), 3);
    let page = report::html::rows("small", &rows, &text);
    assert!(labels.iter().all(|l| page.contains(l)));
    assert!(report::markdown::rows("small", &rows).lines().count() >= 7);
    let said = strandway_lab::compare(&scenario, &["uecc".to_string()]).expect_err("unknown").to_string();
    assert!(said.contains("did you mean `uec`?"), "{said}");
}

#[test]
fn a_sweep_has_a_row_per_combination() {
    let text = format!("{SMALL}[sweep]\n\"profile.path\" = [\"reps\", \"bitmap\"]\n\"run.seed\" = [1, 2, 3]\n");
    let variants = strandway_lab::sweep(&parse(&text).expect("sound")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(variants.len(), 6);
    assert_eq!(variants[0].label, "path=reps, seed=1");
    assert_eq!(variants[5].set["run.seed"], "3");
    let said = strandway_lab::sweep(&parse(SMALL).expect("sound")).expect_err("none").to_string();
    assert!(said.contains("there is nothing to sweep"), "{said}");
    let text = format!("{SMALL}[sweep]\n\"profile.path\" = [\"reps\", \"bitmpa\"]\n");
    let said = strandway_lab::sweep(&parse(&text).expect("sound")).expect_err("bad").to_string();
    assert!(said.contains("path=bitmpa") && said.contains("did you mean \"bitmap\"?"), "{said}");
}

#[test]
fn bounds_are_judged_and_single_flows_can_be_named() {
    let text = "[fabric]\nhosts = 8\n[workload]\nkind = \"flows\"\nflows = [{ from = 2, to = 5, size = \"10 kB\" }]\n\
                [expect]\n\"flow.2->5.fct_us\" = \"1 .. 100\"\n\"flow.host2->host5.received_us\" = \"1 .. 100\"\n\
                \"packets.dropped\" = 0\n\"links.leaf->host.utilisation\" = \"> 0\"\n\"fct_us.max\" = \"< 1\"\n";
    let report = report_of(text);
    let missed: Vec<&str> = report.expect.iter().filter(|e| !e.met).map(|e| e.key.as_str()).collect();
    assert_eq!(missed, ["fct_us.max"]);
}

#[test]
fn striped_messages_count_as_one_flow() {
    let report = report_of("[fabric]\nhosts = 8\n[workload]\nsize = \"100 kB\"\nconnections = 4\nmessages = 3\n");
    assert_eq!((report.flows.total, report.flows.finished), (24, 24));
    assert_eq!(report.flows.bytes, 24 * 100_000);
}

#[test]
fn a_capture_is_a_pcap_file_with_ethernet_frames() {
    let mut experiment = experiment(SMALL);
    experiment.with_capture();
    let outcome = run(&experiment, &Control::new());
    let mut bytes = Vec::new();
    let capture = strandway_lab::pcap::write(&experiment, &outcome.measurements, &mut bytes).expect("memory takes it");
    assert_eq!(bytes[..4], 0xa1b2_3c4d_u32.to_le_bytes());
    assert_eq!(bytes[20..24], 1u32.to_le_bytes());
    assert!(capture.packets >= 50, "25 packets out, 25 in, and acknowledgements: {}", capture.packets);
    assert_eq!(capture.skipped, 0);
    // Go through the records to the end of the file.
    let mut at = 24;
    let mut records = 0;
    while at < bytes.len() {
        let word = |i: usize| u32::from_le_bytes(bytes[at + i..at + i + 4].try_into().expect("four bytes"));
        assert!(word(4) < 1_000_000_000 && word(8) <= word(12));
        at += 16 + word(8) as usize;
        records += 1;
    }
    assert_eq!((at, records), (bytes.len(), capture.packets));
}

#[test]
fn every_scenario_in_the_repository_is_sound() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut seen = 0;
    for folder in ["", "smoke", "golden", "bench", "figures", "guide"] {
        for entry in std::fs::read_dir(root.join(folder)).expect("a folder of scenarios") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|e| e == "toml") {
                let scenario = Scenario::load(&path).unwrap_or_else(|e| panic!("{e}"));
                strandway_lab::check(&scenario).unwrap_or_else(|e| panic!("{e}"));
                if folder == "figures" {
                    strandway_lab::sweep(&scenario).unwrap_or_else(|e| panic!("{e}"));
                }
                seen += 1;
            }
        }
    }
    assert!(seen > 25);
}

/// 64 NICs with four ports of 100 Gb/s. One flow of 8 MB (160 us at line rate), sampled every 2 us.
const FOUR_PLANES: &str = "[fabric]\nkind = \"multi-plane\"\nhosts = 64\nplanes = 4\nhosts_per_leaf = 8\nspines = 8\n\
                           rate = \"400 Gbps\"\nrouting = \"source\"\n[profile]\nname = \"mrc\"\n\
                           [profile.mrc]\nport_hold = \"20 us\"\n\
                           [workload]\nkind = \"flows\"\nflows = [{ from = 0, to = 60, size = \"8 MB\" }]\n\
                           [run]\nsample = \"2 us\"\n";

#[test]
fn a_series_shows_a_port_that_goes_down_and_comes_back() {
    let report = report_of(&format!(
        "{FOUR_PLANES}[[faults]]\nport = \"host0.p2\"\nkind = \"down\"\nat = \"40 us\"\nuntil = \"60 us\"\n"
    ));
    let series = report.curves.series.as_ref().expect("sampled");
    let watched = series.watched.as_ref().expect("the only flow");
    assert_eq!(watched.name, "host0->host60");
    assert_eq!(watched.paths.len(), 4);
    for paths in &watched.paths {
        for i in 0..paths.good.len() {
            let all = [&paths.good, &paths.skip, &paths.assumed_bad, &paths.denied, &paths.reserve, &paths.port_down];
            assert_eq!(all.map(|state| state[i]).iter().sum::<u32>(), 8, "plane {} at point {i}", paths.plane);
            let down = paths.plane == 2 && (21..39).contains(&i);
            assert!(!down || paths.port_down[i] == 8, "all of plane 2 is down at {} us", 2 * i);
            assert!(paths.plane == 2 || paths.port_down[i] == 0, "and nothing of plane {}", paths.plane);
        }
    }
    let mean = |plane: usize, points: std::ops::Range<usize>| {
        let values = &watched.planes_gbps[plane][points];
        values.iter().sum::<f64>() / values.len() as f64
    };
    for plane in 0..4 {
        assert!(mean(plane, 10..20) > 75.0, "plane {plane} before: {}", mean(plane, 10..20));
        assert!(mean(plane, 65..75) > 75.0, "plane {plane} after: {}", mean(plane, 65..75));
        assert_eq!(mean(plane, 26..38) == 0.0, plane == 2, "plane {plane} meanwhile: {}", mean(plane, 26..38));
    }
    assert_eq!(series.planes_gbps, watched.planes_gbps, "there is no other flow");
    let page = report::html::report(&report);
    for text in [
        "Entropy values of host0-&gt;host60",
        "32 entropy values (paths) of host0-&gt;host60 by state; the fewest in use were 24",
        "at most 8 with their port down",
        "Goodput by plane",
        "Plane 2 fell behind the others from",
        "class=\"area k3\"",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn the_watched_flow_is_the_named_one_or_one_that_a_fault_strikes_or_the_first() {
    let flows = "[fabric]\nhosts = 8\n[workload]\nkind = \"flows\"\n\
                 flows = [{ from = 0, to = 1, size = \"50 kB\" }, { from = 4, to = 6, size = \"90 kB\" }]\n\
                 [run]\nsample = \"1 us\"\n";
    let struck = "[[faults]]\nport = \"host6.p0\"\nkind = \"loss\"\nprobability = 0.0\n";
    for (text, wanted, bytes) in [
        (flows.to_string(), "host0->host1", 50_000.0),
        (format!("{flows}watch = \"4->6\"\n"), "host4->host6", 90_000.0),
        (format!("{flows}{struck}"), "host4->host6", 90_000.0),
        (format!("{flows}watch = \"host0->host1\"\n{struck}"), "host0->host1", 50_000.0),
    ] {
        let series = report_of(&text).curves.series.expect("sampled");
        let watched = series.watched.expect("watched");
        assert_eq!(watched.name, wanted);
        let received = watched.goodput_gbps.iter().sum::<f64>() * series.every_us * 1e3 / 8.0;
        assert!((received - bytes).abs() < 1.0, "{wanted}: {received} B");
        assert!(watched.paths.is_empty(), "uec keeps no states");
    }
}

#[test]
fn a_comparison_shows_the_watched_flow() {
    let text = "[fabric]\nhosts = 16\nhosts_per_leaf = 4\n[workload]\nkind = \"incast\"\nsenders = 15\n\
                size = \"100 kB\"\n[run]\nwatch = \"5->0\"\n";
    let scenario = parse(text).expect("sound");
    let variants = strandway_lab::compare(&scenario, &["mrc", "rocev2"].map(String::from)).expect("sound");
    let rows = strandway_lab::run_all(&variants, 1, true, || false, |_, _, _| ()).expect("sound");
    let page = report::html::rows("incast", &rows, text);
    assert!(page.contains("Goodput of host5-&gt;host0"));
    assert!(page.contains("mean while it lasted: mrc "));
}

#[test]
fn a_multi_plane_fabric_is_shown_beside_a_single_plane() {
    let text = "[fabric]\nkind = \"multi-plane\"\nhosts = 128\nplanes = 2\nhosts_per_leaf = 8\nspines = 8\n[workload]\nsize = \"10 kB\"\n";
    let report = report_of(text);
    let single = report.fabric.single_plane.as_ref().expect("three tiers");
    assert_eq!((report.fabric.cost.all_switches, single.all_switches, single.tiers), (48, 80, 3));
    let page = report::html::report(&report);
    let explained = strandway_lab::fabric_values(&experiment(text));
    for text in [
        "links of a NIC's full rate",
        "optics of a NIC's full rate",
        "switches on the longest way",
        "paths between distant NICs",
        "oversubscription",
        "static tables of source routes",
        "17 entries of a leaf, 17 of a spine",
        "80 (32 leaves, 32 aggregation switches, 16 cores)",
        "NICs would need 3 tiers of these switches, with ports combined to the NICs' full rate; 2 planes take 0.60 times its \
         switches and 0.67 times its optics.",
    ] {
        assert!(explained.contains(text), "{text}: {explained}");
        assert!(page.contains(&text.replace('&', "&amp;")), "{text}");
    }
    assert!(!report::html::report(&report_of(SMALL)).contains("Parts of the fabric"));
}

#[test]
fn no_message_is_faster_than_it_can_be_alone_on_several_planes() {
    for planes in [1, 2, 4, 8] {
        for size in ["100 B", "4096 B", "5000 B", "20 kB", "64 kB", "1 MB"] {
            let flows = "flows = [{ from = 0, to = 60, size = \"SIZE\" }, { from = 9, to = 10, size = \"SIZE\" }]";
            let text = format!(
                "[fabric]\nkind = \"multi-plane\"\nhosts = 64\nplanes = {planes}\nrouting = \"source\"\n\
                 [profile]\nname = \"mrc\"\n[workload]\nkind = \"flows\"\n{}\n",
                flows.replace("SIZE", size)
            );
            let slowdown = report_of(&text).times.slowdown;
            let (min, max) = (slowdown.min.expect("finished"), slowdown.max.expect("finished"));
            assert!(min > 1.0 - 1e-9, "{size} on {planes} planes: {min}");
            assert!(max < 1.02, "{size} on {planes} planes: {max}");
        }
    }
}

/// The data for the script of a sweep's page.
fn explored(page: &str) -> serde_json::Value {
    let text = page.split("id=\"rows-data\">").nth(1).and_then(|rest| rest.split("</script>").next()).expect("data");
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn a_sweeps_page_says_who_is_best_and_has_every_run_to_explore() {
    let text = format!("{SMALL}[sweep]\n\"fabric.spines\" = [1, 2, 4]\n\"run.seed\" = [1, 2, 3]\n");
    let variants = strandway_lab::sweep(&parse(&text).expect("sound")).expect("sound");
    let rows = strandway_lab::run_all(&variants, 2, true, || false, |_, _, _| ()).expect("sound");
    let page = report::html::rows("small", &rows, &text);
    let headline = report::html::headline(&rows);
    assert!(headline.starts_with("Best: spines=4 (") && headline.contains("worst: spines=1 ("), "{headline}");
    assert!(headline.contains("slowest flow, mean of 3 seeds") && headline.len() < 120, "{headline}");
    let data = explored(&page);
    assert_eq!(data["keys"][0]["numbers"], serde_json::json!([1.0, 2.0, 4.0]));
    assert_eq!(data["keys"][1]["name"], "run.seed");
    assert_eq!((data["metrics"][0]["name"].as_str(), data["ranked"].as_bool()), (Some("max"), Some(true)));
    assert_eq!(data["rows"].as_array().expect("rows").len(), 9);
    assert_eq!(data["rows"][8]["values"]["max"].as_f64(), rows[8].report.times.fct_us.max);
    assert!(page.contains("<div class=\"card scroll\" id=\"rows\">") && page.contains("id=\"explorer\""));
    assert!(page.contains("Charts show 3 of 9 runs"), "one seed of each setting");
}

#[test]
fn missed_expectations_and_what_was_asked_for_come_first() {
    let text = "[fabric]\nhosts = 8\nhosts_per_leaf = 4\n[workload]\nkind = \"all-reduce\"\nname = \"gradients\"\n\
                size = \"1 MB\"\n[sweep]\n\"fabric.spines\" = [1, 4]\n[expect]\n\"fct_us.max\" = \"< 1\"\n";
    let variants = strandway_lab::sweep(&parse(text).expect("sound")).expect("sound");
    let rows = strandway_lab::run_all(&variants, 2, false, || false, |_, _, _| ()).expect("sound");
    let headline = report::html::headline(&rows);
    assert!(headline.starts_with("2 of 2 runs missed what was expected of them. "), "{headline}");
    assert!(headline.contains("gradients"), "collectives are judged by their time: {headline}");
    let page = report::html::rows("x", &rows, text);
    assert_eq!(explored(&page)["metrics"][0]["label"], "gradients: time");
    assert_eq!(explored(&page)["rows"][1]["missed"], 1);
    let page = report::html::report(&rows[0].report);
    assert!(page.contains(">1 of 1 expectations missed (fct_us.max)."), "a run's page as well");
}

#[test]
fn simulated_and_measured_runs_are_compared_and_not_ranked() {
    let row = |world: &str, max| {
        let mut report = report_of(SMALL);
        report.head.world = world.into();
        report.times.fct_us.max = Some(max);
        strandway_report::Row { label: world.into(), set: Default::default(), report }
    };
    let rows = [row("simulated", 60.0), row("namespaces", 90.0)];
    let headline = report::html::headline(&rows).replace('\u{a0}', " ");
    assert_eq!(headline, "The slowest flow: simulated 60.0 us, namespaces 90.0 us, +50.0 %.");
    let page = report::html::rows("x", &rows, "");
    assert_eq!(explored(&page)["ranked"], false);
    assert!(!page.contains("class=\"best\"") && !page.contains("times sooner"));
}

/// A page of an iteration with a failed link: what ranks did over time, the fault as a band, and the parts in words.
#[test]
fn the_page_of_a_job_shows_ranks_and_the_failed_link() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/golden/job_link_down.toml");
    let mut experiment = Scenario::load(&file).and_then(|s| strandway_lab::check(&s)).unwrap_or_else(|e| panic!("{e}"));
    let plain = strandway_lab::run(&experiment, &Control::new()).report;
    assert!(plain.jobs[0].lanes.is_empty(), "lanes are for pages");
    experiment.with_series();
    let report = strandway_lab::run(&experiment, &Control::new()).report;
    let job = &report.jobs[0];
    assert_eq!((job.lanes.len(), job.ranks), (16, 32));
    let whole = job.iteration_us.expect("it ended");
    for lane in &job.lanes {
        assert!(lane.pieces.windows(2).all(|pair| (pair[0].2 - pair[1].1).abs() < 1e-9), "without gaps: {lane:?}");
        let last = lane.pieces.last().expect("pieces");
        assert!(lane.pieces[0].1.abs() < 1e-9 && (last.2 - whole).abs() < 1e-6, "{last:?} of {whole}");
    }
    // Parts of the chosen ranks are about those of all ranks.
    let computed: f64 = job.lanes.iter().flat_map(|l| &l.pieces).filter(|p| p.0 == "compute").map(|p| p.2 - p.1).sum();
    assert!((computed / 16.0 / job.computed_us - 1.0).abs() < 0.05, "{computed}");
    let page = report::html::report(&report);
    for told in ["ranks over time", "leaf1 - spine2 down</text>", "data-lanes=", "pipeline fills or drains", "waited 5"]
    {
        assert!(page.contains(told), "{told} is missing");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
}

/// The label, the keys and the slowest flow of a run.
type Ran<'a> = (&'a str, &'a [(&'a str, &'a str)], f64);

/// The headline of such runs, and their page.
fn headline_of(runs: &[Ran<'_>]) -> (String, String) {
    let row = |(label, set, max): &Ran<'_>| {
        let mut report = Report::default();
        (report.flows.total, report.flows.finished) = (4, 4);
        report.times.fct_us.max = Some(*max);
        let set = set.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        strandway_report::Row { label: label.to_string(), set, report }
    };
    let rows: Vec<_> = runs.iter().map(row).collect();
    let plain = |text: String| text.replace('\u{a0}', " ");
    (plain(report::html::headline(&rows)), plain(report::html::rows("faults", &rows, "")))
}

#[test]
fn a_headline_compares_runs_that_differ_in_nothing_else() {
    let set = |profile: &'static str, a: &'static str, b: &'static str| {
        [("profile.name", profile), ("faults.bad optic.enabled", a), ("faults.1.enabled", b)]
    };
    let [a, b, c, d] = [
        set("uec", "true", "false"),
        set("uec", "false", "false"),
        set("mrc", "true", "false"),
        set("mrc", "false", "false"),
    ];
    let (said, page) = headline_of(&[
        ("uec, bad optic=true, fault 1=false", &a, 300.0),
        ("uec, bad optic=false, fault 1=false", &b, 110.0),
        ("mrc, bad optic=true, fault 1=false", &c, 120.0),
        ("mrc, bad optic=false, fault 1=false", &d, 100.0),
    ]);
    let wanted =
        "mrc finishes the slowest flow with bad optic in 120.0 us, 2.50 times sooner than uec, which needs 300.0 us.";
    assert_eq!(said, wanted);
    assert!(page.contains("uec · bad optic") && page.contains("mrc · no fault"), "rows name the faults that are on");
    // A sweep of faults alone ranks them.
    let on = [("faults.bad optic.enabled", "true")];
    let off = [("faults.bad optic.enabled", "false")];
    let (said, _) = headline_of(&[("bad optic=true", &on, 300.0), ("bad optic=false", &off, 100.0)]);
    assert_eq!(said, "Best: no fault (100.0 us); worst: bad optic (300.0 us, 3.0 times). The slowest flow.");
    // Runs with different workloads are not ranked.
    let (few, many) = ([("workload.senders", "4")], [("workload.senders", "64")]);
    let (said, _) = headline_of(&[("senders=4", &few, 90.0), ("senders=64", &many, 1300.0)]);
    assert_eq!(said, "The slowest flow takes from 90.0 us at senders=4 to 1,300.0 us at senders=64.");
}

#[test]
fn swept_faults_have_short_names() {
    let text = format!(
        "{SMALL}[[faults]]\nname = \"bad optic\"\nlink = \"leaf0->spine0\"\nkind = \"down\"\n\
         [[faults]]\nlink = \"leaf1->spine0\"\nkind = \"down\"\n\
         [sweep]\n\"faults.0.enabled\" = [true, false]\n\"faults.1.enabled\" = [true, false]\n"
    );
    let variants = strandway_lab::sweep(&parse(&text).expect("sound")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(variants[1].label, "bad optic=true, fault 1=false");
    assert_eq!(variants[1].set.keys().collect::<Vec<_>>(), ["faults.1.enabled", "faults.bad optic.enabled"]);
    // The name is an address, too.
    let mut scenario = parse(&text).expect("sound");
    scenario.set("faults.bad optic.enabled=false").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(strandway_lab::check(&scenario).expect("sound").faults.len(), 1);
    // Whole lists of faults are told by their names, or by links, kinds and times.
    let text = format!(
        "{SMALL}[sweep]\nfaults = [[], [{{ plane = 0, kind = \"down\", at = \"100 us\" }}, {{ name = \"x\", plane = 0, kind = \"down\" }}]]\n"
    );
    let variants = strandway_lab::sweep(&parse(&text).expect("sound")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(variants[0].label, "faults=none");
    assert_eq!(variants[1].label, "faults=plane 0 down at 100 us and x");
}

/// Two leaves with two spines, one host of each pair sends to the other leaf.
const SPINES: &str = "[fabric]\nhosts = 8\nhosts_per_leaf = 4\nspines = 2\n[workload]\nsize = \"100 kB\"\n\
                      [[faults]]\nbetween = [\"leaf0\", \"spine1\"]\nkind = \"degrade\"\nfraction = 0.5\n";

#[test]
fn a_run_with_series_has_a_map_of_every_link() {
    let mut experiment = experiment(SPINES);
    assert!(run(&experiment, &Control::new()).report.curves.map.is_none(), "only pages need it");
    experiment.with_series();
    let outcome = run(&experiment, &Control::new());
    let map = outcome.report.curves.map.as_ref().expect("a small fabric");
    let names: Vec<&str> = map.groups.iter().map(|group| group.name.as_str()).collect();
    assert_eq!(names, ["host->leaf", "leaf->host", "leaf->spine", "spine->leaf"]);
    let topology = &experiment.plan.topology;
    let mut carried = 0.0;
    for group in &map.groups {
        for (at, (low, high)) in group.low.iter().zip(&group.high).enumerate() {
            let (low, high) = (&map.nodes[*low as usize], &map.nodes[*high as usize]);
            let (from, to) = if group.up { (low, high) } else { (high, low) };
            let ends = [from, to].map(|name| topology.node_named(name).expect("a node"));
            let [link] = topology.links_between(ends[0], ends[1])[..] else { panic!("{from} to {to}") };
            let counters = outcome.measurements.links[link.0 as usize];
            assert_eq!(group.queue_max_bytes.get(at).copied().unwrap_or(0), counters.queue_max.0);
            assert_eq!(group.utilisation[at] > 0.0, counters.bytes > 0, "{from} to {to}");
            assert_eq!(
                group.faults.contains(&(at as u32)),
                [from, to] == ["leaf0", "spine1"] || [from, to] == ["spine1", "leaf0"]
            );
            carried += group.utilisation[at];
        }
        let frames: f64 = group.frames.iter().flatten().sum();
        assert!(group.frames.len() >= 6 && frames > 0.0, "{}: {} frames", group.name, group.frames.len());
    }
    assert!(carried > 0.0);
    // The series of links have all bytes of the run, on any number of threads.
    let sent: u64 = outcome.measurements.links.iter().map(|link| link.bytes).sum();
    for threads in [1, 3] {
        experiment.plan.threads = threads;
        let series = run(&experiment, &Control::new()).measurements.series;
        assert_eq!(series.links.bytes().iter().flatten().sum::<u64>(), sent);
        assert_eq!(series.links, outcome.measurements.series.links);
    }
    let page = report::html::report(&outcome.report);
    assert!(
        page.contains("<h3>The fabric</h3>") && page.contains("Links by switch"),
        "the picture, and a table without scripts"
    );
    // A fabric with too many links has a page without a picture.
    let mut large =
        self::experiment(&SPINES.replace("hosts = 8", "hosts = 4096").replace("spines = 2", "spines = 2048"));
    large.with_series();
    large.plan.time_limit = strandway_proto::units::Time(1_000_000);
    assert!(run(&large, &Control::new()).report.curves.map.is_none());
}

#[test]
fn comparisons_of_jobs_draw_the_parts_of_an_iteration_run_by_run() {
    let text = "[fabric]\nhosts = 8\nhosts_per_leaf = 4\n[servers]\ngpus = 1\n[job]\nlayers = 2\nhidden = 64\nheads = 2\nsequence = 64\ndp = 8\n";
    let scenario = parse(text).expect("sound");
    let variants =
        strandway_lab::compare(&scenario, &["uec", "rocev2"].map(String::from)).unwrap_or_else(|e| panic!("{e}"));
    let rows = strandway_lab::run_all(&variants, 2, true, || false, |_, _, _| ()).unwrap_or_else(|e| panic!("{e}"));
    let page = report::html::rows("small", &rows, text);
    assert!(page.contains("<h3>job: parts of an iteration</h3>"));
    for row in &rows {
        let told = format!("<title>{}, exposed DP: ", row.label);
        assert!(page.contains(&told), "{told}");
    }
}

#[test]
fn a_wrong_swept_key_is_one_problem() {
    let text = format!("{SMALL}[sweep]\n\"profile.pth\" = [\"reps\", \"bitmap\"]\n\"run.seed\" = [1, 2, 3]\n");
    let said = strandway_lab::sweep(&parse(&text).expect("sound")).expect_err("wrong").to_string();
    assert_eq!(said.matches("profile.pth").count(), 2, "one for each value: {said}");
    let text = format!("{SMALL}[sweep]\n\"profile.path\" = [\"reps\", \"bitmpa\"]\n\"run.seed\" = [1, 2, 3]\n");
    let said = strandway_lab::sweep(&parse(&text).expect("sound")).expect_err("wrong").to_string();
    assert_eq!(said.matches("bitmpa\"").count(), 1, "{said}");
    assert!(said.contains("path=bitmpa, seed=1 and 2 more runs"), "{said}");
}

#[test]
fn a_comparison_names_what_all_runs_have_once() {
    let row = |label: &str, after: f64, note: &str| {
        let mut report = Report { notes: vec!["job: a model".into()], ..Report::default() };
        (report.flows.total, report.flows.finished) = (4, 4);
        report.times.fct_us.max = Some(after);
        report.notes.extend((!note.is_empty()).then(|| note.to_string()));
        report.faults.push(report::FaultFacts {
            what: "plane 2 down".into(),
            avoided_after_us: Some(after),
            ..report::FaultFacts::default()
        });
        let set = [("profile.name".to_string(), label.to_string())].into();
        strandway_report::Row { label: label.into(), set, report }
    };
    let page = report::html::rows("several", &[row("uec", 3.6, ""), row("mrc", 1.2, "raise rto")], "");
    assert_eq!(page.matches("Note: job: a model").count(), 1);
    assert_eq!(page.matches("Faults: plane 2 down, from the start</p>").count(), 1);
    assert!(page.contains("Note: mrc: raise rto"));
}
