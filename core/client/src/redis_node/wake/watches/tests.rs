//! Tests when a watched key is read, and who is told what.

use super::*;

const FREED: News = News::Freed(WakeCause::Watch);

fn waiter(number: u32) -> Waiter {
    Waiter { process: 1, number }
}

fn keys(names: &[&str]) -> LockKeys {
    names.iter().map(|&name| name.into()).collect()
}

fn held() -> KeyState {
    KeyState::of_pttl(60_000)
}

fn is_held(finding: &Finding, number: u32) -> bool {
    matches!(finding.news.as_slice(), [(it, News::Held(_))] if *it == waiter(number))
}

#[test]
fn a_key_that_is_gone_is_told_at_once_and_a_held_one_is_not() {
    let mut watches = Watches::default();
    assert_eq!(watches.watch(waiter(1), &keys(&["r"])), [Arc::from("r")]);
    assert_eq!(watches.note_read("r", held()), Finding::default());
    assert_eq!(watches.watch(waiter(1), &keys(&["r"])), [Arc::from("r")]);
    let finding = watches.note_read("r", KeyState::Gone);
    assert_eq!(finding, Finding { news: vec![(waiter(1), FREED)], again: false });
}

#[test]
fn a_change_is_read_once_however_many_watch_and_told_to_all() {
    let mut watches = Watches::default();
    watches.watch(waiter(1), &keys(&["r"]));
    assert!(watches.watch(waiter(2), &keys(&["r"])).is_empty(), "a read is under way");
    assert!(watches.note_read("r", held()).again, "the second may have begun after it");
    assert!(!watches.note_read("r", held()).again);
    assert_eq!(watches.note_change("r").as_deref(), Some("r"));
    let finding = watches.note_read("r", KeyState::Gone);
    assert_eq!(finding.news, [(waiter(1), FREED), (waiter(2), FREED)]);
}

#[test]
fn many_changes_are_one_read_more() {
    let mut watches = Watches::default();
    watches.watch(waiter(1), &keys(&["r"]));
    for _ in 0..9 {
        assert_eq!(watches.note_change("r"), None);
    }
    let finding = watches.note_read("r", held());
    assert_eq!(finding, Finding { news: vec![], again: true }, "the next read tells");
    let finding = watches.note_read("r", held());
    assert!(is_held(&finding, 1) && !finding.again, "{finding:?}");
    assert_eq!(watches.note_change_of_all(), [Arc::from("r")]);
}

#[test]
fn a_key_without_an_end_tells_nothing() {
    let mut watches = Watches::default();
    watches.watch(waiter(1), &keys(&["r"]));
    watches.note_read("r", held());
    watches.note_change("r");
    assert_eq!(watches.note_read("r", KeyState::of_pttl(-1)), Finding::default());
}

#[test]
fn of_several_keys_all_must_be_gone() {
    let mut watches = Watches::default();
    assert_eq!(watches.watch(waiter(1), &keys(&["a", "b"])).len(), 2);
    watches.note_read("a", KeyState::of_pttl(50));
    watches.note_read("b", held());
    watches.note_change("a");
    let finding = watches.note_read("a", KeyState::Gone);
    let [(_, News::Held(left))] = finding.news.as_slice() else { panic!("{finding:?}") };
    assert!(*left > Duration::from_secs(50), "{left:?}");
    watches.note_change("b");
    assert_eq!(watches.note_read("b", KeyState::Gone).news, [(waiter(1), FREED)]);
}

#[test]
fn nothing_is_left_of_a_watch_that_ended() {
    let mut watches = Watches::default();
    watches.watch(waiter(1), &keys(&["r"]));
    watches.note_change("r");
    watches.unwatch(waiter(1), &keys(&["r"]));
    assert_eq!(watches.note_read("r", KeyState::Gone), Finding::default());
    assert!(watches.0.is_empty());
    assert_eq!(watches.note_change("r"), None);
    watches.watch(waiter(2), &keys(&["r", "s"]));
    assert_eq!(watches.clear(), [waiter(2)]);
    assert!(watches.0.is_empty());
}
