//! Plays random games on a server's queue and on the protocol's, which must say and call the same. Turns end when the
//! game says so: the scripts are given times that never pass by themselves.

use quorlock_protocol::WaitQueue;
use redis::PubSub;

use super::*;
use crate::redis_node::session::Script as LockScript;
use crate::redis_node::wake::Script;

/// A waiter of each of three processes, and a second one of the first; the last process does not listen.
const WAITERS: [Waiter; 4] = [
    Waiter { process: 1, number: 0x10 },
    Waiter { process: 1, number: 0x11 },
    Waiter { process: 2, number: 0x20 },
    Waiter { process: 3, number: 0x30 },
];
const DEAF: u64 = 3;
const KEY: &str = "r";

struct Game<'a> {
    server: &'a Server,
    news: PubSub<'a>,
    queue: WaitQueue,
    is_held: bool,
    now: Moment,
    /// What the protocol's queue has told.
    told: Vec<String>,
}

#[test]
fn a_server_says_and_calls_what_the_protocols_queue_does() {
    let server = Server::start();
    for seed in 1..=60 {
        let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        let mut news = connection.as_pubsub();
        for process in [1, 2] {
            news.subscribe(format!("quorlock:wake:{process:016x}")).unwrap();
        }
        news.subscribe("end").unwrap();
        server.ask().call(&["FLUSHALL"]);
        let (queue, now) = (WaitQueue::default(), Moment::from_millis(0));
        let mut game = Game { server: &server, news, queue, is_held: false, now, told: Vec::new() };
        let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed);
        for step in 0..50 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let whose = usize::try_from(random >> 8 & 3).unwrap();
            let words = (seed, step, random % 8, whose);
            game.play(random % 8, place(whose))
                .unwrap_or_else(|error| panic!("{words:?}: {error}"));
        }
    }
}

/// Two of them came at the same time.
fn place(whose: usize) -> Place {
    let arrived = [1_700_000_000_000_002, 1_700_000_000_000_001, 1_700_000_000_000_001, 5][whose];
    Place { arrived, waiter: WAITERS[whose] }
}

impl Game<'_> {
    fn play(&mut self, step: u64, place: Place) -> Result<(), String> {
        let (member, arrived) = (place.waiter.to_string(), place.arrived.to_string());
        let told = &mut self.told;
        let mut tell = |waiter: Waiter, news| {
            let word = match news {
                News::Freed(_) => "freed",
                News::Next => "next",
                News::First => "first",
                News::Ping => "ping",
                other => panic!("{other:?}"),
            };
            if waiter.process != DEAF {
                told.push(format!("{word} {:08x} {KEY}", waiter.number));
            }
            waiter.process != DEAF
        };
        let (expected, got) = match step {
            0..=2 => {
                let rank = self.queue.look(self.now, place, !self.is_held, &mut tell);
                let rank = rank.map_or(-1, i64::from);
                let got = self.call(Script::Enqueue.text(), &[&member, &arrived]);
                let (free, rest) = got.split_once(' ').unwrap();
                let own = rest.split_once(' ').unwrap().0;
                (format!("{} {rank}", u8::from(!self.is_held)), format!("{free} {own}"))
            }
            3 => {
                self.queue.leave(self.now, place, !self.is_held, &mut tell);
                ("1".to_owned(), self.call(Script::Leave.text(), &[&member]))
            }
            4 => {
                self.is_held = true;
                self.server.ask().call(&["SET", KEY, "holder", "PX", "100000"]);
                (String::new(), String::new())
            }
            5 => {
                let code = if self.is_held { "1" } else { "2" };
                self.is_held = false;
                self.queue.call(self.now, &mut tell);
                let got = self.call(LockScript::RevokeAndCall.text(), &["holder"]);
                (format!("{code} 0 -2 0"), got)
            }
            6 => {
                let is_behind = !self.is_held && self.queue.is_behind(self.now, place, &mut tell);
                let code = if self.is_held || is_behind { "3" } else { "1" };
                let grant = ["", "", "fair", "100000", &member, &arrived];
                let got = self.call(LockScript::GrantFair.text(), &grant);
                self.server.ask().call(&["EVAL", IF_FAIR, "1", KEY]);
                (code.to_owned(), got.split(' ').next().unwrap().to_owned())
            }
            _ => {
                let (time, passes) = if place.waiter.number == 0x10 {
                    (WaitQueue::SILENT, SILENCE)
                } else {
                    (WaitQueue::TURN, END_TURNS)
                };
                self.now = self.now + time;
                self.server.ask().call(&["EVAL", END_TURNS, "1", "quorlock:alive:{r}"]);
                self.server.ask().call(&["EVAL", passes, "1", "quorlock:alive:{r}"]);
                let count = self.queue.count(self.now).to_string();
                (count, self.call(Script::CountWaiters.text(), &[]))
            }
        };
        let news = self.heard();
        if (&expected, &self.told) == (&got, &news) {
            self.told.clear();
            return Ok(());
        }
        Err(format!("{expected} {:?}, and the server: {got} {news:?}", self.told))
    }

    fn call(&self, script: &str, arguments: &[&str]) -> String {
        let text = script.replace(
            "LIFE, TURN, MOST, STEP, SILENT = 10000, 50, 10000, 16, 1000",
            "LIFE, TURN, MOST, STEP, SILENT = 10000000, 5000, 10000, 16, 1000000",
        );
        assert_ne!(text, script, "the times stand there");
        let keys = ["3", KEY, "quorlock:queue:{r}", "quorlock:alive:{r}"];
        self.server.ask().call(&[&["EVAL", text.as_str()], &keys[..], arguments].concat())
    }

    /// What the listening processes have heard.
    fn heard(&mut self) -> Vec<String> {
        self.server.ask().call(&["PUBLISH", "end", ""]);
        let mut heard = Vec::new();
        loop {
            let message = self.news.get_message().unwrap();
            if message.get_channel_name() == "end" {
                return heard;
            }
            heard.push(message.get_payload().unwrap());
        }
    }
}

/// Takes back what a fair grant has taken.
const IF_FAIR: &str = "if redis.call('GET', KEYS[1]) == 'fair' then redis.call('DEL', KEYS[1]) end";
/// Ends the places of those that were called.
const END_TURNS: &str = "local time = redis.call('TIME')
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', time[1] * 1000 + 100000)) do
  redis.call('ZADD', KEYS[1], 1, member)
end";
/// No waiter has renewed its place for a while.
const SILENCE: &str = "for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  redis.call('ZINCRBY', KEYS[1], -1000000, member)
end";
