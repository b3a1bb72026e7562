#![doc = include_str!("../README.md")]

pub mod aggregation;
pub mod atp;
pub mod esa;
pub mod job;
mod pool;
pub mod pooled;
pub mod priority;
pub mod self_clocked;
pub mod server;
pub mod server_host;
pub mod settings;
pub mod switchml;
pub mod system;
mod times;
pub mod training;
pub mod who;
pub mod window;
pub mod worker;

pub use aggregation::{Aggregation, Settings};
pub use atp::AtpProgram;
pub use esa::EsaProgram;
pub use job::{Index, Job, JobError, Rack, Shape, Sharing};
pub use pooled::{Discipline, Pooled};
pub use priority::{Policy, Priorities};
pub use self_clocked::{Exponents, SelfClocked};
pub use server::{Rules, Server};
pub use server_host::{ServerHost, ServerPace};
pub use settings::{Aging, Esa, Refresh, ResultPath};
pub use switchml::SwitchMlProgram;
pub use system::{JobProgram, SlotShare, System};
pub use training::{AnyWorker, Layer, Plan, Training, Turns};
pub use who::Who;
pub use worker::{Recovery, Worker, WorkerSettings};

#[cfg(test)]
mod tests {
    use crate::job::{Index, Job, Shape, Sharing};
    use crate::priority::Priorities;
    use crate::training::{Layer, Plan};
    use std::sync::Arc;
    use strandway_fabric::Topology;
    use strandway_fabric::topology::{Level, Shape as Fabric};
    use strandway_proto::HostId;
    use strandway_proto::units::{Rate, Span, Time};

    /// Hosts below leaves of this many.
    pub(crate) fn flat(hosts: u32, hosts_per_leaf: u32) -> Topology {
        let fabric = Fabric { hosts, planes: 1, hosts_per_leaf, spines: 1, leaf_bundle: 1, pods: None };
        let level = Level { rate: Rate::from_gbps(100), latency: Span::from_ns(500) };
        Topology::new(fabric, [level; 3], [Span::ZERO; 3]).expect("a valid fabric")
    }

    pub(crate) fn shape(number: u16) -> Shape {
        Shape {
            number,
            group: 0,
            elements: 62,
            data_bytes: 330,
            control_bytes: 84,
            window: 8,
            slots: 64,
            index: Index::List,
            sharing: Sharing::All,
            first: 0,
            rtt: Span::from_us(10),
        }
    }

    /// A job of two workers below two leaves, with one layer and this noise.
    pub(crate) fn plan(noise: f64) -> Arc<Plan> {
        let topology = flat(12, 4);
        let job = Job::new(shape(1), &topology, vec![HostId(0), HostId(5)], HostId(1)).expect("a job");
        Arc::new(Plan {
            job: Arc::new(job),
            layers: vec![Layer { keys: 4, forward: Span::from_us(100), backward: Span::from_us(200) }],
            iterations: 1,
            start: Time::ZERO,
            jitter: 0.0,
            noise,
            priorities: Priorities::default(),
            communication: Span::from_us(10),
            seed: 1,
            turns: None,
            first_message: 0,
        })
    }
}
