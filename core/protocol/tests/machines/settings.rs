//! Tests the settings and names: every option has its default in one place, and errors name the
//! bounds.

use std::time::Duration;

use quorlock_protocol::{HolderId, OptionDefault, Policy, Resource, Resources};

#[test]
fn the_list_of_options_tells_the_defaults_that_are_used() {
    let policy = Policy::default();
    let find = |name: &str| {
        let options = Policy::options();
        options.iter().find(|option| option.name == name).map(|option| option.default)
    };
    let time = |time| Some(OptionDefault::Time(time));
    assert_eq!(find("ttl"), time(policy.ttl().as_duration()));
    assert_eq!(find("drift_factor"), Some(OptionDefault::Number(policy.drift().factor())));
    assert_eq!(find("unreachable_timeout"), time(policy.unreachable_timeout()));
    assert_eq!(find("max_hold"), time(policy.max_hold()));
    assert_eq!(find("fencing"), Some(OptionDefault::Flag(policy.fencing())));
    assert_eq!(find("auto_extend"), Some(OptionDefault::Flag(policy.auto_extend())));
    for (name, is_set) in
        [("timeout", policy.timeout().is_some()), ("retry_limit", policy.retry_limit().is_some())]
    {
        assert_eq!(find(name), Some(OptionDefault::Unset), "{name}");
        assert!(!is_set, "{name}");
    }
    assert_eq!(find("retries"), None);
}

#[test]
fn every_option_has_a_name_and_a_sentence_of_its_own() {
    let options = Policy::options();
    for (place, option) in options.iter().enumerate() {
        assert!(option.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{option:?}");
        assert!(!option.meaning.is_empty() && !option.meaning.ends_with('.'), "{option:?}");
        let mut others = options[..place].iter();
        assert!(others.all(|it| it.name != option.name && it.meaning != option.meaning));
    }
}

#[test]
fn what_is_set_is_what_is_read() {
    let policy = Policy::builder()
        .ttl(Duration::from_secs(3))
        .drift_factor(0.05)
        .max_hold(Duration::from_secs(60))
        .fencing(false)
        .retry_limit(Some(7))
        .timeout(Some(Duration::from_secs(5)))
        .unreachable_timeout(Duration::from_secs(9))
        .auto_extend(true)
        .build()
        .unwrap();
    assert_eq!(policy.ttl().as_millis(), 3000);
    assert!((policy.drift().factor() - 0.05).abs() < f64::EPSILON);
    assert_eq!(policy.max_hold(), Duration::from_secs(60));
    assert!(!policy.fencing());
    assert_eq!(policy.retry_limit(), Some(7));
    assert_eq!(policy.timeout(), Some(Duration::from_secs(5)));
    assert_eq!(policy.unreachable_timeout(), Duration::from_secs(9));
    assert!(policy.auto_extend() && !policy.without_auto_extend().auto_extend());
}

#[test]
fn names_have_bounds_and_refusals_say_which() {
    let text = |result: Result<(), quorlock_protocol::ConfigError>| result.unwrap_err().to_string();
    let longest = "n".repeat(Resource::MAX_BYTES);
    assert_eq!(Resource::new(&longest).unwrap().to_string(), longest);
    let refused = text(Resource::new(&format!("{longest}n")).map(|_| ()));
    assert_eq!(refused, "a resource name must not be longer than 4096 bytes; this one has 4097");
    assert!(text(Resource::new("").map(|_| ())).contains("must not be empty"));

    let longest = "h".repeat(HolderId::MAX_BYTES);
    assert_eq!(HolderId::adopt(&longest).unwrap().to_string(), longest);
    let refused = text(HolderId::adopt(&format!("{longest}h")).map(|_| ()));
    assert_eq!(refused, "a lease token must not be longer than 1024 bytes; this one has 1025");
    assert!(text(HolderId::adopt("").map(|_| ())).contains("must not be empty"));
}

#[test]
fn a_set_of_resources_is_not_empty_not_huge_and_without_twins() {
    let text = |names: Vec<String>| Resources::new(names).unwrap_err().to_string();
    let numbered = |count: usize| (0..count).map(|n| format!("r{n}")).collect::<Vec<_>>();
    assert!(text(Vec::new()).contains("at least one resource"));
    let twice = ["b", "a", "b"].map(str::to_owned).to_vec();
    assert_eq!(text(twice), "resource 'b' is named twice");
    assert_eq!(Resources::new(numbered(1000)).unwrap().as_slice().len(), Resources::MAX_COUNT);
    assert_eq!(text(numbered(1001)), "a lock takes at most 1000 resources, not 1001");
}
