//! A minimal executor: it polls on the calling thread and parks it in between.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::support::PATIENCE;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub(crate) fn waker() -> Waker {
    Arc::new(Unpark(std::thread::current())).into()
}

/// # Panics
/// After [`PATIENCE`]: the awaited value was lost.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = waker();
    let until = Instant::now() + PATIENCE;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        assert!(Instant::now() < until, "nothing in {PATIENCE:?}");
        std::thread::park_timeout(Duration::from_secs(1));
    }
}

/// Polls a future once.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(&waker()))
}

/// Polls all of them, in order, until all are done.
pub(crate) fn join<F: Future + Unpin>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<(Option<F::Output>, F)> = futures.into_iter().map(|future| (None, future)).collect();
    block_on(std::future::poll_fn(|context| {
        for (output, future) in futures.iter_mut().filter(|(output, _)| output.is_none()) {
            if let Poll::Ready(value) = Pin::new(future).poll(context) {
                *output = Some(value);
            }
        }
        if futures.iter().all(|(output, _)| output.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    }));
    futures.into_iter().filter_map(|(output, _)| output).collect()
}
