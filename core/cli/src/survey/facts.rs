//! What one server says of itself, its clock, and how far away it is. Owns the questions; judges
//! nothing.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quorlock::{Fault, ServerConnection, ServerReply};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use super::rights::{self, Rights};

/// The facts of one server; `None` where the user may not ask.
#[derive(Default)]
pub(super) struct Facts {
    /// `redis` or `valkey`.
    pub(super) product: Option<String>,
    pub(super) version: Option<String>,
    /// The version of Redis that it behaves as.
    pub(super) compatible: Option<String>,
    /// `master`, or `slave` as servers call it.
    pub(super) role: Option<String>,
    pub(super) run_id: Option<String>,
    pub(super) uptime: Option<Duration>,
    /// Whether it keeps a log of its writes.
    pub(super) has_log: Option<bool>,
    /// When it writes the log to disk: `always`, `everysec`, `no`.
    pub(super) fsync: Option<String>,
    pub(super) eviction: Option<String>,
    pub(super) used_memory: Option<u64>,
    /// Its limit; zero for none.
    pub(super) max_memory: Option<u64>,
    pub(super) is_in_cluster: bool,
    /// By how many seconds its clock is ahead of this machine's, and how far off that may be.
    pub(super) clock_offset: Option<(f64, f64)>,
    pub(super) round_trip: Duration,
    pub(super) rights: Rights,
    /// How long its certificate is valid yet, in seconds.
    pub(super) certificate_left: Option<i64>,
}

/// Asks the server.
pub(super) async fn ask(connection: &mut ServerConnection) -> Result<Facts, Fault> {
    let mut facts = Facts { certificate_left: certificate_left(connection), ..Facts::default() };
    let info = connection.ask(&["INFO"]).await?;
    facts.learn(info.text().unwrap_or_default());
    facts.fsync = setting(connection, "appendfsync").await?;
    if facts.eviction.is_none() {
        facts.eviction = setting(connection, "maxmemory-policy").await?;
    }
    facts.round_trip = round_trip(connection).await?;
    facts.clock_offset = clock_offset(connection).await?;
    // Last, since a connection that listens answers nothing else any more.
    facts.rights = rights::ask(connection).await?;
    Ok(facts)
}

impl Facts {
    /// Reads the reply to INFO.
    fn learn(&mut self, info: &str) {
        let field = |name: &str| {
            let mut fields = info.lines().filter_map(|line| line.trim_end().split_once(':'));
            fields.find(|(it, _)| *it == name).map(|(_, value)| value.to_owned())
        };
        let number = |name: &str| field(name)?.parse::<u64>().ok();
        self.compatible = field("redis_version");
        self.version = field("valkey_version").or_else(|| self.compatible.clone());
        let product =
            field("server_name").or_else(|| self.version.as_ref().map(|_| "redis".into()));
        self.product = product;
        self.role = field("role");
        self.run_id = field("run_id");
        self.uptime = number("uptime_in_seconds").map(Duration::from_secs);
        self.has_log = number("aof_enabled").map(|it| it == 1);
        self.eviction = field("maxmemory_policy");
        self.used_memory = number("used_memory");
        self.max_memory = number("maxmemory");
        self.is_in_cluster = number("cluster_enabled") == Some(1);
    }
}

async fn setting(connection: &mut ServerConnection, name: &str) -> Result<Option<String>, Fault> {
    let reply = connection.ask(&["CONFIG", "GET", name]).await?;
    Ok(reply.parts().get(1).and_then(ServerReply::text).map(str::to_owned))
}

/// The median of a few.
async fn round_trip(connection: &mut ServerConnection) -> Result<Duration, Fault> {
    let mut times = Vec::new();
    for _ in 0..SAMPLES {
        let asked = Instant::now();
        connection.ask(&["PING"]).await?;
        times.push(asked.elapsed());
    }
    times.sort();
    Ok(times[SAMPLES / 2])
}

/// By the quickest of a few answers, which was least on its way.
async fn clock_offset(connection: &mut ServerConnection) -> Result<Option<(f64, f64)>, Fault> {
    let mut best: Option<(f64, f64)> = None;
    for _ in 0..SAMPLES {
        let asked = own_clock();
        let reply = connection.ask(&["TIME"]).await?;
        let answered = own_clock();
        let parts: Vec<i64> = reply.parts().iter().filter_map(ServerReply::number).collect();
        let [seconds, micros] = parts[..] else {
            return Ok(None);
        };
        let shown =
            Duration::new(seconds.unsigned_abs(), 0) + Duration::from_micros(micros.unsigned_abs());
        let offset = shown.as_secs_f64() - f64::midpoint(asked, answered);
        let doubt = (answered - asked).abs() / 2.0;
        if best.is_none_or(|(_, least)| doubt < least) {
            best = Some((offset, doubt));
        }
    }
    Ok(best)
}

/// In seconds since 1970.
fn own_clock() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn certificate_left(connection: &ServerConnection) -> Option<i64> {
    let certificate = Certificate::from_der(connection.certificate()?).ok()?;
    let end = certificate.tbs_certificate().validity().not_after.to_unix_duration();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Some(seconds(end).saturating_sub(seconds(now)))
}

const SAMPLES: usize = 5;
