//! One value from the node's thread to a future, once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

enum State<T> {
    /// No value yet; the waker of the future that waits for it.
    Open(Option<Waker>),
    Given(T),
    /// The promise was dropped.
    Broken,
    /// The value has been taken, or the future was dropped.
    Over,
}

/// The end that gives.
pub(super) struct Promise<T>(Option<Arc<Mutex<State<T>>>>);

/// The end that takes.
pub(super) struct Answer<T>(Arc<Mutex<State<T>>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code in here panics while the state is half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn promise<T>() -> (Promise<T>, Answer<T>) {
    let both = Arc::new(Mutex::new(State::Open(None)));
    (Promise(Some(both.clone())), Answer(both))
}

impl<T> Promise<T> {
    /// Hands the value to the future; returns it if the future was dropped.
    pub(super) fn give(mut self, value: T) -> Result<(), T> {
        let Some(both) = self.0.take() else { return Err(value) };
        settle(&both, Some(value))
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(both) = self.0.take() {
            let _ = settle(&both, None);
        }
    }
}

fn settle<T>(both: &Mutex<State<T>>, value: Option<T>) -> Result<(), T> {
    let waker = {
        let mut state = lock(both);
        let State::Open(waker) = &mut *state else { return value.map_or(Ok(()), Err) };
        let waker = waker.take();
        *state = value.map_or(State::Broken, State::Given);
        waker
    };
    if let Some(waker) = waker {
        waker.wake();
    }
    Ok(())
}

impl<T> Answer<T> {
    /// The value; `None` if it will never come.
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<Option<T>> {
        let mut state = lock(&self.0);
        if let State::Open(waker) = &mut *state {
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                *waker = Some(context.waker().clone());
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, State::Over) {
            State::Given(value) => Poll::Ready(Some(value)),
            _ => Poll::Ready(None),
        }
    }

    /// The future is dropped: returns the value, if it is there.
    pub(super) fn abandon(&self) -> Option<T> {
        match std::mem::replace(&mut *lock(&self.0), State::Over) {
            State::Given(value) => Some(value),
            _ => None,
        }
    }
}
