//! Carries the calls and replies of a handshake over a connection. Decides nothing; the handshake does.

use std::future::poll_fn;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::Shared;
use quorlock_protocol::Fault;

use super::connection::{Connection, Inquiry, Share};
use super::session::{ClientId, Facts, Handshake, Told};
use super::transport::Outgoing;
use crate::address::Address;

/// Logs in to `address` over a connection that has no other user yet. The server ends `predecessor`, a connection to it
/// that was given up.
pub(super) async fn log_in(
    share: &Share,
    address: &Address,
    predecessor: Option<&ClientId>,
) -> Result<Facts, Fault> {
    let mut outgoing = Outgoing::default();
    let handshake = Handshake::log_in(address, predecessor, &mut outgoing);
    let told = converse(share, handshake, outgoing).await?;
    share.connection().learn(told.known);
    Ok(told.facts)
}

/// Asks the server at the other end of a connection once more which one it is. It ends `predecessor`.
pub(super) async fn ask(share: &Share, predecessor: Option<&ClientId>) -> Result<Facts, Fault> {
    let mut outgoing = Outgoing::default();
    let handshake = Handshake::ask(predecessor, &mut outgoing);
    Ok(converse(share, handshake, outgoing).await?.facts)
}

/// The same; users that ask at the same time share one question.
pub(super) fn inquire(connection: &Arc<Connection>) -> Shared<Inquiry> {
    connection.inquiry(|| {
        let share = connection.share();
        async move { ask(&share, None).await }.boxed()
    })
}

async fn converse(
    share: &Share,
    mut handshake: Handshake,
    mut outgoing: Outgoing,
) -> Result<Told, Fault> {
    loop {
        share.request(&mut outgoing);
        let reply = poll_fn(|context| share.poll_reply(context)).await?;
        share.connection().note_reply();
        if let Some(told) = handshake.handle_reply(reply, &mut outgoing)? {
            return Ok(told);
        }
    }
}
