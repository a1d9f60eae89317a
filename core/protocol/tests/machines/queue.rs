//! The queue of one lock key on one node, as those see it who wait behind others.

use std::time::Duration;

use quorlock_protocol::{Moment, News, Place, Tell, WaitQueue, Waiter};

fn place(arrived: u64) -> Place {
    let number = u32::try_from(arrived).unwrap();
    Place { arrived, waiter: Waiter { process: 1, number } }
}

fn at(millis: u64) -> Moment {
    Moment::default() + Duration::from_millis(millis)
}

/// A queue of these arrivals, for a key that is held.
fn queue(arrivals: &[u64]) -> WaitQueue {
    let mut queue = WaitQueue::default();
    for arrived in arrivals {
        queue.look(at(0), place(*arrived), false, &mut |_, _| true);
    }
    queue
}

/// What `act` tells whom, while these waiters do not listen.
fn told(deaf: &[u32], act: impl FnOnce(&mut Tell<'_>)) -> Vec<(u32, News)> {
    let mut told = Vec::new();
    act(&mut |waiter: Waiter, news| {
        let listens = !deaf.contains(&waiter.number);
        if listens {
            told.push((waiter.number, news));
        }
        listens
    });
    told
}

#[test]
fn who_looks_from_behind_notices_that_the_first_is_gone() {
    let mut queue = queue(&[1, 2, 3]);
    let look = |queue: &mut WaitQueue, deaf: &[u32], millis, arrived| {
        let mut rank = None;
        let told = told(deaf, |it| rank = queue.look(at(millis), place(arrived), false, it));
        (rank, told)
    };
    assert_eq!(look(&mut queue, &[1], 999, 3), (Some(2), vec![]), "it was heard of lately");
    assert_eq!(look(&mut queue, &[], 1000, 3), (Some(2), vec![(1, News::Ping)]));
    assert_eq!(look(&mut queue, &[1], 1000, 3), (Some(1), vec![(2, News::First)]));
    assert_eq!(look(&mut queue, &[2], 3000, 3), (Some(0), vec![(3, News::First)]));
    assert_eq!(look(&mut queue, &[], 6000, 3), (Some(0), vec![]), "nobody is before it");
}

#[test]
fn nobody_asks_for_the_first_during_its_turn() {
    let mut queue = queue(&[1, 2]);
    told(&[], |it| queue.call(at(5000), it));
    let look = told(&[1], |it| assert_eq!(queue.look(at(5001), place(2), false, it), Some(1)));
    assert_eq!(look, []);
}
