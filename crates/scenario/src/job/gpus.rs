//! GPUs that jobs run on.

/// Limit on the ranks of a job: ours.
pub(super) const RANKS_MAX: u64 = 1 << 17;

/// GPUs, their dense bf16 peaks, TFLOP/s, and the rates of their memories, TB/s (data sheets).
pub(crate) const GPUS: [(&str, f64, f64); 6] = [
    ("a100", 312.0, 2.04),
    ("h100", 989.0, 3.35),
    ("h200", 989.0, 4.8),
    ("b200", 2250.0, 8.0),
    ("gb200", 2500.0, 8.0),
    ("mi300x", 1307.0, 5.3),
];
