//! Tests what is accepted as an address, a resource or a holder id: errors are sentences, and none
//! repeats a password.

use proptest::prelude::*;
use quorlock::Address;
use quorlock_protocol::{HolderId, Resources};

/// Letters that stand in no other piece of the addresses made here.
const SECRET: &str = "Xq7Zw9Vk";

/// Pieces that mean something in an address, in any order, with a password somewhere.
fn address() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "redis",
        "rediss",
        "valkey",
        "unix",
        "memory",
        "REDIS",
        "http",
        "://",
        ":",
        "//",
        "/",
        "@",
        "&",
        "=",
        "#",
        "#insecure",
        ",",
        ";",
        " ",
        "[",
        "]",
        "[::1]",
        "::1",
        "%",
        "%40",
        "%zz",
        "%ff",
        "%0a",
        "\n",
        "\t",
        "\0",
        "user",
        "localhost",
        "127.0.0.1",
        "6379",
        "99999",
        "-1",
        "0",
        "15",
        "db=",
        "password=",
        "username=",
        "key_prefix=",
        "ssl_cert_reqs=none",
        "ssl_ca_certs=",
        "ssl_keyfile=",
        "/tmp/s",
        "ü",
        "💣",
    ]);
    let any_text = "\\PC{0,6}";
    let part = prop_oneof![8 => piece.prop_map(str::to_owned), 1 => any_text];
    (proptest::collection::vec(part, 0..14), 0..14_usize, any::<bool>()).prop_map(
        |(mut parts, place, is_login)| {
            let secret =
                if is_login { format!(":{SECRET}@") } else { format!("?password={SECRET}") };
            parts.insert(place.min(parts.len()), secret);
            parts.concat()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_an_address_or_a_sentence(text in any::<String>()) {
        match text.parse::<Address>() {
            Ok(address) => prop_assert!(!address.to_string().is_empty()),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn what_is_shown_of_an_address_leads_to_the_same_server(text in address()) {
        if let Ok(address) = text.parse::<Address>() {
            let shown = address.to_string();
            // A path or a name may hold letters that mean something in an address.
            if !shown.contains(['%', '?', '#', '@', ' ', ',', ';', '\n', '\t']) {
                let again = shown.parse::<Address>();
                prop_assert_eq!(again.map(|it| it.endpoint()), Ok(address.endpoint()), "{}", shown);
            }
        }
    }

    #[test]
    fn no_password_of_a_proper_login_comes_back(
        user in "[a-z]{0,5}", host in "[a-z]{1,9}", port in 1..=u16::MAX, tail in "\\PC{0,12}",
    ) {
        for scheme in ["redis", "rediss", "valkey", "REDISS", "http", "", "//"] {
            let slashes = if matches!(scheme, "" | "//") { "" } else { "://" };
            let text = format!("{scheme}{slashes}{user}:{SECRET}@{host}:{port}{tail}");
            let (shown, debug) = match text.parse::<Address>() {
                Ok(address) => (address.to_string(), format!("{address:?}")),
                Err(error) => (error.to_string(), format!("{error:?}")),
            };
            // What follows the last '@' is the place; a tail with another makes it part of the login.
            prop_assert!(!shown.contains(SECRET), "{text}: {shown}");
            prop_assert!(!debug.contains(SECRET), "{text}: {debug}");
        }
    }

    #[test]
    fn no_password_of_a_muddled_address_comes_back(text in address()) {
        if let Ok(address) = text.parse::<Address>() {
            let shown = address.to_string();
            // Where it was taken for a path or a name, it was no password.
            let is_place = shown.starts_with("unix:") || shown.starts_with("memory:");
            prop_assert!(is_place || !shown.contains(SECRET), "{text}: {shown}");
        }
    }

    #[test]
    fn any_names_are_resources_or_a_sentence(names in proptest::collection::vec(any::<String>(), 0..5)) {
        match Resources::new(&names) {
            Ok(resources) => prop_assert_eq!(resources.as_slice().len(), names.len()),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
        if let Some(Err(error)) = names.first().map(|name| HolderId::adopt(name)) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
