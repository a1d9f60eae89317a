//! Parses arbitrary text as the address of a node: it is accepted or refused in words, and no
//! password is repeated.

#![cfg_attr(feature = "libfuzzer", no_main)]

use quorlock::{Address, Redlock};

/// Letters that stand in no other piece of an address.
const SECRET: &str = "Xq7Zw9Vk";

#[cfg(feature = "libfuzzer")]
libfuzzer_sys::fuzz_target!(|input: &[u8]| target(input));

#[cfg(not(feature = "libfuzzer"))]
fn main() {
    quorlock_fuzz::replay(target);
}

fn target(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    for address in [text.to_owned(), format!("redis://user:{SECRET}@{text}")] {
        let shown = match address.parse::<Address>() {
            Ok(address) => format!("{address} {address:?} {}", address.endpoint()),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(text.contains(SECRET) || !shown.contains(SECRET), "{shown}");
        // As the binding does, without starting anything.
        let _ = Redlock::builder().nodes([address]).check();
    }
}
