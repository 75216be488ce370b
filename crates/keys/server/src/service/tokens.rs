//! Enrolment tokens: creating, listing and withdrawing them.
//!
//! Invariant E2: the store holds only the hash of a token.
//!
//! Must not: keep or log a token.

use serde::Serialize;
use strongroom_crypto::random32;
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::Error;
use zeroize::Zeroizing;

use super::checks::check_name;
use super::operation::Plan;
use super::peer::Peer;
use super::state::Service;
use crate::now;
use crate::paths::{TOKENS, key_path, token_path};
use crate::records::{Key, Role, Token};
use crate::store::Change;

/// The first characters of every token.
const TOKEN_PREFIX: &str = "strongroom-token-1-";
/// The longest time for which a token is valid, in seconds.
const TOKEN_MAX_S: u64 = 30 * 86_400;
/// The most keys that one token grants.
const TOKEN_KEYS_MAX: usize = 64;
/// Tokens that are read from the store at once.
const PAGE: usize = 500;

/// A token that is to be created.
pub struct NewToken {
    /// The client's name.
    pub node: String,
    /// Its role.
    pub role: Role,
    /// Keys that are granted to it when it is enrolled.
    pub keys: Vec<String>,
    /// Whether it may create keys.
    pub may_create: bool,
    /// Whether it may destroy the keys that it creates and those that the token grants.
    pub may_destroy: bool,
    /// Whether a node that is enrolled already keeps its rights.
    pub keeps_rights: bool,
    /// For how many seconds the token is valid.
    pub expires_s: u64,
}

/// A token that was not used yet. The token itself, which has 32 random bytes, cannot be derived
/// from it.
#[derive(Clone, Debug, Serialize)]
pub struct TokenInfo {
    /// SHA-256 of the token.
    pub id: String,
    /// The name that the client will have.
    pub node: String,
    /// Its role.
    pub role: Role,
    /// Keys that are granted to it when it is enrolled.
    pub keys: Vec<String>,
    /// Whether it may create keys.
    pub may_create: bool,
    /// Whether it may destroy keys.
    pub may_destroy: bool,
    /// When the token expires, in seconds since the Unix epoch.
    pub expires: u64,
}

impl Service {
    /// Creates an enrolment token and returns its text, of which the store keeps only the hash. The
    /// audit log gets a row.
    ///
    /// # Errors
    /// SR-8422 unless the client is an administrator; SR-8454 for a key that does not exist;
    /// SR-8429 for an invalid name, more than 64 keys, a validity that is not 1 second to 30 days,
    /// or rights or keys for another role than node; as for every request SR-8420 without a
    /// certificate, SR-8421 for one that is not enrolled, SR-8435 when the store fails, SR-8442
    /// when others keep changing the record.
    pub fn create_token(&self, peer: &Peer, new: &NewToken) -> Result<Zeroizing<String>, Error> {
        let refused = |what: &str| Err(Error::new(&code::SERVER_REQUEST, what));
        check_name(&new.node)?;
        if !(1..=TOKEN_MAX_S).contains(&new.expires_s) {
            return refused("expires_seconds: 1 to 30 days");
        }
        if new.keys.len() > TOKEN_KEYS_MAX {
            return refused("keys: at most 64");
        }
        if new.role != Role::Node && (new.may_create || new.may_destroy || !new.keys.is_empty()) {
            return refused("only nodes get keys");
        }
        let random = Zeroizing::new(random32()?);
        let token = Zeroizing::new(format!("{TOKEN_PREFIX}{}", &*Zeroizing::new(hex(&*random))));
        self.run(peer, "token", &new.node, |client| {
            client.must_be(&[Role::Admin])?;
            for name in &new.keys {
                check_name(name)?;
                self.read::<Key>(&key_path(name))?
                    .require_or(&code::SERVER_NO_KEY, name)?;
            }
            let record = Token {
                node: new.node.clone(),
                role: new.role,
                keys: new.keys.clone(),
                may_create: new.may_create,
                may_destroy: new.may_destroy,
                keeps_rights: new.keeps_rights,
                expires: now().saturating_add(new.expires_s),
            };
            let mut event = client.event("token", &new.node);
            event.detail = new.role.name().to_owned();
            let changes = vec![self.put(&token_path(&token), &record)?];
            Ok(Plan {
                changes,
                events: vec![event],
                ..Plan::read(())
            })
        })?;
        Ok(token)
    }

    /// Returns at most `limit` tokens that were not used, with ids greater than `after`, in order.
    /// Expired ones are among them until the next sweep.
    ///
    /// # Errors
    /// SR-8422 unless the client is a viewer or an administrator; as for every request SR-8420
    /// without a certificate, SR-8421 for one that is not enrolled, SR-8435 when the store fails.
    pub fn tokens(&self, peer: &Peer, after: &str, limit: usize) -> Result<Vec<TokenInfo>, Error> {
        self.run(peer, "tokens", "", |client| {
            client.must_be(&[Role::Admin, Role::Viewer])?;
            let page = self.list::<Token>(TOKENS, after, limit)?.into_iter();
            let infos = page.map(|(id, token)| TokenInfo {
                id,
                node: token.node,
                role: token.role,
                keys: token.keys,
                may_create: token.may_create,
                may_destroy: token.may_destroy,
                expires: token.expires,
            });
            Ok(Plan::read(infos.collect()))
        })
    }

    /// Withdraws a token that was not used. The audit log gets a row.
    ///
    /// # Errors
    /// SR-8422 unless the client is an administrator; SR-8459 when there is no unused token of that
    /// id; SR-8429 for an invalid id; as for every request SR-8420 without a certificate, SR-8421
    /// for one that is not enrolled, SR-8435 when the store fails, SR-8442 when others keep
    /// changing the record.
    pub fn withdraw_token(&self, peer: &Peer, id: &str) -> Result<(), Error> {
        check_name(id)?;
        self.run(peer, "withdraw", id, |client| {
            client.must_be(&[Role::Admin])?;
            let path = format!("{TOKENS}{id}");
            let (token, guard) = self
                .read::<Token>(&path)?
                .require_or(&code::SERVER_NO_TOKEN, id)?;
            let mut event = client.event("withdraw", &token.node);
            event.detail = token.role.name().to_owned();
            Ok(Plan {
                value: (),
                guards: vec![guard],
                changes: vec![Change::Delete { path }],
                events: vec![event],
            })
        })
    }

    /// Removes expired tokens from the store, without rows of the audit log. No request would
    /// accept them. Errors are those of the store, such as SR-8435 when it does not answer.
    pub(super) fn remove_expired_tokens(&self) -> Result<(), Error> {
        let mut after = String::new();
        loop {
            let page = self.list::<Token>(TOKENS, &after, PAGE)?;
            for (hash, _) in page.iter().filter(|(_, token)| token.expires <= now()) {
                let path = format!("{TOKENS}{hash}");
                let changes = vec![Change::Delete { path }];
                self.commit(Vec::new(), changes, Vec::new())?;
            }
            match page.last() {
                Some((hash, _)) if page.len() == PAGE => after.clone_from(hash),
                _ => return Ok(()),
            }
        }
    }

    /// Returns the changes that remove every unused token of a client. Writes nothing. Errors are
    /// those of the store, such as SR-8435 when it does not answer.
    pub(super) fn delete_tokens_of(&self, name: &str) -> Result<Vec<Change>, Error> {
        let mut changes = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.list::<Token>(TOKENS, &after, PAGE)?;
            let Some((last, _)) = page.last() else {
                return Ok(changes);
            };
            after.clone_from(last);
            let tokens = page.iter().filter(|(_, token)| token.node == name);
            changes.extend(tokens.map(|(hash, _)| Change::Delete {
                path: format!("{TOKENS}{hash}"),
            }));
        }
    }
}
