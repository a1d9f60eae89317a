//! What one server says of itself, its clock, and how far away it is. Owns the questions; judges
//! nothing.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quorlock::{Fault, FaultKind, Policy, ServerConnection, ServerReply};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use super::rights::{self, Rights, WRITE};
use crate::refusal::is_unwritable;
use crate::server_info::ServerInfo;

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
    /// Why it takes no writes now, in its own words.
    pub(super) refused_write: Option<String>,
    /// In how many seconds its certificate begins and ends to be valid.
    pub(super) certificate: Option<(i64, i64)>,
}

/// Asks the server, in few round trips: it may be far away. The keys of locks begin with `prefix`.
pub(super) async fn ask(connection: &mut ServerConnection, prefix: &str) -> Result<Facts, Fault> {
    let mut facts = Facts { certificate: certificate(connection), ..Facts::default() };
    let mut samples = Samples::default();
    let replies = samples.take(connection, FIRST).await?;
    let [_, info, fsync, eviction, write] = &replies[..] else {
        return Err(Fault::new(FaultKind::Garbled, "it gave other replies than were asked for"));
    };
    if info.refusal().is_some_and(|words| words.starts_with("NOAUTH")) {
        return Err(Fault::new(FaultKind::Unauthenticated, "the node wants a password"));
    }
    facts.learn(ServerInfo::of(info));
    facts.fsync = setting(fsync);
    facts.eviction = facts.eviction.or_else(|| setting(eviction));
    facts.refused_write = write.refusal().filter(|words| is_unwritable(words)).map(str::to_owned);
    // One that is near is asked some more, since a single round trip may have taken long by chance.
    while samples.trips.len() < SAMPLES && samples.spent() < SAMPLED_FOR {
        samples.take(connection, &[TIME]).await?;
    }
    facts.round_trip = samples.round_trip();
    facts.clock_offset = samples.clock_offset;
    // Last, since a connection that listens answers nothing else any more.
    facts.rights = rights::ask(connection, prefix).await?;
    Ok(facts)
}

impl Facts {
    /// Whether no lock with the default settings waits long enough for its answers.
    pub(super) fn is_too_far(&self) -> bool {
        self.round_trip > Policy::default().node_timeout()
    }

    /// Reads the reply to INFO.
    fn learn(&mut self, info: ServerInfo<'_>) {
        let field = |name: &str| info.field(name).map(str::to_owned);
        let number = |name: &str| info.number(name);
        self.compatible = field("redis_version");
        self.version = field("valkey_version").or_else(|| self.compatible.clone());
        let product =
            field("server_name").or_else(|| self.version.as_ref().map(|_| "redis".into()));
        self.product = product;
        self.role = field("role");
        self.run_id = info.run_id().map(str::to_owned);
        self.uptime = number("uptime_in_seconds").map(Duration::from_secs);
        self.has_log = number("aof_enabled").map(|it| it == 1);
        self.eviction = field("maxmemory_policy");
        self.used_memory = number("used_memory");
        self.max_memory = number("maxmemory");
        self.is_in_cluster = number("cluster_enabled") == Some(1);
    }
}

/// Reads the reply to CONFIG GET.
fn setting(reply: &ServerReply) -> Option<String> {
    reply.parts().get(1).and_then(ServerReply::text).map(str::to_owned)
}

/// What a few round trips have shown.
#[derive(Default)]
struct Samples {
    trips: Vec<Duration>,
    /// By the quickest of the answers, which was least on its way.
    clock_offset: Option<(f64, f64)>,
}

impl Samples {
    /// Makes these calls, of which the first is TIME, in one round trip.
    async fn take(
        &mut self,
        connection: &mut ServerConnection,
        calls: &[&[&str]],
    ) -> Result<Vec<ServerReply>, Fault> {
        let (began, asked) = (Instant::now(), own_clock());
        let replies = connection.ask_all(calls).await?;
        let answered = own_clock();
        self.trips.push(began.elapsed());
        let parts = replies.first().map_or(&[][..], ServerReply::parts);
        let parts: Vec<i64> = parts.iter().filter_map(ServerReply::number).collect();
        if let [seconds, micros] = parts[..] {
            let seconds = Duration::from_secs(seconds.unsigned_abs());
            let shown = seconds + Duration::from_micros(micros.unsigned_abs());
            let offset = shown.as_secs_f64() - f64::midpoint(asked, answered);
            let doubt = (answered - asked).abs() / 2.0;
            if self.clock_offset.is_none_or(|(_, least)| doubt < least) {
                self.clock_offset = Some((offset, doubt));
            }
        }
        Ok(replies)
    }

    fn spent(&self) -> Duration {
        self.trips.iter().sum()
    }

    /// What a quarter of them undercuts: a machine that is busy makes some of them long.
    fn round_trip(&self) -> Duration {
        let mut trips = self.trips.clone();
        trips.sort();
        trips.get(trips.len().saturating_sub(1) / 4).copied().unwrap_or_default()
    }
}

/// In seconds since 1970.
fn own_clock() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn certificate(connection: &ServerConnection) -> Option<(i64, i64)> {
    let certificate = Certificate::from_der(connection.certificate()?).ok()?;
    let validity = certificate.tbs_certificate().validity();
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let now = seconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
    let times = [validity.not_before, validity.not_after];
    let [begins, ends] = times.map(|time| seconds(time.to_unix_duration()).saturating_sub(now));
    Some((begins, ends))
}

const TIME: &[&str] = &["TIME"];
const FIRST: &[&[&str]] = &[
    TIME,
    &["INFO"],
    &["CONFIG", "GET", "appendfsync"],
    &["CONFIG", "GET", "maxmemory-policy"],
    WRITE,
];
const SAMPLES: usize = 6;
/// No further sample is taken after this time.
const SAMPLED_FOR: Duration = Duration::from_millis(250);
