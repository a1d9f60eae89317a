//! Exchanges lines of JSON between a Rust contestant and the bench, and runs the loops it asks for.
//! Knows no library.

#![forbid(unsafe_code)]

mod clock;
mod worker;

use std::future::Future;
use std::io::{self, BufRead, Write};
use std::time::Duration;

use serde_json::{Value, json};

pub use worker::Worker;

/// The same for everybody.
pub const TTL: Duration = Duration::from_secs(10);

/// A library under test: waits as the library does by default.
pub trait Locks: Send + Sync + 'static {
    /// What is held.
    type Held: Send + 'static;

    /// A held lock, or `None` if the library gave up.
    fn acquire(&self, resource: String) -> impl Future<Output = Option<Self::Held>> + Send;

    /// A lock that renews itself, or `None` where there is no such thing.
    fn hold(&self, resource: String) -> impl Future<Output = Option<Self::Held>> + Send;

    /// Gives it back.
    fn release(&self, held: Self::Held) -> impl Future<Output = ()> + Send;
}

/// The variant ("" for the defaults) and the nodes' URLs, from the command line.
pub fn arguments() -> (String, Vec<String>) {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let variant = match words.first().and_then(|word| word.strip_prefix("--")) {
        Some(variant) => variant.to_owned(),
        None => String::new(),
    };
    words.retain(|word| !word.starts_with("--"));
    (variant, words.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect())
}

/// Answers requests until the input ends.
///
/// # Errors
/// If the standard streams cannot be used.
pub fn serve(version: &str, mut answer: impl FnMut(Value) -> Value) -> io::Result<()> {
    say(&json!({ "version": version }))?;
    for line in io::stdin().lock().lines() {
        say(&answer(serde_json::from_str(&line?)?))?;
    }
    Ok(())
}

/// Answers requests on a runtime of this thread.
///
/// # Errors
/// If the runtime or the standard streams cannot be used.
pub fn serve_here(locks: impl Locks, version: &str) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Some libraries want a runtime about them also when they are made ready or dropped.
    let _inside = runtime.enter();
    let mut worker = Worker::new(locks);
    serve(version, |request| runtime.block_on(worker.answer(&request)))
}

fn say(message: &Value) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{message}")?;
    output.flush()
}
