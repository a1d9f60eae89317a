//! Tests the queue of one lock key on one node.

use std::time::Duration;

use quorlock_protocol::{Moment, News, Place, Tell, WaitQueue, Waiter, WakeCause};

const CALLED: News = News::Freed(WakeCause::Push);

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
fn the_first_is_called_and_the_second_told_that_it_is_next() {
    let mut queue = queue(&[3, 1, 2]);
    assert_eq!(queue.rank(place(3)), Some(2));
    assert_eq!(told(&[], |it| queue.call(at(1), it)), [(1, CALLED), (2, News::Next)]);
}

#[test]
fn who_does_not_listen_loses_its_place() {
    let mut queue = queue(&[1, 2, 3]);
    assert_eq!(told(&[1], |it| queue.call(at(1), it)), [(2, CALLED), (3, News::Next)]);
    assert_eq!(queue.rank(place(1)), None);
}

#[test]
fn who_lets_its_turn_pass_loses_its_place_and_calling_again_gives_no_longer_turn() {
    let mut queue = queue(&[1, 2]);
    told(&[], |it| queue.call(at(0), it));
    told(&[], |it| queue.call(at(40), it));
    assert_eq!(told(&[], |it| queue.call(at(50), it)), [(2, CALLED)]);
}

#[test]
fn the_next_is_one_that_listens() {
    let mut queue = queue(&[1, 2, 3]);
    assert_eq!(told(&[2], |it| queue.call(at(1), it)), [(1, CALLED), (3, News::Next)]);
    let mut queue = self::queue(&[1, 2, 3]);
    let told = told(&[2], |it| queue.leave(at(1), place(1), false, it));
    assert_eq!(told, [(3, News::First)]);
    assert_eq!(queue.rank(place(2)), None);
}

#[test]
fn the_next_hears_when_the_first_leaves() {
    let mut queue = queue(&[1, 2, 3]);
    assert_eq!(told(&[], |it| queue.leave(at(1), place(3), false, it)), []);
    assert_eq!(told(&[], |it| queue.leave(at(1), place(1), false, it)), [(2, News::First)]);
    assert_eq!(told(&[], |it| queue.leave(at(1), place(2), true, it)), []);
    assert!(queue.is_empty());
}

#[test]
fn a_younger_one_is_behind_and_the_older_is_called() {
    let mut queue = queue(&[1, 2]);
    let mut behind = false;
    let calls = told(&[], |it| behind = queue.is_behind(at(1), place(2), it));
    assert!(behind);
    assert_eq!(calls, [(1, CALLED), (2, News::Next)]);
    assert_eq!(told(&[1], |it| behind = queue.is_behind(at(1), place(2), it)).len(), 1);
    assert!(!behind, "the older one's process is gone");
}

#[test]
fn a_place_ends_with_its_life_and_a_full_queue_takes_no_more() {
    let mut queue = queue(&[1]);
    assert_eq!(queue.count(at(9_999)), 1);
    assert_eq!(queue.count(at(10_000)), 0);
    let mut look = |arrived| queue.look(at(10_000), place(arrived), false, &mut |_, _| true);
    assert_eq!(look(2), Some(0), "the first has ended");
    for arrived in 3..=10_001 {
        assert!(look(arrived).is_some());
    }
    assert_eq!(look(20_000), None);
    assert_eq!(look(2), Some(0), "who has a place keeps it");
}

#[test]
fn who_looks_from_behind_notices_that_the_first_is_gone() {
    let mut queue = queue(&[1, 2, 3]);
    let look = |queue: &mut WaitQueue, deaf: &[u32], millis, arrived| {
        let mut rank = None;
        let told = told(deaf, |it| rank = queue.look(at(millis), place(arrived), false, it));
        (rank, told)
    };
    assert_eq!(
        look(&mut queue, &[1], 999, 3),
        (Some(2), vec![]),
        "it has looked less than a second ago"
    );
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
