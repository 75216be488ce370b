//! Clients: tokens, enrolment, revocation, grants.
//!
//! Invariants: E1, a token is used once: it is removed in the commit that enrols; E2, only the hash of a token is kept; E3, a client
//! that is enrolled anew or revoked loses its former certificates in the same commit; E4, a client
//! that was not there begins with the grants of its token, whatever a revocation of that name that
//! broke off has left; E7, a public key is certified for one name only, for ever.
//!
//! Must not: keep or log a token.

use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use strongroom_crypto::{random16, random32, sha256};
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::Error;
use zeroize::Zeroizing;

use super::keys::grant_path;
use super::{Peer, Plan, Service, check_name, identity_path};
use crate::audit::Event;
use crate::authority;
use crate::now;
use crate::records::{
    AUTHORITY, Authority, CERTIFIED, Certified, Found, GRANTS, Grant, IDENTITIES, Identity, KEYS,
    Key, NODES, Node, Role, TOKENS, Token,
};
use crate::store::{Change, Guard};

/// What a token begins with.
const TOKEN_PREFIX: &str = "strongroom-token-1-";
/// Longest life of a token.
const TOKEN_MAX_S: u64 = 30 * 86_400;
/// Most keys that are granted with a token.
const TOKEN_KEYS_MAX: usize = 64;
/// Grants that are removed in one commit.
const GRANTS_AT_ONCE: usize = 64;

/// What a token is to be for.
pub struct NewToken {
    /// The client's name.
    pub node: String,
    /// What it will be.
    pub role: Role,
    /// Keys that are granted with its enrolment.
    pub keys: Vec<String>,
    /// Whether it may make keys.
    pub may_create: bool,
    /// Whether it may destroy keys that it makes, and those that are granted here.
    pub may_destroy: bool,
    /// Whether a node that is enrolled already keeps what it may.
    pub keeps_rights: bool,
    /// How long the token is good for.
    pub expires_s: u64,
}

/// What a client gets when it is enrolled.
#[derive(Clone, Debug, Serialize)]
pub struct Enrolled {
    /// Its name.
    pub node: String,
    /// What it is.
    pub role: Role,
    /// Its certificate, in PEM.
    pub certificate: String,
    /// The authority's certificate, in PEM.
    pub authority: String,
}

/// What is told of a client.
#[derive(Clone, Debug, Serialize)]
pub struct NodeInfo {
    /// Its name.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// Whether it may make keys.
    pub may_create: bool,
    /// Whether it may destroy keys that it makes.
    pub may_destroy: bool,
    /// When it was enrolled, in seconds since the Unix epoch.
    pub enrolled: u64,
    /// When its certificate ends.
    pub expires: u64,
    /// SHA-256 of its public key.
    pub spki: String,
}

/// What is told of a token that was not used yet. Whoever knows it has not the token: that is 32 random bytes.
#[derive(Clone, Debug, Serialize)]
pub struct TokenInfo {
    /// SHA-256 of the token.
    pub id: String,
    /// The name that the client will have.
    pub node: String,
    /// What it will be.
    pub role: Role,
    /// Keys that are granted to it with its enrolment.
    pub keys: Vec<String>,
    /// Whether it may make keys.
    pub may_create: bool,
    /// Whether it may destroy keys.
    pub may_destroy: bool,
    /// When the token ends, in seconds since the Unix epoch.
    pub expires: u64,
}

/// What is told of a grant.
#[derive(Clone, Debug, Serialize)]
pub struct GrantInfo {
    /// The node.
    pub node: String,
    /// The key.
    pub key: String,
    /// When it was granted, in seconds since the Unix epoch.
    pub granted: u64,
    /// Whether the node may destroy the key.
    pub may_destroy: bool,
}

pub(super) fn node_path(name: &str) -> String {
    format!("{NODES}{name}")
}

/// What ends every certificate of a client: the one that counts, and the one that has not been used
/// yet.
pub(super) fn identities_of(node: &Node) -> Vec<Change> {
    let all = std::iter::once(&node.spki).chain(&node.next);
    all.map(|spki| ends(spki)).collect()
}

/// What ends the certificate with this public key.
pub(super) fn ends(spki: &str) -> Change {
    Change::Delete {
        path: identity_path(spki),
    }
}

/// How long a count of certificates that end is kept.
const ENDING_KEPT_S: u64 = 60;

/// Clients' certificates by when they end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// All that count or have ended without being replaced.
    pub all: u64,
    /// Those that have ended.
    pub ended: u64,
    /// Those that end within a week; not those that have ended.
    pub in_a_week: u64,
    /// Those that end within thirty days; not those that have ended.
    pub in_thirty_days: u64,
}

impl Ending {
    fn count(&mut self, left_s: u64) {
        const DAY_S: u64 = 86_400;
        let add = |count: &mut u64, is: bool| *count = count.saturating_add(u64::from(is));
        add(&mut self.all, true);
        add(&mut self.ended, left_s == 0);
        add(&mut self.in_a_week, (1..=7 * DAY_S).contains(&left_s));
        add(&mut self.in_thirty_days, (1..=30 * DAY_S).contains(&left_s));
    }
}

/// The last count, and when it was made.
#[derive(Default)]
pub(super) struct KeptEnding(Mutex<Option<(u64, Ending)>>);

fn token_path(token: &str) -> String {
    format!("{TOKENS}{}", hex(&sha256(&[token.trim().as_bytes()])))
}

impl Service {
    /// Makes a token.
    ///
    /// # Errors
    /// SR-8422 unless administrator; SR-8454 for a key that is not there; SR-8429.
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
                self.read::<Key>(&format!("{KEYS}{name}"))?
                    .or(&code::SERVER_NO_KEY, name)?;
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

    /// Tokens that can still be used, after this id, in order.
    ///
    /// # Errors
    /// SR-8422 unless viewer or administrator.
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

    /// Takes a token back that was not used.
    ///
    /// # Errors
    /// SR-8422 unless administrator; SR-8459; SR-8429.
    pub fn withdraw_token(&self, peer: &Peer, id: &str) -> Result<(), Error> {
        check_name(id)?;
        self.run(peer, "withdraw", id, |client| {
            client.must_be(&[Role::Admin])?;
            let path = format!("{TOKENS}{id}");
            let (token, guard) = self.read::<Token>(&path)?.or(&code::SERVER_NO_TOKEN, id)?;
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

    /// Removes tokens whose time is over. They would not be taken anyway.
    pub(super) fn forget_tokens(&self) -> Result<(), Error> {
        const PAGE: usize = 500;
        let mut after = String::new();
        loop {
            let page = self.list::<Token>(TOKENS, &after, PAGE)?;
            for (hash, _) in page.iter().filter(|(_, token)| token.expires <= now()) {
                let path = format!("{TOKENS}{hash}");
                let changes = vec![Change::Delete { path }];
                self.commit(None, Vec::new(), changes, Vec::new())?;
            }
            match page.last() {
                Some((hash, _)) if page.len() == PAGE => after.clone_from(hash),
                _ => return Ok(()),
            }
        }
    }

    /// What a client may that is enrolled with this token: make keys, have them destroyed. A token
    /// that says nothing of it takes nothing from a node that is enrolled already.
    fn rights(&self, token: &Token, former: Option<&Node>) -> Result<(bool, bool), Error> {
        let said = (token.may_create, token.may_destroy);
        let Some(former) = former.filter(|_| token.keeps_rights) else {
            return Ok(said);
        };
        let found: Found<Identity> = self.read(&identity_path(&former.spki))?;
        let same = found.record.filter(|was| was.role == token.role);
        Ok(same.map_or(said, |was| (was.may_create, was.may_destroy)))
    }

    /// Enrols a client: its token is used up, its former certificate no longer counts.
    ///
    /// # Errors
    /// SR-8431; SR-8429 for a request that is not one.
    pub fn enroll(&self, address: &str, token: &str, request: &str) -> Result<Enrolled, Error> {
        for _ in 0..super::TRIES {
            let found: Found<Token> = self.read(&token_path(token))?;
            let good = found.record.filter(|token| token.expires > now());
            let Some(record) = good else {
                let peer = Peer {
                    address: address.to_owned(),
                    ..Peer::default()
                };
                let error = Error::new(&code::SERVER_TOKEN, "");
                self.denied(None, &peer, "enroll", "", &error);
                return Err(error);
            };
            let mut guards = vec![found.guard.clone()];
            let mut changes = vec![Change::Delete {
                path: found.guard.path,
            }];
            for key in &record.keys {
                let grant = Grant {
                    granted: now(),
                    may_destroy: record.may_destroy,
                };
                changes.push(self.put(&grant_path(&record.node, key), &grant)?);
            }
            let former: Found<Node> = self.read(&node_path(&record.node))?;
            guards.push(former.guard);
            if former.record.is_none() {
                // What a revocation that broke off has left. Nothing comes to it any more: grants need a client that is there.
                self.forget_grants(&record.node)?;
            }
            let (may_create, may_destroy) = self.rights(&record, former.record.as_ref())?;
            let identity = Identity {
                name: record.node.clone(),
                role: record.role,
                may_create,
                may_destroy,
                enrolled: now(),
                expires: 0,
                enrolment: Some(hex(&random16()?)),
                unused: false,
                certificate: None,
            };
            let (enrolled, spki, whose, more) = self.certified(request, identity)?;
            let node = Node {
                spki: spki.clone(),
                next: None,
            };
            changes.push(self.put(&node_path(&record.node), &node)?);
            guards.extend(whose);
            // A store takes one change of a record in a commit.
            let ended = former.record.iter().flat_map(identities_of);
            changes.extend(ended.filter(|change| *change != ends(&spki)));
            changes.extend(more);
            let event = Event {
                actor: record.node.clone(),
                address: address.to_owned(),
                action: "enroll".to_owned(),
                subject: record.node.clone(),
                version: 0,
                detail: format!("{} {spki}", record.role.name()),
            };
            if self.commit(None, guards, changes, vec![event])? {
                return Ok(enrolled);
            }
        }
        Err(Error::new(&code::SERVER_BUSY, "enrolment"))
    }

    /// A certificate for the client, the SHA-256 of its public key, what it was decided upon, and
    /// the changes that make it known.
    pub(super) fn certified(
        &self,
        request: &str,
        mut identity: Identity,
    ) -> Result<(Enrolled, String, Vec<Guard>, Vec<Change>), Error> {
        let (authority, _) = self.read::<Authority>(AUTHORITY)?.there("authority")?;
        let days = self.rules().certificate_days;
        let issued = authority::signed(&authority, request, &identity.name, days)?;
        let guards = self.must_be_its_own(&issued.spki, &identity.name)?;
        identity.expires = issued.expires;
        identity.certificate = Some(issued.fingerprint);
        let whose = Certified {
            name: identity.name.clone(),
        };
        let changes = vec![
            self.put(&identity_path(&issued.spki), &identity)?,
            self.put(&format!("{CERTIFIED}{}", issued.spki), &whose)?,
        ];
        let enrolled = Enrolled {
            node: identity.name,
            role: identity.role,
            certificate: issued.certificate,
            authority: authority.certificate,
        };
        Ok((enrolled, issued.spki, guards, changes))
    }

    /// No public key is ever certified for two names, whatever became of the first: whoever has its
    /// private key would be both.
    fn must_be_its_own(&self, spki: &str, name: &str) -> Result<Vec<Guard>, Error> {
        let ever: Found<Certified> = self.read(&format!("{CERTIFIED}{spki}"))?;
        // Older builds recorded only the current holder.
        let now: Found<Identity> = self.read(&identity_path(spki))?;
        let others = [ever.record.map(|of| of.name), now.record.map(|of| of.name)];
        if others.iter().flatten().any(|other| other != name) {
            let detail = "the public key is another client's";
            return Err(Error::new(&code::SERVER_REQUEST, detail));
        }
        Ok(vec![ever.guard, now.guard])
    }

    /// Clients after this name, in order.
    ///
    /// # Errors
    /// SR-8422 unless viewer or administrator.
    pub fn nodes(&self, peer: &Peer, after: &str, limit: usize) -> Result<Vec<NodeInfo>, Error> {
        self.run(peer, "nodes", "", |client| {
            client.must_be(&[Role::Admin, Role::Viewer])?;
            let mut infos = Vec::new();
            for (name, node) in self.list::<Node>(NODES, after, limit)? {
                let found: Found<Identity> = self.read(&identity_path(&node.spki))?;
                infos.extend(found.record.map(|identity| NodeInfo {
                    name,
                    role: identity.role,
                    may_create: identity.may_create,
                    may_destroy: identity.may_destroy,
                    enrolled: identity.enrolled,
                    expires: identity.expires,
                    spki: node.spki,
                }));
            }
            Ok(Plan::read(infos))
        })
    }

    /// How many clients' certificates have ended or end soon. Counted at most once a minute.
    ///
    /// # Errors
    /// What the store reports.
    pub fn ending(&self) -> Result<Ending, Error> {
        let mut kept = self.ending.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, ending)) = *kept
            && (at..=at.saturating_add(ENDING_KEPT_S)).contains(&now())
        {
            return Ok(ending);
        }
        let mut ending = Ending::default();
        self.each::<Identity>(IDENTITIES, usize::MAX, |_, identity| {
            if !identity.unused {
                ending.count(identity.expires.saturating_sub(now()));
            }
        })?;
        *kept = Some((now(), ending));
        Ok(ending)
    }

    /// Revokes a client: its certificate no longer counts, at once, and its grants are removed.
    ///
    /// # Errors
    /// SR-8422 unless administrator; SR-8455; SR-8439 for the client itself, so that the last
    /// administrator stays.
    pub fn revoke(&self, peer: &Peer, name: &str) -> Result<(), Error> {
        check_name(name)?;
        self.run(peer, "revoke", name, |client| {
            client.must_be(&[Role::Admin])?;
            if client.identity.name == name {
                return Err(Error::new(&code::SERVER_STATE, "nobody revokes itself"));
            }
            let (node, guard) = self
                .read::<Node>(&node_path(name))?
                .or(&code::SERVER_NO_CLIENT, name)?;
            let mut changes = identities_of(&node);
            changes.push(Change::Delete {
                path: node_path(name),
            });
            // Nor does it come back with a token that it has not used yet.
            changes.extend(self.tokens_of(name)?);
            let events = vec![client.event("revoke", name)];
            Ok(Plan {
                value: (),
                guards: vec![guard],
                changes,
                events,
            })
        })?;
        self.forget_grants(name)
    }

    /// Removes every token that was made for a client.
    fn tokens_of(&self, name: &str) -> Result<Vec<Change>, Error> {
        let mut changes = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.list::<Token>(TOKENS, &after, GRANTS_AT_ONCE)?;
            let Some((last, _)) = page.last() else {
                return Ok(changes);
            };
            after.clone_from(last);
            let of_it = page.iter().filter(|(_, token)| token.node == name);
            changes.extend(of_it.map(|(hash, _)| Change::Delete {
                path: format!("{TOKENS}{hash}"),
            }));
        }
    }

    /// Removes what was granted to a client that is no more: a new one of that name begins with nothing.
    fn forget_grants(&self, name: &str) -> Result<(), Error> {
        let prefix = format!("{GRANTS}{name}/");
        loop {
            let found: Found<Node> = self.read(&node_path(name))?;
            let page = self.list::<Grant>(&prefix, "", GRANTS_AT_ONCE)?;
            // Enrolled anew meanwhile: what it has now is its own.
            if found.record.is_some() || page.is_empty() {
                return Ok(());
            }
            let deleted = |(key, _)| Change::Delete {
                path: grant_path(name, key),
            };
            let changes = page
                .iter()
                .map(|(key, grant)| deleted((key.as_str(), grant)))
                .collect();
            self.commit(None, vec![found.guard], changes, Vec::new())?;
        }
    }

    /// Grants a key to a node.
    ///
    /// # Errors
    /// SR-8422 unless administrator; SR-8455, SR-8454 when there is no such node or key.
    pub fn grant(
        &self,
        peer: &Peer,
        node: &str,
        key: &str,
        may_destroy: bool,
    ) -> Result<(), Error> {
        check_name(node)?;
        check_name(key)?;
        self.run(peer, "grant", key, |client| {
            client.must_be(&[Role::Admin])?;
            let (_, is_there) = self
                .read::<Node>(&node_path(node))?
                .or(&code::SERVER_NO_CLIENT, node)?;
            let (_, is_kept) = self
                .read::<Key>(&format!("{KEYS}{key}"))?
                .or(&code::SERVER_NO_KEY, key)?;
            let grant = Grant {
                granted: now(),
                may_destroy,
            };
            let changes = vec![self.put(&grant_path(node, key), &grant)?];
            let mut event = client.event("grant", key);
            event.detail = node.to_owned();
            Ok(Plan {
                value: (),
                guards: vec![is_there, is_kept],
                changes,
                events: vec![event],
            })
        })
    }

    /// Grants after this one, `node/key`, in order.
    ///
    /// # Errors
    /// SR-8422 unless viewer or administrator.
    pub fn grants(&self, peer: &Peer, after: &str, limit: usize) -> Result<Vec<GrantInfo>, Error> {
        self.run(peer, "grants", "", |client| {
            client.must_be(&[Role::Admin, Role::Viewer])?;
            let page = self.list::<Grant>(GRANTS, after, limit)?.into_iter();
            let infos = page.filter_map(|(path, grant)| {
                let (node, key) = path.split_once('/')?;
                Some(GrantInfo {
                    node: node.to_owned(),
                    key: key.to_owned(),
                    granted: grant.granted,
                    may_destroy: grant.may_destroy,
                })
            });
            Ok(Plan::read(infos.collect()))
        })
    }

    /// Takes a grant back.
    ///
    /// # Errors
    /// SR-8422 unless administrator; SR-8444.
    pub fn ungrant(&self, peer: &Peer, node: &str, key: &str) -> Result<(), Error> {
        check_name(node)?;
        check_name(key)?;
        self.run(peer, "ungrant", key, |client| {
            client.must_be(&[Role::Admin])?;
            let path = grant_path(node, key);
            let detail = format!("{key} to {node}");
            let (_, guard) = self
                .read::<Grant>(&path)?
                .or(&code::SERVER_NO_GRANT, &detail)?;
            let mut event = client.event("ungrant", key);
            event.detail = node.to_owned();
            let changes = vec![Change::Delete { path }];
            Ok(Plan {
                value: (),
                guards: vec![guard],
                changes,
                events: vec![event],
            })
        })
    }
}
