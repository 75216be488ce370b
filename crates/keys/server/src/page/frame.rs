//! The frame of every page: head, banner, navigation, choice of a theme, footer.
//!
//! Invariants:
//! 1. No element has a style or a script, and the browser loads nothing but the style sheet and the
//!    icon of this server.
//! 2. The page is readable without its style: it has one heading of the first level, landmarks, and
//!    a link that skips the banner.
//!
//! Must not: show anything of the fleet.

use maud::{DOCTYPE, Markup, html};

use super::text;

/// The style sheet, a file of its own.
pub const STYLE: &str = include_str!("style.css");
/// The icon of the browser's tab, a file of its own.
pub const ICON: &str = include_str!("icon.svg");

/// The colours that the reader chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Theme {
    /// The setting of the reader's system.
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

    /// The value of the cookie.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// Returns the theme with this value of the cookie; `None` for another value.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|theme| theme.word() == word)
    }

    /// Returns the attribute `data-theme` of the page; `None` for the setting of the reader's
    /// system.
    const fn attribute(self) -> Option<&'static str> {
        match self {
            Self::System => None,
            Self::Light => Some("light"),
            Self::Dark => Some("dark"),
        }
    }

    /// Returns the text of the theme's button.
    const fn label(self) -> &'static str {
        match self {
            Self::System => "Auto",
            Self::Light => "Light",
            Self::Dark => "Dark",
        }
    }
}

/// The section of the navigation that a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The list of objects, and an object.
    Fleet,
    /// The list of keys, and a key.
    Keys,
    /// The list of nodes, and a node.
    Nodes,
    /// No section.
    None,
}

/// The reader of a page.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// The name of the client; `None` when it is not known.
    pub name: Option<String>,
    /// The client's role.
    pub role: String,
    /// The chosen theme.
    pub theme: Theme,
    /// The path and the query of this page, to return to it after the choice of a theme.
    pub path: String,
}

/// Renders a whole page around `main`. `now`, in seconds since the Unix epoch, is the time of the
/// data, for the footer; `None` for a page without data.
#[must_use]
pub fn page(
    reader: &Reader,
    section: Section,
    title: &str,
    now: Option<u64>,
    main: &Markup,
) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" data-theme=[reader.theme.attribute()] {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (text::displayed_name(title)) " · Strongroom" }
                link rel="icon" href="/fleet/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/fleet/style.css";
            }
            body {
                a.skip href="#main" { "Skip to content" }
                (banner(reader, section))
                main #main { (main) }
                (footer(now))
            }
        }
    }
}

/// Renders the banner: navigation, unless the page belongs to no section, the reader's name and
/// role, and the choice of a theme.
fn banner(reader: &Reader, section: Section) -> Markup {
    let sections = [
        (Section::Fleet, "/", "Fleet"),
        (Section::Keys, "/fleet/keys", "Keys"),
        (Section::Nodes, "/fleet/nodes", "Nodes"),
    ];
    html! {
        header.banner {
            a.brand href="/" { "Strongroom" }
            @if section != Section::None {
                nav aria-label="Main" {
                    @for (one, link, label) in sections {
                        a href=(link) aria-current=[(one == section).then_some("true")] { (label) }
                    }
                }
            }
            div.who {
                @if let Some(name) = &reader.name {
                    span { bdi { (text::displayed_name(name)) } " · " (reader.role) }
                }
                (theme_form(reader))
            }
        }
    }
}

/// Renders the form for choosing a theme, which returns to this page.
fn theme_form(reader: &Reader) -> Markup {
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

/// Renders the footer, with the time of the data if there is one.
fn footer(now: Option<u64>) -> Markup {
    html! {
        footer {
            @if let Some(now) = now {
                "As of " time datetime=(text::machine_date(now)) { (text::date(now)) } ". "
                "Times of objects are those that their nodes report."
            }
        }
    }
}
