//! Parses the settings of a golden schedule. Owns their defaults.

use std::time::Duration;

use quorlock_protocol::{Policy, Quorum};

use super::words::number;

/// What the head of a case says.
#[expect(clippy::struct_excessive_bools, reason = "each is a line of a schedule")]
#[derive(Clone)]
pub(super) struct Settings {
    nodes: u64,
    ttl: u64,
    node_timeout: u64,
    drift_factor: f64,
    retry_limit: Option<u64>,
    retry_delay: u64,
    timeout: Option<u64>,
    patience: u64,
    fencing: bool,
    max_hold: u64,
    lock_delay: u64,
    min_hold: u64,
    max_ttl: Option<u64>,
    pub(super) guards: bool,
    /// Whether acquisitions wait in the nodes' queues.
    pub(super) queues: bool,
    fair: bool,
    pub(super) wall: u64,
    /// What the clocks of the nodes show, as far as the client knows them.
    pub(super) clocks: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            nodes: 3,
            ttl: 1000,
            node_timeout: 50,
            drift_factor: 0.01,
            retry_limit: Some(0),
            retry_delay: 100,
            timeout: None,
            patience: 400,
            fencing: true,
            max_hold: 86_400_000,
            lock_delay: 0,
            min_hold: 0,
            max_ttl: None,
            guards: false,
            queues: false,
            fair: false,
            wall: 1000,
            clocks: None,
        }
    }
}

impl Settings {
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let optional = || {
            if value == "none" { Ok(None) } else { number(value).map(Some) }
        };
        match name {
            "nodes" => self.nodes = number(value)?,
            "ttl" => self.ttl = number(value)?,
            "node_timeout" => self.node_timeout = number(value)?,
            "drift_factor" => self.drift_factor = value.parse().map_err(|_| "no number")?,
            "retry_limit" => self.retry_limit = optional()?,
            "retry_delay" => self.retry_delay = number(value)?,
            "timeout" => self.timeout = optional()?,
            "patience" => self.patience = number(value)?,
            "fencing" => self.fencing = value == "on",
            "max_hold" => self.max_hold = number(value)?,
            "lock_delay" => self.lock_delay = number(value)?,
            "min_hold" => self.min_hold = number(value)?,
            "max_ttl" => self.max_ttl = optional()?,
            "wall" => self.wall = number(value)?,
            "guards" => self.guards = value == "on",
            "queues" => self.queues = value == "on",
            "fair" => self.fair = value == "on",
            "clocks" => self.clocks = Some(number(value)?),
            "needs" => {}
            _ => return Err(format!("no setting is called {name}")),
        }
        Ok(())
    }

    /// The policy of it; `ttl` where an extension brings its own.
    pub(super) fn policy(&self, ttl: Option<u64>) -> Result<Policy, String> {
        let millis = Duration::from_millis;
        let limit = self.retry_limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
        let policy = Policy::builder()
            .ttl(millis(ttl.unwrap_or(self.ttl)))
            .node_timeout(millis(self.node_timeout))
            .drift_factor(self.drift_factor)
            .retry_limit(limit)
            .retry_delay(millis(self.retry_delay))
            .retry_jitter(Duration::ZERO)
            .timeout(self.timeout.map(millis))
            .unreachable_timeout(millis(self.patience))
            .fencing(self.fencing)
            .max_hold(millis(self.max_hold))
            .lock_delay(millis(self.lock_delay))
            .min_hold(millis(self.min_hold))
            .max_ttl(self.max_ttl.map(millis))
            .fair(self.fair)
            .auto_extend(true);
        policy.build().map_err(|problem| problem.to_string())
    }

    pub(super) fn nodes(&self) -> usize {
        usize::try_from(self.nodes).unwrap_or(0)
    }

    pub(super) fn quorum(&self) -> Quorum {
        Quorum::of(self.nodes())
    }
}
