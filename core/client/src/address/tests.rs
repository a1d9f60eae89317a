//! Tests how addresses are read from text, and that no message repeats a login.

use super::*;

fn parse(text: &str) -> Address {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refuse(text: &str) -> String {
    match text.parse::<Address>() {
        Ok(address) => panic!("{text} was read as {address}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_notation_is_read() {
    for (text, shown) in [
        ("redis://host", "redis://host:6379"),
        ("redis://host:7000/", "redis://host:7000"),
        ("redis://host:7000/3", "redis://host:7000/3"),
        ("redis://host?db=3", "redis://host:6379/3"),
        ("valkey://host", "redis://host:6379"),
        ("REDISS://Host", "rediss://Host:6379"),
        ("valkeys://host:1/2", "rediss://host:1/2"),
        ("host", "redis://host:6379"),
        ("host:7000", "redis://host:7000"),
        ("  host:7000\n", "redis://host:7000"),
        ("10.0.0.1", "redis://10.0.0.1:6379"),
        ("[::1]:7000", "redis://[::1]:7000"),
        ("::1", "redis://[::1]:6379"),
        ("redis://[fe80::1]/2", "redis://[fe80::1]:6379/2"),
        ("user:pw@host:1", "redis://host:1"),
        ("unix:///run/r.sock?db=1", "unix:///run/r.sock?db=1"),
        ("unix://user:pw@/run/r@1.sock", "unix:///run/r@1.sock"),
        ("redis+unix:///run/r.sock", "unix:///run/r.sock"),
        ("/run/r.sock", "unix:///run/r.sock"),
        ("memory://a", "memory://a"),
        ("memory://", "memory://"),
        ("redis://host?socket_timeout=5&decode_responses=True", "redis://host:6379"),
    ] {
        assert_eq!(parse(text).to_string(), shown, "{text}");
    }
}

#[test]
fn logins_are_decoded() {
    for (text, username, password) in [
        ("redis://host", None, None),
        ("redis://:pw@host", None, Some("pw")),
        ("redis://user@host", Some("user"), None),
        ("redis://us%40er:p%2Fw%25@host", Some("us@er"), Some("p/w%")),
        ("redis://:p@ss/w#rd@host:1/2", None, Some("p@ss/w#rd")),
        ("redis://:a:b@host", None, Some("a:b")),
        ("redis://:100%@host", None, Some("100%")),
        ("redis://host?username=u&password=p%26q", Some("u"), Some("p&q")),
        ("unix://u:p@/run/r.sock", Some("u"), Some("p")),
        ("unix://u:p@q@/run/r@/s.sock", Some("u"), Some("p@q")),
        ("unix:///run/r.sock?password=p", None, Some("p")),
    ] {
        let address = parse(text);
        assert_eq!((address.username(), address.password()), (username, password), "{text}");
    }
    assert_eq!(parse("redis://:p@ss/w#rd@host:1/2").to_string(), "redis://host:1/2");
}

#[test]
fn nonsense_is_refused_in_a_sentence_without_its_login() {
    for (text, part) in [
        ("", "must name a host"),
        ("redis://", "must name a host"),
        ("redis://:hunter2@", "must name a host"),
        ("redis://:hunter2", "port is not a number"),
        ("redis://user:hunter2/0", "port is not a number"),
        ("redis://:hunter2@host:x", "port is not a number"),
        ("redis://:hunter2@host:0", "port 0"),
        ("redis://:hunter2@host:70000", "port is not a number"),
        ("redis://:hunter2@host/x", "database is not a number"),
        ("redis://:hunter2@host/-1", "database is not a number"),
        ("redis://:hunter2@ho st", "unusable character"),
        ("redis://:hun?ter2@host", "port is not a number"),
        ("redis://:hunter2@[::1:123", "unusable character"),
        ("redis://:hunter2@a:1,b:2", "several addresses; pass a list, one address each"),
        ("redis://:hunter2@a,redis://:hunter2@b", "pass a list, one address each"),
        ("redis://:hunter2@a/1; rediss://b", "pass a list, one address each"),
        ("memory://a,memory://b", "pass a list, one address each"),
        ("unix:///a.sock, /b.sock redis+unix:///c", "pass a list, one address each"),
        ("a:1,redis://:hunter2@b", "pass a list, one address each"),
        ("a,b", "pass a list, one address each"),
        ("redis://:hunter2@a:b:c", "no IPv6 address"),
        ("redis://host?password=hunter2&pasword=hunter2", "unknown option after the password"),
        (
            "redis://host?password=hun&ter2",
            "unknown option after the password, in which & is written %26",
        ),
        ("redis://host?pasword=hunter2", "unknown option 'pasword'"),
        ("redis://host?hunter2!", "unknown option"),
        ("redis://host:x?password=@hunter2", "port is not a number"),
        ("redis://host/x?password=a@hunter2", "database is not a number"),
        ("unix:///run/r.sock?password=@hunter2&ssl_cert_reqs=none", "no TLS on a unix socket"),
        ("host:x?password=@hunter2", "port is not a number"),
        ("password:", "no port after the ':'"),
        ("http://host?password=a@hunter2", "scheme is not one of"),
        ("redis://[::1?password=hunter2", "unusable character"),
        ("REDIS_PASSWORD=hunter2", "holds an unusable character"),
        ("redis://password=hunter2:6379", "holds an unusable character"),
        ("REDIS_PASSWORD=a@hunter2=b", "holds an unusable character"),
        ("REDIS_URL=redis://:hunter2@host", "write redis:"),
        ("redis://[::1?password=a]hunter2", "unusable character"),
        ("http://user:hunter2@host", "scheme is not one of"),
        ("user:hunter2://x@host", "write redis://"),
        ("redis:/user:hunter2@host", "write redis://"),
        ("//:hunter2@host", "write redis:"),
        ("//user:hunter2", "write redis:"),
        ("///user:hunter2", "write redis:"),
        ("redis://host?ssl_cert_reqs=none", "write rediss://"),
        ("rediss://:hunter2@host?ssl_cert_reqs=hunter2", "'required' or 'none'"),
        ("rediss://host?ssl_ca_certs=/no/such/file", "/no/such/file"),
        ("rediss://host?ssl_keyfile=/no/such/file", "needs ssl_certfile"),
        ("rediss://:hunter2@host#hunter2", "#insecure"),
        ("unix://", "path of a socket"),
        ("unix:///run/r.sock?ssl_cert_reqs=none", "no TLS on a unix socket"),
    ] {
        let sentence = refuse(text);
        assert!(sentence.contains(part), "{text}: {sentence}");
        assert!(!sentence.contains("hunter2") && !sentence.contains("ter2"), "{text}: {sentence}");
        assert!(!sentence.contains('\n'), "{text}: {sentence}");
    }
}

#[test]
fn a_sentence_says_which_address_is_meant() {
    assert_eq!(
        refuse("redis://user:pw@cache.example:x/1"),
        "cannot use node address 'redis://***@cache.example...': the port is not a number between 1 \
         and 65535"
    );
}

#[test]
fn no_form_shows_a_password() {
    let address = parse("rediss://user:hunter2@host/1?key_prefix=app:");
    for shown in [format!("{address}"), format!("{address:?}"), format!("{address:#?}")] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert_eq!(format!("{address:?}"), "Address(rediss://host:6379/1)");
}

#[test]
fn one_server_has_one_endpoint() {
    for (one, other) in [
        ("redis://localhost", "127.0.0.1:6379"),
        ("redis://Cache.Example.", "rediss://u:p@cache.example:6379/4?key_prefix=x"),
        ("redis://[::ffff:10.0.0.1]", "10.0.0.1"),
        ("redis://[0:0:0:0:0:0:0:1]", "::1"),
        ("unix:///run/r.sock?db=1", "/run/r.sock"),
    ] {
        assert_eq!(parse(one).endpoint(), parse(other).endpoint());
    }
    for (one, other) in [
        ("redis://a", "redis://b"),
        ("redis://a:1", "redis://a:2"),
        ("memory://a", "memory://b"),
        ("memory://a", "redis://a"),
    ] {
        assert_ne!(parse(one).endpoint(), parse(other).endpoint());
    }
}

#[test]
fn parts_make_the_same_address_as_text() {
    let built = Address::tcp("host", 7000)
        .and_then(|address| address.with_tls(Tls::default()))
        .map(|address| address.with_login(Some("u"), Some("p")).with_db(2).with_key_prefix("x:"))
        .unwrap();
    assert_eq!(built, parse("rediss://u:p@host:7000/2?key_prefix=x:"));
    assert_eq!(Address::tcp("host", 1).unwrap().with_login(Some(""), None), parse("host:1"));
    assert!(Address::memory("a").unwrap().with_tls(Tls::default()).is_err());
}

#[test]
fn tls_options_of_the_query_are_understood() {
    let verification = |query: &str| {
        parse(&format!("rediss://host?{query}")).tls().map(Tls::verification).unwrap()
    };
    assert_eq!(verification(""), Verification::Full);
    assert_eq!(verification("ssl_cert_reqs=required"), Verification::Full);
    assert_eq!(verification("ssl_cert_reqs=none"), Verification::DangerNone);
    assert_eq!(verification("ssl_check_hostname=False"), Verification::DangerAnyHost);
    assert_eq!(
        verification("ssl_check_hostname=False&ssl_cert_reqs=none"),
        Verification::DangerNone
    );
    assert_eq!(
        verification("ssl_cert_reqs=none&ssl_check_hostname=False"),
        Verification::DangerNone
    );
    let insecure = parse("rediss://host/#insecure");
    assert_eq!(insecure.tls().map(Tls::verification), Some(Verification::DangerNone));
}

#[test]
fn a_server_is_declared_durable_in_the_query() {
    assert!(!parse("redis://host").is_durable());
    for (text, durable) in
        [("true", true), ("1", true), ("Yes", true), ("false", false), ("0", false), ("no", false)]
    {
        assert_eq!(parse(&format!("redis://host?durable={text}")).is_durable(), durable, "{text}");
    }
    assert!(parse("unix:///run/r.sock?db=1&durable=true").is_durable());
    assert!(refuse("redis://host?durable=always").contains("durable must be 'true' or 'false'"));
}

#[test]
fn servers_and_users_write_places_in_one_way() {
    let place = |text| parse(text).host_and_port().map(|place| place.to_string());
    assert_eq!(place("redis://LocalHost:7000"), Some("127.0.0.1:7000".to_owned()));
    assert_eq!(place("redis://[0:0::1]"), Some("[::1]:6379".to_owned()));
    assert_eq!(&*join("::1", 6379), "[::1]:6379");
    assert_eq!(place("unix:///run/r.sock"), None);
}
