//! Tests random histories: nodes that forget, come back with old data, are cut off or have their
//! clocks set, under random clients. There are never two holders, and no quarantine is longer than
//! promised.

use quorlock_protocol::Ruling;

use crate::guard_world::{Cluster, PretendNode, Watcher, ttl};

/// A random source that needs nothing: a history is walked again by its number.
struct Dice(u64);

impl Dice {
    fn draw(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (it ^ (it >> 31)) % sides
    }

    fn below(&mut self, sides: usize) -> usize {
        usize::try_from(self.draw(u64::try_from(sides).unwrap())).unwrap()
    }
}

/// What may happen in a history.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a kind of its own")]
struct Kind {
    /// How long locks are asked for, in milliseconds.
    keeps: &'static [u64],
    /// Whether any number of nodes may forget; otherwise a majority always remembers.
    any_forget: bool,
    comes_back: bool,
    cuts: bool,
    steps: bool,
    newcomers: bool,
    max_ttl: Option<u64>,
}

struct History {
    seed: u64,
    dice: Dice,
    kind: Kind,
    cluster: Cluster,
    clients: Vec<Client>,
    snapshots: Vec<Option<PretendNode>>,
    /// When each node was struck last.
    struck: Vec<Option<u64>>,
    trace: Vec<String>,
    won: u32,
}

struct Client {
    watcher: Watcher,
    key_ttl: u64,
    /// Until when it trusts its lock, by true time.
    valid: Option<u64>,
    next_look: u64,
}

impl Drop for History {
    /// Tells how a walk ended that the test itself has broken off.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}\nGUARD_SEED={}", self.trace.join("\n"), self.seed);
        }
    }
}

impl History {
    fn begin(seed: u64, kind: Kind) -> Self {
        let mut dice = Dice(seed);
        let nodes = if dice.draw(4) == 0 { 5 } else { 3 };
        let cluster = Cluster::fresh(nodes);
        let (snapshots, struck) = (vec![None; nodes], vec![None; nodes]);
        let (clients, trace) = (Vec::new(), Vec::new());
        let mut history =
            Self { seed, dice, kind, cluster, clients, snapshots, struck, trace, won: 0 };
        for _ in 0..3 {
            let client = history.newcomer();
            history.clients.push(client);
        }
        history
    }

    fn newcomer(&mut self) -> Client {
        let key_ttl = self.kind.keeps[self.dice.below(self.kind.keeps.len())];
        let mut watcher = self.cluster.client(|it| {
            let most = self.kind.max_ttl.map(std::time::Duration::from_millis);
            ttl(key_ttl)(it).max_ttl(most)
        });
        if self.kind.cuts && self.dice.draw(3) == 0 {
            let node = self.dice.below(self.cluster.nodes.len());
            watcher.cut_off[node] = true;
        }
        watcher.look_around(&mut self.cluster);
        let next_look = self.cluster.now + 10_000;
        Client { watcher, key_ttl, valid: None, next_look }
    }

    fn walk(&mut self, steps: usize) -> Result<(), String> {
        for _ in 0..steps {
            self.step();
            self.check()?;
        }
        Ok(())
    }

    fn step(&mut self) {
        let (nodes, clients) = (self.cluster.nodes.len(), self.clients.len());
        let (node, client) = (self.dice.below(nodes), self.dice.below(clients));
        match self.dice.draw(20) {
            0..6 => self.pass(),
            6..11 => self.lock(client),
            11..13 => self.unlock(client),
            13 => {
                self.note(format!("client {client} looks around"));
                self.clients[client].watcher.look_around(&mut self.cluster);
            }
            14 => self.strike(node, |history, node| history.cluster.restart(node), "restarts"),
            15 => {
                self.strike(
                    node,
                    |history, node| history.cluster.nodes[node].flush(),
                    "is flushed",
                );
            }
            16 => self.come_back(node),
            17 if self.kind.cuts => {
                let cut = &mut self.clients[client].watcher.cut_off[node];
                *cut = !*cut;
                let words = format!("client {client} and node {node}: cut {cut}");
                self.note(words);
                self.clients[client].watcher.look(&mut self.cluster, node);
                self.clients[client].watcher.follow_up(&mut self.cluster);
            }
            18 if self.kind.newcomers => {
                let newcomer = self.newcomer();
                self.note(format!(
                    "client {client} ends, client {} comes in its place",
                    newcomer.watcher.id
                ));
                self.clients[client] = newcomer;
            }
            19 if self.kind.steps => self.strike(
                node,
                |history, node| {
                    let by = 500 + i64::try_from(history.dice.draw(30_000)).unwrap();
                    history.cluster.nodes[node].ahead += by;
                },
                "has its clock set forward",
            ),
            _ => {}
        }
    }

    fn pass(&mut self) {
        let lengths = [50, 700, 2_000, 5_000, 9_000, 11_000];
        let until = self.cluster.now + lengths[self.dice.below(lengths.len())];
        while self.cluster.now < until {
            let next = self.clients.iter().map(|client| client.next_look).min();
            self.cluster.now = next.unwrap_or(until).clamp(self.cluster.now, until);
            for client in &mut self.clients {
                if client.next_look <= self.cluster.now {
                    client.watcher.look_around(&mut self.cluster);
                    let is_shut = client
                        .watcher
                        .rulings
                        .iter()
                        .any(|it| !matches!(it, Some(Ruling::Open(_))));
                    client.next_look = self.cluster.now + if is_shut { 1_000 } else { 10_000 };
                }
                if client.valid.is_some_and(|until| until <= self.cluster.now) {
                    client.valid = None;
                }
            }
        }
        self.note(format!("time is {}", self.cluster.now));
    }

    fn lock(&mut self, client: usize) {
        if self.clients[client].valid.is_some() {
            return;
        }
        let Client { watcher, key_ttl, .. } = &mut self.clients[client];
        let valid = watcher.lock(&mut self.cluster, *key_ttl);
        let (key_ttl, view) = (*key_ttl, watcher.view());
        if valid.is_none() {
            let over = self.cluster.now + key_ttl;
            self.clients[client].watcher.ends(&mut self.cluster, key_ttl, over);
        }
        self.won += u32::from(valid.is_some());
        self.clients[client].valid = valid;
        self.note(format!("client {client} asks for {key_ttl} ms and sees {view}: {valid:?}"));
    }

    fn unlock(&mut self, client: usize) {
        let key_ttl = self.clients[client].key_ttl;
        if self.clients[client].valid.take().is_some() {
            self.clients[client].watcher.unlock(&mut self.cluster);
            let is_cut = self.clients[client].watcher.cut_off.contains(&true);
            let over = self.cluster.now + if is_cut { key_ttl } else { 0 };
            self.clients[client].watcher.ends(&mut self.cluster, key_ttl, over);
            self.note(format!("client {client} releases"));
        }
    }

    fn come_back(&mut self, node: usize) {
        if !self.kind.comes_back {
            return;
        }
        match self.dice.draw(4) {
            0 | 1 => {
                self.snapshots[node] = Some(self.cluster.nodes[node].clone());
                self.note(format!("a snapshot of node {node} is taken"));
            }
            how => {
                let Some(old) = self.snapshots[node].clone() else { return };
                let words = if how == 2 {
                    "restarts with old data"
                } else {
                    "has old data in the same run"
                };
                self.strike(
                    node,
                    |history, node| {
                        let site = &mut history.cluster.nodes[node];
                        site.take_back(&old);
                        site.run += u32::from(how == 2);
                        // As a replica that became a master again.
                        site.lineage += u32::from(how == 3);
                    },
                    words,
                );
            }
        }
    }

    /// Strikes a node, if that leaves a majority that was not struck within the longest lock.
    fn strike(&mut self, node: usize, how: impl FnOnce(&mut Self, usize), words: &str) {
        let now = self.cluster.now;
        let longest = self.kind.keeps.iter().max().unwrap() * 2 + 40_000;
        let is_recent = |at: &Option<u64>| at.is_some_and(|at| now - at < longest);
        let others = self.struck.iter().enumerate().filter(|(it, at)| *it != node && is_recent(at));
        let is_spared = others.count() + 1 > (self.struck.len() - 1) / 2;
        if is_spared && !self.kind.any_forget {
            return;
        }
        self.note(format!("node {node} {words}"));
        self.struck[node] = Some(now);
        let run = self.cluster.nodes[node].run;
        how(self, node);
        if self.cluster.nodes[node].run != run {
            // Every connection broke.
            for client in &mut self.clients {
                client.watcher.look(&mut self.cluster, node);
                client.watcher.follow_up(&mut self.cluster);
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        let now = self.cluster.now;
        let holders =
            self.clients.iter().enumerate().filter(|(_, it)| it.valid.is_some_and(|it| it > now));
        let holders: Vec<_> = holders.map(|(client, _)| client).collect();
        if holders.len() > 1 {
            Err(format!("clients {holders:?} hold the lock at {now}"))
        } else {
            Ok(())
        }
    }

    fn note(&mut self, words: String) {
        self.trace.push(words);
    }
}

fn search(name: &str, kind: Kind, worlds: u64) -> u32 {
    let first = std::env::var("GUARD_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = first.map_or(1..=worlds, |seed| seed..=seed);
    let mut won = 0;
    for seed in seeds {
        let mut history = History::begin(seed, kind);
        if let Err(breach) = history.walk(120) {
            panic!("{name}: {breach}");
        }
        won += history.won;
    }
    won
}

const SHORT: Kind = Kind {
    keeps: &[10_000],
    any_forget: true,
    comes_back: false,
    cuts: false,
    steps: false,
    newcomers: true,
    max_ttl: None,
};

fn worlds() -> u64 {
    std::env::var("GUARD_WORLDS").ok().and_then(|count| count.parse().ok()).unwrap_or(40)
}

#[test]
fn short_locks_survive_whatever_forgets() {
    assert!(search("short", SHORT, worlds()) > 5 * u32::try_from(worlds()).unwrap());
    search("short, cut off", Kind { cuts: true, ..SHORT }, worlds());
}

#[test]
fn short_locks_survive_what_comes_back() {
    let kind = Kind { comes_back: true, ..SHORT };
    search("back", kind, worlds());
    search("back, cut off", Kind { cuts: true, any_forget: false, ..kind }, worlds());
}

#[test]
fn long_locks_survive_a_minority_that_forgets() {
    let kind = Kind { keeps: &[10_000, 60_000, 120_000], any_forget: false, ..SHORT };
    search("long", kind, worlds());
    search("long, back", Kind { comes_back: true, ..kind }, worlds());
    search("long, cut off", Kind { cuts: true, ..kind }, worlds());
}

#[test]
fn long_locks_survive_any_that_forget_where_max_ttl_is_set() {
    let kind = Kind { keeps: &[10_000, 60_000], max_ttl: Some(60_000), ..SHORT };
    search("max_ttl", kind, worlds());
    search("max_ttl, cut off", Kind { cuts: true, ..kind }, worlds());
}

#[test]
fn locks_survive_a_minority_whose_clocks_are_set() {
    let kind = Kind { steps: true, any_forget: false, ..SHORT };
    search("steps", kind, worlds());
    search("steps, cut off", Kind { cuts: true, ..kind }, worlds());
    search("steps, long", Kind { keeps: &[10_000, 60_000], ..kind }, worlds());
}
