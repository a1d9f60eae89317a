//! Tests what is told of nodes that come and go, with made-up times.

use super::*;

fn at(seconds: f64) -> Moment {
    Moment::from_epoch(Duration::from_secs_f64(1000.0 + seconds))
}

/// The moments at which one manager tells of outages from and to these moments.
fn told(story: &mut Story, outages: impl IntoIterator<Item = (f64, f64)>) -> Vec<f64> {
    let mut told = Vec::new();
    for (from, to) in outages {
        assert_eq!(story.begin(at(from)), at(from));
        let patience = story.patience(at(from)).as_secs_f64();
        if from + patience >= to {
            story.end_untold(at(from), at(to));
            continue;
        }
        assert!(matches!(story.judge(at(from)), Verdict::Tell { is_repeat: false, .. }));
        told.push(from + patience);
        assert_eq!(story.end_told(at(to)), (at(to).since(at(from)), false));
    }
    told
}

#[test]
fn an_outage_that_lasts_is_told_soon_after_another() {
    assert_eq!(told(&mut Story::default(), [(0.0, 4.0), (8.0, 500.0)]), [2.0, 18.0]);
    assert_eq!(told(&mut Story::default(), [(0.0, 20.0), (22.0, 500.0)]), [2.0, 62.0]);
    // At the end of the quiet minute in any case, and as usual after it.
    assert_eq!(told(&mut Story::default(), [(0.0, 200.0), (210.0, 500.0)]), [2.0, 260.0]);
    assert_eq!(told(&mut Story::default(), [(0.0, 200.0), (261.0, 500.0)]), [2.0, 263.0]);
}

#[test]
fn a_node_that_comes_and_goes_is_told_of_once_a_minute_at_most() {
    for (out, back) in [(2.6, 0.5), (9.0, 3.0), (12.0, 1.0), (15.0, 5.0), (25.0, 2.0), (1.9, 0.1)] {
        let mut story = Story::default();
        let times = (0..100).map(|turn| f64::from(turn) * (out + back));
        let told = told(&mut story, times.map(|from| (from, from + out)));
        assert!(told.iter().zip(&told[told.len().min(1)..]).all(|(a, b)| b - a > 60.0), "{told:?}");
        assert_eq!(told.is_empty(), out < 2.0);
    }
}

#[test]
fn managers_tell_one_outage_alike() {
    let mut story = Story::default();
    for seen in [0.0, 0.5, 0.1] {
        assert_eq!(story.begin(at(seen)), at(0.0));
    }
    assert_eq!(story.judge(at(0.0)), Verdict::Tell { is_repeat: false });
    assert_eq!(story.judge(at(0.0)), Verdict::Tell { is_repeat: true });
    let took = Duration::from_secs(3);
    assert_eq!(story.end_told(at(3.0)), (took, false));
    // They saw it later, perhaps after others of its comings and goings.
    assert_eq!(story.end_told(at(3.1)), (took, true));
    assert_eq!(story.end_told(at(20.0)), (took, true));
}

#[test]
fn a_manager_that_missed_a_return_learns_of_it() {
    let mut story = Story::default();
    assert_eq!(told(&mut story, [(0.0, 3.0)]), [2.0]);
    assert_eq!(story.begin(at(4.0)), at(4.0));
    assert_eq!(story.begin(at(4.1)), at(4.0));
    story.end_untold(at(4.0), at(9.0));
    assert_eq!(story.judge(at(4.0)), Verdict::BackAt(at(9.0)));
    // What it takes for one long outage does not count as that.
    let before = story.longest;
    story.end_untold(at(4.0), at(16.0));
    assert_eq!(story.longest, before);
}

#[test]
fn an_outage_that_short_lived_managers_see_is_told_once_and_so_is_its_end() {
    let mut story = Story::default();
    for turn in 0..5 {
        let now = at(f64::from(turn) * 0.5);
        assert_eq!(story.begin(now), at(0.0));
        assert_eq!(story.patience(at(0.0)), PATIENCE);
        story.leave(now);
    }
    assert_eq!(story.begin(at(3.0)), at(0.0));
    assert_eq!(story.judge(at(0.0)), Verdict::Tell { is_repeat: false });
    story.leave(at(3.5));
    assert_eq!(story.begin(at(9.0)), at(0.0));
    assert_eq!(story.judge(at(0.0)), Verdict::Tell { is_repeat: true });
    assert_eq!(story.end_of_others(at(9.5)), None, "one of them is there to tell it");
    story.leave(at(10.0));
    assert_eq!(story.end_of_others(at(11.0)), Some(Duration::from_secs(11)));
    assert_eq!(story.end_of_others(at(11.0)), None);
}

#[test]
fn an_outage_that_was_told_counts_for_managers_that_come_after_its_end() {
    let [address, other] = ["one", "two"].map(|text| Arc::new(text.parse::<Address>().unwrap()));
    let outages = Outages::default();
    let (seen, told) = (clock::now(), clock::now() + PATIENCE);
    let outage = outages.of(&address);
    assert_eq!(outage.story().begin(seen), seen);
    assert_eq!(outage.story().judge(seen), Verdict::Tell { is_repeat: false });
    outage.story().end_told(told);
    drop(outage);
    assert_eq!(outages.of(&address).story().patience(told), LASTING);
    // Others are forgotten with their managers.
    drop(outages.of(&other));
    drop(outages.of(&address));
    assert_eq!(outages.0.lock().unwrap().len(), 1);
}

#[test]
fn what_nobody_has_looked_at_for_long_is_another_outage() {
    let mut story = Story::default();
    assert_eq!(story.begin(at(0.0)), at(0.0));
    assert_eq!(story.judge(at(0.0)), Verdict::Tell { is_repeat: false });
    story.leave(at(3.0));
    assert_eq!(story.end_of_others(at(13.0)), None);
    assert_eq!(story.begin(at(13.0)), at(13.0));
    assert_eq!(story.judge(at(13.0)), Verdict::Tell { is_repeat: false });
}

#[test]
fn only_equal_addresses_share_what_was_told() {
    let address = |text: &str| Arc::new(text.parse::<Address>().unwrap());
    let outages = Outages::default();
    let one = outages.of(&address("redis://a"));
    assert!(Arc::ptr_eq(&one, &outages.of(&address("redis://a:6379"))));
    assert!(!Arc::ptr_eq(&one, &outages.of(&address("redis://a/1"))));
    drop(one);
    outages.of(&address("redis://b"));
    assert!(outages.0.lock().unwrap().len() <= 2);
}
