//! Tests what the feature `tracing` tells, with a subscriber of this test.
#![cfg(feature = "tracing")]

mod support;

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::Redlock;
use support::{run, until};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Instrument as _, Metadata, Subscriber};
use tracing_core::span::Current;

/// Writes down each span and event of the library as a line, and each change of a span with its
/// number and name.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>, Arc<Mutex<Vec<&'static Metadata<'static>>>>);

thread_local! {
    /// The spans that this thread is in.
    static ENTERED: RefCell<Vec<Id>> = const { RefCell::new(Vec::new()) };
}

impl Lines {
    fn write(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn named(&self, id: &Id) -> String {
        let index = usize::try_from(id.into_u64()).unwrap() - 1;
        format!("{index} {}", self.1.lock().unwrap()[index].name())
    }

    /// Whether a line has all these words.
    fn has(&self, words: &[&str]) -> bool {
        let lines = self.0.lock().unwrap();
        lines.iter().any(|line| words.iter().all(|word| line.contains(word)))
    }

    /// How many lines are exactly like this, but for the number of the span.
    fn count(&self, text: &str) -> usize {
        let (verb, rest) = text.split_once(' ').unwrap();
        let is_like = |line: &&String| line.starts_with(verb) && line.ends_with(rest);
        self.0.lock().unwrap().iter().filter(is_like).count()
    }
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "quorlock"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut known = self.1.lock().unwrap();
        known.push(span.metadata());
        let id = Id::from_u64(known.len() as u64);
        drop(known);
        let mut fields = Fields(String::new());
        span.record(&mut fields);
        let root = if span.is_root() { " root" } else { "" };
        self.write(format!("span {}{root}{}", self.named(&id), fields.0));
        id
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(event.metadata().level().to_string());
        event.record(&mut fields);
        self.write(fields.0);
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut fields = Fields(String::new());
        values.record(&mut fields);
        self.write(format!("record {}{}", self.named(id), fields.0));
    }

    fn record_follows_from(&self, id: &Id, from: &Id) {
        self.write(format!("link {} to {}", self.named(id), self.named(from)));
    }

    fn enter(&self, id: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(id.clone()));
    }

    fn exit(&self, _: &Id) {
        ENTERED.with_borrow_mut(Vec::pop);
    }

    fn current_span(&self) -> Current {
        let Some(id) = ENTERED.with_borrow(|entered| entered.last().cloned()) else {
            return Current::none();
        };
        let index = usize::try_from(id.into_u64()).unwrap() - 1;
        Current::new(id, self.1.lock().unwrap()[index])
    }

    fn try_close(&self, id: Id) -> bool {
        // No test clones a span.
        self.write(format!("close {}", self.named(&id)));
        true
    }
}

#[test]
fn spans_and_events_reach_the_subscriber() {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).expect("the only one");
    run(async {
        let nodes = ["memory://", "memory://", "memory://"];
        let locks = Redlock::builder().nodes(nodes).build().expect("three nodes");
        let caller = tracing::info_span!(target: "quorlock", "caller");
        let lease = locks.lock("r").acquire().instrument(caller).await.expect("free");
        let token = lease.fencing_token().expect("fencing is on");
        assert!(lines.has(&["span", "quorlock.acquire"]));
        assert!(lines.has(&["event=\"acquired\"", "'r' acquired"]));
        let hold = format!("quorlock.hold root quorlock.fencing_token={token}");
        assert!(lines.has(&["span", &hold]), "{lines:?}", lines = lines.0);
        assert!(lines.has(&["link", "quorlock.hold to 0 caller"]));
        assert_eq!(lines.count("close quorlock.hold"), 0, "it is held");
        lease.release().await.expect("held");
        until("the release is told", || {
            lines.has(&["DEBUG", "event=\"released\"", "'r' given back"])
        })
        .await;
        assert_eq!(lines.count("record quorlock.hold quorlock.outcome=\"released\""), 1);
        assert_eq!(lines.count("close quorlock.hold"), 1);
        let short = locks.lock("r").ttl(Duration::from_millis(50)).acquire().await.expect("free");
        short.lost().await;
        until("the loss is told", || {
            lines.has(&["WARN", "event=\"lost\"", "the lease on 'r' is lost"])
        })
        .await;
        assert_eq!(lines.count("record quorlock.hold quorlock.outcome=\"lost\""), 1);
        assert_eq!(lines.count("close quorlock.hold"), 2);
        drop(locks.lock("s").acquire().await.expect("free").into_lease());
        until("the end is told", || lines.count("close quorlock.hold") == 3).await;
        assert_eq!(lines.count("record quorlock.hold quorlock.outcome=\"abandoned\""), 1);
        locks.lock("s").try_once().acquire().await.expect_err("its key is still there");
        assert_eq!(lines.count("close quorlock.hold"), 3, "nothing was held");
    });
}
