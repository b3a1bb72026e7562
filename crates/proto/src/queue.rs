//! Queues that are empty most of the time, and then use few cache lines.

use std::collections::VecDeque;

/// Takes the oldest element. A queue that becomes empty begins at the start of its memory again. So a queue that was
/// long once and is short from then on uses the same few cache lines, not all of its memory in turn. Ours.
#[inline]
pub fn take_oldest<T>(queue: &mut VecDeque<T>) -> Option<T> {
    let oldest = queue.pop_front();
    if queue.is_empty() {
        queue.clear();
    }
    oldest
}

/// Adds an element to a queue that seldom has more than one: the first takes room for itself alone.
#[inline]
pub(crate) fn push_small<T>(queue: &mut VecDeque<T>, element: T) {
    if queue.capacity() == 0 {
        queue.reserve_exact(1);
    }
    queue.push_back(element);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_element_takes_room_for_itself_alone() {
        let mut queue = VecDeque::new();
        (0..3).for_each(|number: u64| {
            push_small(&mut queue, number);
            assert!(number > 0 || queue.capacity() == 1);
        });
        assert_eq!(queue, [0, 1, 2]);
    }

    #[test]
    fn an_empty_queue_begins_at_the_start_of_its_memory() {
        let mut queue = VecDeque::with_capacity(8);
        queue.push_back(0);
        let first: *const i32 = &queue[0];
        for number in 1..100 {
            assert_eq!(take_oldest(&mut queue), Some(number - 1));
            queue.push_back(number);
            assert_eq!(&raw const queue[0], first);
        }
        queue.push_back(100);
        assert_eq!([(); 3].map(|()| take_oldest(&mut queue)), [Some(99), Some(100), None]);
    }
}
