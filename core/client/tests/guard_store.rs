//! Tests that a look at a real server and at `GuardStore` give the same result, so that models of
//! nodes, which use `GuardStore`, are right.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use quorlock_protocol::{
    CanaryKey, GuardStore, HoldingNote, LeadNote, Notes, SightingNote, Writing,
};
use support::ask::Ask;
use support::server::Server;

const SCRIPT: &str = include_str!("../src/scripts/checkup.lua");
const KEYS: [&str; 2] = ["quorlock:{node}:canary", "quorlock:{node}:notes"];

/// Draws numbers that look random, the same in each run.
struct Dice(u64);

impl Dice {
    fn draw(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn millis(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.draw(most))
    }

    fn notes(&mut self) -> Notes {
        let holding = |dice: &mut Self| HoldingNote {
            name: format!("{}{}", ["m", "all:"][usize::from(dice.draw(9) == 0)], dice.draw(80))
                .into(),
            version: dice.draw(3),
            key_ttl: dice.millis(90_000),
            began: dice.millis(90_000),
            left: dice.millis(300) + Duration::from_millis(1),
        };
        let sighting = |dice: &mut Self| SightingNote {
            id: dice.draw(80),
            count: dice.draw(9),
            lead: (dice.draw(3) > 0).then(|| LeadNote {
                most_micros: i64::try_from(dice.draw(2000)).unwrap() - 1000,
                age_micros: 0,
                anew: dice.draw(9) == 0,
            }),
        };
        let holdings = (0..self.draw(6)).map(|_| holding(self)).collect();
        let sightings = (0..self.draw(6)).map(|_| sighting(self)).collect();
        Notes { holdings, sightings }
    }
}

/// Has the server run the script; its clock then.
fn look(ask: &mut Ask, writing: Option<&Writing>, left: &Notes) -> u64 {
    let (expected, canary) = writing.map_or((String::new(), String::new()), |writing| {
        (writing.expected.as_deref().unwrap_or_default().to_owned(), writing.canary.to_string())
    });
    let mut words: Vec<String> =
        ["EVAL", SCRIPT, "2", KEYS[0], KEYS[1], "600000"].map(str::to_owned).into();
    words.extend([expected, canary, left.holdings.len().to_string()]);
    for note in &left.holdings {
        let times = [note.key_ttl, note.began, note.left].map(|time| time.as_millis().to_string());
        words.extend([note.name.to_string(), note.version.to_string()]);
        words.extend(times);
    }
    for note in &left.sightings {
        let most = note.lead.map_or_else(String::new, |lead| {
            format!("{}{}", if lead.anew { "=" } else { "" }, lead.most_micros)
        });
        words.extend([note.id.to_string(), note.count.to_string(), most]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let reply = ask.call(&words);
    let behind_canary = if reply.starts_with("(nil)") { 1 } else { CANARY_WORDS };
    let time = reply.split(' ').nth(behind_canary).expect("a time");
    time.parse().unwrap_or_else(|_| panic!("{reply}"))
}

/// What the server keeps, by field; a sighting without a lead without its time, which means nothing.
fn kept(ask: &mut Ask) -> BTreeMap<String, String> {
    let fields = ask.call(&["HKEYS", KEYS[1]]);
    let mut kept = BTreeMap::new();
    for field in fields.split(' ').filter(|field| !field.is_empty()) {
        let value = ask.call(&["HGET", KEYS[1], field]);
        let value = value.split_once("  ").map_or(value.as_str(), |(count, _)| count).to_owned();
        kept.insert(field.to_owned(), value);
    }
    kept
}

/// The same of the store, from what it tells when its clock shows `micros`.
fn told(notes: &Notes, micros: u64) -> BTreeMap<String, String> {
    let now = micros / 1000;
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap();
    let holdings = notes.holdings.iter().map(|note| {
        let (began, until) = (now - millis(note.began), now + millis(note.left));
        let value = format!("{} {} {began} {until}", note.version, millis(note.key_ttl));
        (format!("h:{}", note.name), value)
    });
    let sightings = notes.sightings.iter().map(|note| {
        let lead =
            note.lead.map(|lead| format!(" {} {}", lead.most_micros, micros - lead.age_micros));
        (format!("s:{}", note.id), format!("{}{}", note.count, lead.unwrap_or_default()))
    });
    holdings.chain(sightings).collect()
}

#[test]
fn a_server_keeps_what_the_store_keeps() {
    let server = Server::start();
    let (mut ask, mut dice, mut store) = (server.ask(), Dice(7), GuardStore::default());
    for round in 0..400_u64 {
        if dice.draw(100) == 0 {
            assert_eq!(ask.call(&["FLUSHALL"]), "OK");
            store = GuardStore::default();
        }
        let expected = if dice.draw(4) == 0 { None } else { store.canary.clone() };
        let canary = format!("2 {round} run lineage 0 {round} 10000 60000 forgot 5");
        let writing = (dice.draw(3) == 0).then(|| Writing { expected, canary: canary.into() });
        let left = dice.notes();
        let micros = look(&mut ask, writing.as_ref(), &left);
        let (canary, notes) = store.look(writing.as_ref(), &left, micros);
        let stands = ask.call(&["GET", KEYS[0]]);
        assert_eq!(canary.text().as_deref().unwrap_or("(nil)"), stands, "round {round}");
        assert!(
            canary == CanaryKey::Absent || matches!(canary, CanaryKey::Present(_)),
            "{canary:?}"
        );
        let (kept, told) = (kept(&mut ask), told(&notes, micros));
        let differs = |(field, value): &(&String, &String)| told.get(*field) != Some(*value);
        let different: Vec<_> = kept.iter().filter(differs).collect();
        assert!(
            different.is_empty() && kept.len() == told.len(),
            "round {round}: {different:?} {left:?}"
        );
    }
}

/// Of a canary, with the node's clock.
const CANARY_WORDS: usize = 11;
