//! Tests what the feature `tracing` tells, with a subscriber of this test.
#![cfg(feature = "tracing")]

mod support;

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::Redlock;
use support::{run, until};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Writes down each span and event of the library as a line.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>, Arc<AtomicU64>);

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
        self.0.lock().unwrap().push(format!("span {}", span.metadata().name()));
        Id::from_u64(self.1.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(event.metadata().level().to_string());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn spans_and_events_reach_the_subscriber() {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).expect("the only one");
    run(async {
        let nodes = ["memory://", "memory://", "memory://"];
        let locks = Redlock::builder().nodes(nodes).build().expect("three nodes");
        let has = |words: &[&str]| {
            let lines = lines.0.lock().unwrap();
            lines.iter().any(|line| words.iter().all(|word| line.contains(word)))
        };
        locks.lock("r").acquire().await.expect("free").release().await.expect("held");
        until("the release is told", || has(&["DEBUG", "event=\"released\"", "'r' given back"]))
            .await;
        assert!(has(&["span quorlock.acquire"]) && has(&["event=\"acquired\"", "'r' acquired"]));
        let short = locks.lock("r").ttl(Duration::from_millis(50)).acquire().await.expect("free");
        short.lost().await;
        until("the loss is told", || has(&["WARN", "event=\"lost\"", "the lease on 'r' is lost"]))
            .await;
    });
}
