//! The time series: values sampled at regular times, without any effect on the run.

use super::visit::AtPort;
use super::{Cut, Slice};
use crate::port::DATA;
use strandway_fabric::frames::{Frames, LINKS_MAX};
use strandway_fabric::measure::{GroupSeries, WatchPoint};
use strandway_fabric::plan::Plan;
use strandway_proto::units::{Span, Time};
use strandway_proto::{ConnectionId, Endpoint, HostId, Packet};

/// Points of the time series of one slice.
pub(super) struct Sampler {
    every: u64,
    taken: Taken,
    /// The watched connection at its source, if that is a host of this slice, by local number.
    watch: Option<(usize, ConnectionId)>,
    /// The watched connection at its destination, if that is a host of this slice.
    watch_end: Option<(usize, ConnectionId)>,
}

/// The series of a slice.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) delivered: Vec<u64>,
    pub(crate) planes: Vec<Vec<u64>>,
    pub(crate) groups: Vec<GroupSeries>,
    pub(crate) links: Frames,
    pub(crate) watched: Vec<Option<WatchPoint>>,
    pub(crate) watched_planes: Vec<Vec<u64>>,
}

/// The largest number of points; the series of a longer run end there.
const POINTS_MAX: usize = 1 << 20;

impl Sampler {
    pub(super) fn new(plan: &Plan, cut: &Cut, slice: usize) -> Sampler {
        let every = plan.sample_every.map_or(u64::MAX, |s| s.0.max(1));
        let watch = plan.watch.filter(|_| plan.sample_every.is_some());
        let watched = watch.and_then(|c| Some((plan.connections.get(c as usize)?, cut.ends[c as usize])));
        let mine = |host: HostId, id: ConnectionId| {
            (cut.slice_of_host(host) == slice).then(|| (cut.place_of(host.0) as usize, id))
        };
        let planes = usize::from(plan.topology.planes());
        let links = Some(plan.topology.links()).filter(|links| *links <= LINKS_MAX && plan.sample_every.is_some());
        let taken = Taken {
            planes: vec![Vec::new(); if planes > 1 { planes } else { 0 }],
            groups: vec![GroupSeries::default(); plan.topology.groups().len()],
            links: Frames::new(Span(every), links.unwrap_or(0)),
            watched_planes: vec![Vec::new(); if watched.is_some() { planes } else { 0 }],
            ..Taken::default()
        };
        Sampler {
            every,
            taken,
            watch: watched.and_then(|(c, ends)| mine(c.source, ends.0)),
            watch_end: watched.and_then(|(c, ends)| mine(c.destination, ends.1)),
        }
    }

    /// New payload has arrived with a packet.
    pub(super) fn delivered(&mut self, host: usize, now: u64, packet: &Packet, bytes: u64) {
        let index = (now / self.every) as usize;
        let plane = usize::from(packet.path.port());
        let add = |points: Option<&mut Vec<u64>>| {
            if let Some(point) = points.and_then(|points| at(points, index)) {
                *point += bytes;
            }
        };
        add(Some(&mut self.taken.delivered));
        add(self.taken.planes.get_mut(plane));
        if self.watch_end == Some((host, packet.connection)) {
            add(self.taken.watched_planes.get_mut(plane));
        }
    }

    /// A packet has begun to leave onto a link, by a port of a link group.
    pub(super) fn left(&mut self, group: u16, link: u32, start: u64, bytes: u64) {
        self.taken.links.note(Time(start), link, bytes);
        if let Some(point) = at(&mut self.taken.groups[usize::from(group)].bytes, (start / self.every) as usize) {
            *point += bytes;
        }
    }

    /// All events of a host up to `until` have been processed.
    #[inline]
    pub(super) fn visited(&mut self, host: usize, endpoint: &Endpoint, until: u64) {
        if let Some((_, connection)) = self.watch.filter(|w| w.0 == host) {
            let point = WatchPoint {
                window: endpoint.observe().window(connection),
                in_flight: endpoint.observe().in_flight(connection),
                penalties: endpoint.observe().penalties(connection),
                planes: endpoint.observe().planes(connection),
            };
            if let Some(at) = at(&mut self.taken.watched, ((until - 1) / self.every) as usize) {
                *at = Some(point);
            }
        }
    }

    pub(super) fn take(&mut self) -> Taken {
        std::mem::take(&mut self.taken)
    }
}

/// A point of a series; the series grows if needed.
fn at<T: Clone + Default>(points: &mut Vec<T>, index: usize) -> Option<&mut T> {
    if index >= POINTS_MAX {
        return None;
    }
    if index >= points.len() {
        points.resize(index + 1, T::default());
    }
    Some(&mut points[index])
}

impl Slice<'_> {
    /// Adds the bytes that wait at a port to every point of the series up to `now` to which they were not added yet.
    #[inline]
    pub(super) fn sample_port(&mut self, i: usize, now: u64) {
        if self.config.sampling {
            self.at(i).sample(now);
        }
    }
}

impl AtPort<'_, '_> {
    /// Adds the bytes that wait here to every point of the series up to `now` to which they were not added yet.
    #[inline]
    pub(super) fn sample(&mut self, now: u64) {
        if self.config.sampling {
            self.sample_until(now);
        }
    }

    #[cold]
    fn sample_until(&mut self, now: u64) {
        let every = self.recorder.sampler.every;
        // Point `k` is the state at the end of interval `k`, just before the events of that instant.
        while let Some(time) = (self.fabric.colds[self.i].sampled + 1).checked_mul(every).filter(|&t| t <= now) {
            if self.port.is_empty() && !self.port.has(crate::port::flag::FIFO) {
                self.fabric.colds[self.i].sampled = now / every;
                return;
            }
            self.drain(time);
            let point = self.fabric.colds[self.i].sampled as usize;
            self.fabric.colds[self.i].sampled += 1;
            let is_fifo = self.port.has(crate::port::flag::FIFO);
            let waiting = if is_fifo {
                self.fabric.fifos[self.i].queued
            } else {
                self.fabric.backlogs.of(self.port).queued[DATA]
            };
            if waiting == 0 {
                continue;
            }
            let group = &mut self.recorder.sampler.taken.groups[usize::from(self.limits.group)];
            if let Some(sum) = at(&mut group.queued, point) {
                *sum += waiting;
            }
            if let Some(most) = at(&mut group.queued_max, point) {
                *most = (*most).max(waiting);
            }
        }
    }
}
