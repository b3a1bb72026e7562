//! Figures of a switch that adds, for those who watch it.

use crate::status::SwitchStatus;
use strandway_proto::aggregate::Counts;
use strandway_udp::families;
use strandway_udp::watch::{Json, Sample, Snapshot};

families! {
    SLOTS "switch_slots" Gauge "Slots of all ports."
    HELD "switch_job_slots" Gauge "Slots that the job holds."
    JOINED "switch_job_joined_workers" Gauge "Workers that have joined the job's session."
    WORKERS "switch_job_workers" Gauge "Workers of the job's session; zero if there is none."
    SESSIONS "switch_job_sessions" Counter "Sessions of the job."
    COMPLETED "switch_job_completed_sums" Counter "Sums that the switch completed."
    MERGED "switch_job_merged_fragments" Counter "Fragments that are in a completed sum."
    EVICTED "switch_job_evicted_fragments" Counter "Fragments that lost their slot to a higher priority."
    REFUSED "switch_job_refused_fragments" Counter "Fragments that found no slot."
    DUPLICATES "switch_job_duplicate_fragments" Counter "Fragments that were in their slot's sum already."
    TO_SERVER "switch_job_server_packets" Counter "Packets with elements that reached the parameter server."
    RECEIVED "switch_port_received_datagrams" Counter "Datagrams received at the port."
    SENT "switch_port_sent_datagrams" Counter "Datagrams sent from the port."
    DROPPED "switch_port_dropped_datagrams" Counter "Datagrams that the port's socket dropped."
}

/// The figures of a switch.
pub(crate) fn snapshot(status: &SwitchStatus) -> Snapshot {
    let mut out = Snapshot::default();
    out.samples.push(Sample::new(&SLOTS, &[], f64::from(status.slots)));
    let mut rows = Vec::new();
    for job in &status.jobs {
        let (mut held, mut counts) = (0_u64, Counts::default());
        for (slots, _, more) in status.ports.iter().filter_map(|port| port.jobs.get(&job.number)) {
            held += *slots as u64;
            counts += *more;
        }
        let labels = [("job", job.number.to_string())];
        for (family, value) in [
            (&HELD, held),
            (&JOINED, job.joined as u64),
            (&WORKERS, u64::from(job.workers)),
            (&SESSIONS, job.sessions),
            (&COMPLETED, counts.completed),
            (&MERGED, counts.merged),
            (&EVICTED, counts.evicted),
            (&REFUSED, counts.refused),
            (&DUPLICATES, counts.duplicates),
            (&TO_SERVER, counts.server_packets),
        ] {
            out.samples.push(Sample::new(family, &labels, value as f64));
        }
        let missing = usize::from(job.workers).saturating_sub(job.joined);
        if job.joined > 0 && missing > 0 {
            out.sentences.push(format!("job {}: {missing} of {} workers have not joined", job.number, job.workers));
        }
        rows.push(Json::Object(vec![
            ("job", Json::from(u64::from(job.number))),
            ("workers", Json::from(u64::from(job.workers))),
            ("joined", Json::from(job.joined as u64)),
            ("slots", Json::from(held)),
            ("completed", Json::from(counts.completed)),
        ]));
    }
    for port in &status.ports {
        let labels = [("port", port.port.to_string())];
        for (family, value) in [(&RECEIVED, port.received), (&SENT, port.sent), (&DROPPED, port.dropped)] {
            out.samples.push(Sample::new(family, &labels, value as f64));
        }
    }
    out.status = Json::Object(vec![
        ("system", Json::from(status.system)),
        ("slots", Json::from(u64::from(status.slots))),
        ("jobs", Json::List(rows)),
    ]);
    out
}
