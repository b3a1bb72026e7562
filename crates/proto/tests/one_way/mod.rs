//! One-way connections: partial completion, and the repair schemes of SDR-RDMA above it.

mod hostile;
mod lost_controls;
mod partial;
mod schemes;
mod wire;
