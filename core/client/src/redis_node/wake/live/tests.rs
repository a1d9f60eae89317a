//! Tests an open wake connection against a server that says exactly what a test wants.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;

use super::*;

#[test]
fn a_message_counts_that_comes_together_with_the_end_of_the_connection() {
    let (address, has_said_all) = server_that_ends_after_a_test();
    let test = async {
        let mut live = Live::open(&address, Arc::default()).await.unwrap();
        live.subscribe(1);
        // Between two of these calls nothing is read, so that the connection finds all at once.
        while has_said_all.recv_timeout(Duration::from_millis(5)).is_err() {
            assert!(live.next().now_or_never().is_none_or(|it| matches!(it, Event::Nothing)));
        }
        let (mut has_heard, mut is_judged) = (false, false);
        loop {
            match live.next().await {
                Event::Push(Push::Test { process: 1 }) => {
                    live.note_heard(1);
                    has_heard = true;
                }
                Event::Tested(1) => {
                    assert!(live.judge_test(1), "the message has arrived");
                    is_judged = true;
                }
                Event::Lost => break,
                Event::Nothing => {}
                _ => panic!("nothing else was said"),
            }
        }
        assert!(has_heard && is_judged);
        assert_eq!(live.lacks.describe(), None);
    };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let limited = async { tokio::time::timeout(Duration::from_secs(20), test).await };
    runtime.block_on(limited).expect("the connection ends");
}

/// A server that answers a connection's test message and the call behind it, with the message itself, in one piece
/// with the end of the connection. The receiver is told once that was sent.
fn server_that_ends_after_a_test() -> (Address, mpsc::Receiver<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = Address::tcp("127.0.0.1", listener.local_addr().unwrap().port()).unwrap();
    let (told, has_said_all) = mpsc::channel();
    thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut from = BufReader::new(client.try_clone().unwrap());
        let mut said = Vec::new();
        loop {
            let words = read_call(&mut from);
            match words[0].as_str() {
                "HELLO" => client.write_all(b"%1\r\n+proto\r\n:3\r\n").unwrap(),
                "SUBSCRIBE" => said.extend(push("subscribe", &words[1], ":1\r\n")),
                "PUBLISH" => {
                    said.extend(push("message", &words[1], "$0\r\n\r\n"));
                    said.extend(b":1\r\n");
                }
                _ if said.is_empty() => client.write_all(b"+OK\r\n").unwrap(),
                _ => break said.extend(b"*0\r\n"),
            }
        }
        client.write_all(&said).unwrap();
        drop((client, from));
        told.send(()).unwrap();
    });
    (address, has_said_all)
}

fn push(kind: &str, channel: &str, last: &str) -> Vec<u8> {
    let (kind_length, channel_length) = (kind.len(), channel.len());
    format!(">3\r\n${kind_length}\r\n{kind}\r\n${channel_length}\r\n{channel}\r\n{last}").into()
}

fn read_call(from: &mut BufReader<TcpStream>) -> Vec<String> {
    let count = read_number(from);
    let mut words = Vec::new();
    for _ in 0..count {
        let mut word = vec![0; read_number(from) + 2];
        from.read_exact(&mut word).unwrap();
        words.push(String::from_utf8_lossy(&word[..word.len() - 2]).into_owned());
    }
    words
}

/// The number of a line such as `*2` or `$3`.
fn read_number(from: &mut BufReader<TcpStream>) -> usize {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line[1..].trim().parse().unwrap()
}
