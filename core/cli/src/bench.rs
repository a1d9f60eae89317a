//! A quick look at the speed of one's own nodes: locks and releases, next to plain PING. Owns what
//! is measured; it is no comparison with other libraries.

use std::time::{Duration, Instant};

use futures::future::{join_all, try_join_all};
use quorlock::{Address, Fault, Redlock, ServerConnection};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::arguments::Bench;
use crate::context::{Context, unanswered};
use crate::failure::{Failure, code, list};
use crate::output::{Cell, Table, rounded};

/// What was measured of one kind of work.
struct Measured {
    what: &'static str,
    in_flight: usize,
    /// Of each piece of work, sorted.
    times: Vec<Duration>,
    took: Duration,
}

impl Measured {
    fn per_second(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "it is shown without digits")]
        let count = self.times.len() as f64;
        count / self.took.as_secs_f64()
    }

    fn percentile(&self, percent: usize) -> Duration {
        let last = self.times.len().saturating_sub(1);
        self.times.get(last * percent / 100).copied().unwrap_or_default()
    }

    fn as_json(&self) -> Value {
        json!({
            "what": self.what,
            "in_flight": self.in_flight,
            "per_second": rounded(self.per_second()),
            "p50_seconds": rounded(self.percentile(50).as_secs_f64()),
            "p90_seconds": rounded(self.percentile(90).as_secs_f64()),
            "p99_seconds": rounded(self.percentile(99).as_secs_f64()),
        })
    }
}

/// Measures, and shows.
pub(crate) fn bench(context: &Context, options: &Bench) -> Result<u8, Failure> {
    let time = Duration::from_secs_f64(options.seconds) / 4;
    let locks = context.locks()?;
    let mut all = Vec::new();
    for in_flight in [1, TOGETHER] {
        all.push(context.engine.block_on(pairs(&locks, in_flight, time))?);
        let limit = time + context.timeout;
        let pings = context.engine.block_on_for(limit, pings(context, in_flight, time));
        let Some(pings) = pings else {
            return Err(unanswered(&locks, "not all nodes have answered PING in time"));
        };
        all.push(pings.map_err(|message| Failure::new(code::NO_QUORUM, message))?);
    }
    context.tell_the_rest(Duration::MAX);
    let mut table = Table::new(&["what", "in flight", "a second", "p50", "p90", "p99"]);
    for measured in &all {
        let percentiles = [50, 90, 99].map(|percent| millis(measured.percentile(percent)));
        let first = [
            measured.what.to_owned(),
            measured.in_flight.to_string(),
            format!("{:.0}", measured.per_second()),
        ];
        table.row(first.iter().chain(&percentiles).map(|text| Cell::plain(text)).collect());
    }
    context.output.table(&table.render());
    context.output.json(&all.iter().map(Measured::as_json).collect());
    Ok(code::DONE)
}

/// Acquires and releases locks that nobody else wants.
async fn pairs(locks: &Redlock, in_flight: usize, time: Duration) -> Result<Measured, Failure> {
    // The name is drawn anew, so that two measurements are not in each other's way.
    let run = std::process::id();
    let began = Instant::now();
    let loops = (0..in_flight).map(|number| async move {
        let lock = locks.lock(&format!("quorlock-bench-{run}-{number}")).try_once();
        // The first connects.
        lock.acquire().await?.release().await?;
        repeat(time, async || {
            lock.acquire().await?.release().await?;
            Ok::<_, Failure>(())
        })
        .await
    });
    let times = try_join_all(loops).await?;
    Ok(measured("lock and release", in_flight, &times, began))
}

/// Asks all nodes at once, and waits for all answers.
async fn pings(context: &Context, in_flight: usize, time: Duration) -> Result<Measured, String> {
    let open = async |address| {
        let connection = ServerConnection::open(address).await;
        connection.map(|it| (address, Mutex::new(it))).map_err(|fault| named(address, fault))
    };
    let open = || try_join_all(context.addresses.iter().map(open));
    let connections = try_join_all((0..in_flight).map(|_| open())).await?;
    let began = Instant::now();
    let loops = connections.into_iter().map(|connections| async move {
        repeat(time, async || {
            let asked = connections.iter().map(async |(address, connection)| {
                let answer = connection.lock().await.ask(&["PING"]).await;
                answer.map(|_| ()).map_err(|fault| named(address, fault))
            });
            join_all(asked).await.into_iter().collect()
        })
        .await
    });
    let times = try_join_all(loops).await?;
    Ok(measured("PING of all nodes", in_flight, &times, began))
}

fn named(address: &Address, fault: Fault) -> String {
    list(&[(address.to_string(), fault)])
}

/// Does the work again and again; the time that each piece took.
async fn repeat<E>(
    time: Duration,
    work: impl AsyncFn() -> Result<(), E>,
) -> Result<Vec<Duration>, E> {
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < time || times.is_empty() {
        let asked = Instant::now();
        work().await?;
        times.push(asked.elapsed());
    }
    Ok(times)
}

fn measured(
    what: &'static str,
    in_flight: usize,
    times: &[Vec<Duration>],
    began: Instant,
) -> Measured {
    let mut times = times.concat();
    times.sort_unstable();
    Measured { what, in_flight, times, took: began.elapsed() }
}

fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

const TOGETHER: usize = 16;
