//! `strandway calibrate`: constants of a scenario from measured points.

use super::load_with;
use crate::Failure;
use crate::args::CalibrateArgs;
use crate::outputs::{Outputs, Wanted};
use crate::progress::interrupted;
use strandway_fabric::quantity::{Size, size};
use strandway_import::{measured, read_file};
use strandway_lab::{CalibrateQuestion, Constant};

pub(crate) fn run(args: &CalibrateArgs) -> Result<(), Failure> {
    let named = |name: &String| {
        let known: Vec<&str> = Constant::ALL.iter().map(|one| one.name()).collect();
        let found = Constant::ALL.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| Failure::Usage(format!("--fit {name}: constants are {}", known.join(", "))))
    };
    let fit = args.fit.iter().map(named).collect::<Result<Vec<Constant>, Failure>>()?;
    let kind = match &args.collective {
        None => None,
        Some(name) => Some(measured::kind_named(name).ok_or_else(|| {
            Failure::Usage(format!(
                "--collective {name}: write all-reduce, all-gather, reduce-scatter, all-to-all or broadcast"
            ))
        })?),
    };
    let bytes = |flag: &str, text: &str, least: u64| match size(text) {
        Ok(Size::Bytes(bytes)) if bytes.0 >= least => Ok(bytes.0),
        _ => Err(Failure::Usage(format!("{flag} {text}: write a size such as \"16 MiB\""))),
    };
    let size_max = bytes("--size-max", &args.size_max, 1024)?;
    let size_min = args.size_min.as_ref().map(|text| bytes("--size-min", text, 0)).transpose()?.unwrap_or(0);
    let read = |path: &std::path::PathBuf| -> Result<_, Failure> {
        let mut points = measured::parse(&path.display().to_string(), &read_file(path)?)?;
        points.points.retain(|point| point.bytes >= size_min);
        Ok(points)
    };
    let points = read(&args.file)?;
    let predict = args.predict.iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
    let scenario = load_with(&args.scenario, &args.set)?;
    let mut inputs = scenario.inputs();
    inputs.push(args.file.clone());
    inputs.extend(args.predict.iter().cloned());
    let wanted =
        Wanted { json: args.json.as_ref(), markdown: args.out.as_ref(), quiet: args.quiet, ..Wanted::default() };
    let mut outputs = Outputs::open(wanted, &inputs)?;
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let jobs = args.jobs.map_or(processors, usize::from);
    let question = CalibrateQuestion { measured: points, predict, fit, kind, ranks: args.ranks, size_max, jobs };
    let found = strandway_lab::calibrate(&scenario, &question, &interrupted)?;
    outputs.show(&found.text());
    for constant in found.constants.iter().filter(|one| scenario.value(&one.key).is_some()) {
        outputs.show(&format!(
            "{} is in {}: remove it there to use the fitted one\n",
            constant.key,
            args.scenario.display()
        ));
    }
    outputs.json(|| found.to_json())?;
    if let Some(target) = outputs.markdown.take() {
        target.finish(found.toml().as_bytes())?;
    }
    Ok(())
}
