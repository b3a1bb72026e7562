//! Figures of a copy or a cast for those who watch it.

use crate::{cast, copy};
use strandway_udp::watch::{self, Family, Json, Part, Sample, Snapshot};
use strandway_udp::{Error, families};

families! {
    COPY_BYTES "copy_all_bytes" Gauge "Bytes of all files of the copy."
    COPY_DONE "copy_done_bytes" Gauge "Bytes that the server has, those that it had before included."
    COPY_SENT "copy_sent_bytes" Counter "Bytes that were sent and are on the server's disk."
    COPY_FILES "copy_all_files" Gauge "Files of the copy."
    COPY_FILES_DONE "copy_done_files" Gauge "Files that the server has."
    COPY_AGAIN "copy_retransmitted_bytes" Counter "Payload that was sent again."
    COPY_REBUILT "copy_rebuilt_bytes" Counter "Payload that the server rebuilt from parity."
    CAST_BYTES "cast_all_bytes" Gauge "Bytes of all files of the cast."
    CAST_SENT "cast_sent_bytes" Counter "Payload that has been cast, that for late receivers included."
    CAST_RECEIVED "cast_receiver_bytes" Gauge "Payload on the disk of a receiver."
    CAST_STATE "cast_receivers" Gauge "Receivers by state: absent, waits, receives, done, lost."
}

/// The part of a copy or cast in what is served.
pub(crate) struct Watching(Option<Part>);

impl Watching {
    pub(crate) fn begin(kind: &'static str) -> Result<Watching, Error> {
        watch::enrol(kind).map(Watching)
    }

    /// Publishes the state of a copy.
    pub(crate) fn copy(&mut self, status: &copy::Status) {
        let Some(part) = &mut self.0 else { return };
        let sample = |(family, value): (&'static Family, u64)| Sample::new(family, &[], value as f64);
        let samples = [
            (&COPY_BYTES, status.bytes),
            (&COPY_DONE, status.bytes_done),
            (&COPY_SENT, status.bytes_sent),
            (&COPY_FILES, status.files),
            (&COPY_FILES_DONE, status.files_done),
            (&COPY_AGAIN, status.again_bytes),
            (&COPY_REBUILT, status.rebuilt_bytes),
        ];
        let state = Json::Object(vec![
            ("bytes", Json::from(status.bytes)),
            ("done_bytes", Json::from(status.bytes_done)),
            ("files", Json::from(status.files)),
            ("done_files", Json::from(status.files_done)),
            ("bytes_per_s", Json::Number(status.rate())),
            ("left_s", status.left().map_or(Json::Null, Json::Number)),
        ]);
        part.publish(Snapshot { samples: samples.map(sample).to_vec(), status: state, sentences: Vec::new() });
    }

    /// Publishes the state of a cast.
    pub(crate) fn cast(&mut self, status: &cast::Status) {
        let Some(part) = &mut self.0 else { return };
        let mut snapshot = Snapshot {
            samples: vec![
                Sample::new(&CAST_BYTES, &[], status.bytes as f64),
                Sample::new(&CAST_SENT, &[], status.cast_bytes as f64),
            ],
            ..Snapshot::default()
        };
        let name = |state: &cast::State| match state {
            cast::State::Absent => "absent",
            cast::State::Waits => "waits",
            cast::State::Receives => "receives",
            cast::State::Done => "done",
            cast::State::Lost(_) => "lost",
        };
        for state in ["absent", "waits", "receives", "done", "lost"] {
            let count = status.receivers.iter().filter(|one| name(&one.state) == state).count();
            snapshot.samples.push(Sample::new(&CAST_STATE, &[("state", state.to_string())], count as f64));
        }
        let mut rows = Vec::new();
        for one in &status.receivers {
            let labels = [("receiver", one.name.clone())];
            snapshot.samples.push(Sample::new(&CAST_RECEIVED, &labels, one.bytes as f64));
            match &one.state {
                cast::State::Absent => {
                    let text = format!("receiver {} has not answered for {:.1} s", one.name, status.seconds);
                    snapshot.sentences.push(text);
                }
                cast::State::Lost(why) => snapshot.sentences.push(format!("receiver {} is lost: {why}", one.name)),
                _ => {}
            }
            rows.push(Json::Object(vec![
                ("receiver", Json::from(&one.name[..])),
                ("state", Json::from(name(&one.state))),
                ("bytes", Json::from(one.bytes)),
                ("files", Json::from(one.files)),
            ]));
        }
        snapshot.status = Json::Object(vec![
            ("bytes", Json::from(status.bytes)),
            ("cast_bytes", Json::from(status.cast_bytes)),
            ("receivers", Json::List(rows)),
        ]);
        part.publish(snapshot);
    }
}
