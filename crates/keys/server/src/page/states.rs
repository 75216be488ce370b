//! What is shown when the fleet cannot be: sealed, no certificate, the wrong role, no such thing, a query that means nothing.
//!
//! Must not: say whether something exists to someone who may not know.

use maud::{Markup, html};

/// Why there is no fleet to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The server is sealed.
    Sealed {
        /// Shares that are needed; 0 if a provider opens it.
        threshold: u32,
        /// Shares that were given.
        given: u32,
        /// The root key was there, and the store was not.
        without_store: bool,
    },
    /// The browser showed no certificate.
    NoCertificate,
    /// The certificate is one that this page is not for, or no longer.
    Forbidden,
    /// There is no such thing.
    NotThere,
    /// A parameter of the query means nothing.
    BadQuery(&'static str),
    /// The store did not answer.
    Failed,
}

impl Why {
    /// The status of the answer.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Sealed { .. } | Self::Failed => 503,
            Self::NoCertificate => 401,
            Self::Forbidden => 403,
            Self::NotThere => 404,
            Self::BadQuery(_) => 400,
        }
    }

    /// The title of the page.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Sealed { .. } => "Sealed",
            Self::NoCertificate => "Certificate needed",
            Self::Forbidden => "Not for this certificate",
            Self::NotThere => "Not there",
            Self::BadQuery(_) => "Not a query",
            Self::Failed => "Not available",
        }
    }

    /// The content of the page.
    #[must_use]
    pub fn content(self) -> Markup {
        html! { section.state { h1 { (self.title()) } (self.text()) } }
    }

    fn text(self) -> Markup {
        match self {
            Self::Sealed {
                without_store: true,
                ..
            } => html! {
                p { "This key server is sealed: its root key was there, but its store did not answer or has no room. "
                    "It delivers no keys and shows nothing of the fleet. The server's log says why." }
            },
            Self::Sealed {
                threshold, given, ..
            } => sealed(threshold, given),
            Self::NoCertificate => html! {
                p { "This page is shown to viewers and administrators, who have a certificate of this key server." }
                p { "Enrol with a token of role " code { "viewer" } ", make a PKCS#12 file of certificate and key, and import it into the browser: "
                    "the guide to the fleet page has the commands." }
            },
            Self::Forbidden => html! {
                p { "The certificate of this browser is not, or no longer, that of a viewer or an administrator." }
            },
            Self::NotThere => {
                html! { p { "There is no such page, object, key or node." } p { a href="/" { "To the fleet" } } }
            }
            Self::BadQuery(parameter) => html! {
                p { "The value of " code { (parameter) } " in the address means nothing here." } p { a href="/" { "To the fleet" } }
            },
            Self::Failed => {
                html! { p { "The store of the key server did not answer. The server's log says why." } }
            }
        }
    }
}

fn sealed(threshold: u32, given: u32) -> Markup {
    html! {
        p { "This key server is sealed: it has started, or was told to seal itself, and does not have its root key. "
            "It delivers no keys and shows nothing of the fleet." }
        @if threshold > 0 {
            p { strong { (given) " of " (threshold) } " shares have been given." }
            p { "Custodians give theirs with " code { "strongroom keyserver unseal" } "." }
        } @else {
            p { "It opens by itself when the provider of its root key answers." }
        }
    }
}
