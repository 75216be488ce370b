//! The pages that are shown instead of the fleet: the server is sealed, there is no certificate,
//! the role is wrong, the object does not exist, the query is invalid.
//!
//! Must not: reveal whether something exists to a client that may not know it.

use maud::{Markup, html};

/// Why the fleet is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// The server is sealed.
    Sealed {
        /// How many shares are needed; 0 when the root key comes from a provider.
        threshold: u32,
        /// How many shares were given.
        given: u32,
        /// Whether the root key was available and the store was not.
        without_store: bool,
    },
    /// The browser sent no certificate.
    NoCertificate,
    /// The certificate is not, or no longer, that of a viewer or an administrator.
    Forbidden,
    /// There is no such page, object, key or node.
    NotFound,
    /// A parameter of the query has an invalid value.
    BadQuery(&'static str),
    /// The store did not respond.
    Failed,
}

impl Unavailable {
    /// The HTTP status of the response.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Sealed { .. } | Self::Failed => 503,
            Self::NoCertificate => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
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
            Self::NotFound => "Not there",
            Self::BadQuery(_) => "Not a query",
            Self::Failed => "Not available",
        }
    }

    /// Renders the content of the page: its title and its text.
    #[must_use]
    pub fn content(self) -> Markup {
        html! { section.state { h1 { (self.title()) } (self.text()) } }
    }

    /// Renders the text that says why the fleet is not shown, and what to do.
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
            } => sealed_text(threshold, given),
            Self::NoCertificate => html! {
                p { "This page is shown to viewers and administrators, who have a certificate of this key server." }
                p { "Enrol with a token of role " code { "viewer" } ", make a PKCS#12 file of certificate and key, and import it into the browser: "
                    "the guide to the fleet page has the commands." }
            },
            Self::Forbidden => html! {
                p { "The certificate of this browser is not, or no longer, that of a viewer or an administrator." }
            },
            Self::NotFound => {
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

/// Renders the text about a sealed server: how many of its shares were given, or that it waits for
/// its provider if `threshold` is 0.
fn sealed_text(threshold: u32, given: u32) -> Markup {
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
