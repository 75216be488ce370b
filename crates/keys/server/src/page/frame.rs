//! What every page has round its content: head, banner, navigation, the choice of light or dark, foot.
//!
//! Invariants:
//! 1. No element carries a style or a script, and nothing is loaded but the style sheet and the icon of this server.
//! 2. The page can be read in order without its style: one heading of the first level, landmarks, a link past the banner.
//!
//! Must not: show anything of the fleet.

use maud::{DOCTYPE, Markup, html};

use super::words;

/// The style sheet, served as a file of its own.
pub const STYLE: &str = include_str!("style.css");
/// The icon of the browser's tab, served as a file of its own.
pub const ICON: &str = include_str!("icon.svg");

/// Light or dark, if the reader chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Theme {
    /// As the reader's system has it.
    #[default]
    System,
    /// Light.
    Light,
    /// Dark.
    Dark,
}

impl Theme {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::System, Self::Light, Self::Dark];

    /// The word in the cookie.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// The choice of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|theme| theme.word() == word)
    }

    const fn attribute(self) -> Option<&'static str> {
        match self {
            Self::System => None,
            Self::Light => Some("light"),
            Self::Dark => Some("dark"),
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::System => "Auto",
            Self::Light => "Light",
            Self::Dark => "Dark",
        }
    }
}

/// Where a page belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The list of objects, and an object.
    Fleet,
    /// The list of keys, and a key.
    Keys,
    /// The list of nodes, and a node.
    Nodes,
    /// None of them.
    Elsewhere,
}

/// Who reads, and how.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// Name of the client, if it is known.
    pub name: Option<String>,
    /// Its role.
    pub role: String,
    /// Light or dark.
    pub theme: Theme,
    /// Path and query of this page, for the way back from the choice of a theme.
    pub path: String,
}

/// A whole page.
#[must_use]
pub fn page(reader: &Reader, place: Place, title: &str, now: Option<u64>, main: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" data-theme=[reader.theme.attribute()] {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (words::name(title)) " · Strongroom" }
                link rel="icon" href="/fleet/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/fleet/style.css";
            }
            body {
                a.skip href="#main" { "Skip to content" }
                (banner(reader, place))
                main #main { (main) }
                (foot(now))
            }
        }
    }
}

fn banner(reader: &Reader, place: Place) -> Markup {
    let places = [
        (Place::Fleet, "/", "Fleet"),
        (Place::Keys, "/fleet/keys", "Keys"),
        (Place::Nodes, "/fleet/nodes", "Nodes"),
    ];
    html! {
        header.banner {
            a.brand href="/" { "Strongroom" }
            @if place != Place::Elsewhere {
                nav aria-label="Main" {
                    @for (one, link, label) in places {
                        a href=(link) aria-current=[(one == place).then_some("true")] { (label) }
                    }
                }
            }
            div.who {
                @if let Some(name) = &reader.name {
                    span { bdi { (words::name(name)) } " · " (reader.role) }
                }
                (themes(reader))
            }
        }
    }
}

fn themes(reader: &Reader) -> Markup {
    html! {
        form.themes method="get" action="/fleet/theme" aria-label="Colours" {
            input type="hidden" name="back" value=(reader.path);
            @for theme in Theme::ALL {
                button type="submit" name="theme" value=(theme.word())
                    aria-pressed=(if theme == reader.theme { "true" } else { "false" }) { (theme.label()) }
            }
        }
    }
}

fn foot(now: Option<u64>) -> Markup {
    html! {
        footer {
            @if let Some(now) = now {
                "As of " time datetime=(words::machine_date(now)) { (words::date(now)) } ". "
                "Times of objects are those that their nodes report."
            }
        }
    }
}
