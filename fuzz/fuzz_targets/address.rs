//! Parses arbitrary text as the address of a node: it is accepted or refused in words, and no
//! password is repeated.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quorlock::{Address, Redlock};

/// Letters that stand in no other piece of an address.
const SECRET: &str = "Xq7Zw9Vk";

fuzz_target!(|text: &str| {
    for address in [text.to_owned(), format!("redis://user:{SECRET}@{text}")] {
        let shown = match address.parse::<Address>() {
            Ok(address) => format!("{address} {address:?} {}", address.endpoint()),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(text.contains(SECRET) || !shown.contains(SECRET), "{shown}");
        // As the binding does, without starting anything.
        let _ = Redlock::builder().nodes([address]).check();
    }
});
