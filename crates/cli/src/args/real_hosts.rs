//! The flags of the commands for real hosts, which need Linux.

pub(super) mod cast;
pub(super) mod choice;
pub(super) mod copy;
pub(super) mod export;
pub(super) mod fabric;
pub(super) mod node;
pub(super) mod perf;
pub(super) mod switch;
pub(super) mod team;
pub(super) mod top;
pub(super) mod wire;

pub(crate) use cast::{CastArgs, Trust};
pub(crate) use choice::ChoiceArgs;
pub(crate) use copy::{Allow, CopyArgs};
pub(crate) use export::{FabricExportArgs, SystemChoice};
pub(crate) use fabric::{
    FabricArgs, FabricBenchLineArgs, FabricBuildArgs, FabricCheckArgs, FabricCommand, FabricExecArgs, FabricGroupArgs,
    FabricLocaliseArgs, FabricRunArgs, FabricStatusArgs, FabricUpArgs,
};
pub(crate) use node::{DoctorArgs, NodeArgs};
pub(crate) use perf::{
    BaselineName, CollectiveName, PerfArgs, PerfClientArgs, PerfCollectiveArgs, PerfCommon, PerfServerArgs, PerfSide,
    PerfTuneArgs,
};
pub(crate) use switch::{
    ResultsName, SwitchArgs, SwitchCommand, SwitchServerArgs, SwitchStatusArgs, SystemName, UseSwitchArgs,
};
pub(crate) use team::TeamArgs;
pub(crate) use top::TopArgs;
pub(crate) use wire::{Layout, Waiting, WireArgs};
