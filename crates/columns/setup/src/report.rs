//! What a run has found and made, and what is left for the administrator.
//!
//! Must not: have a secret in it.

/// What a step has found, or did.
pub(crate) enum Found {
    /// What it makes is there already.
    There,
    /// It is missing, and can be made.
    Missing,
}

/// What became of one part of the setup.
pub enum Step {
    /// It was there before, and is as it was.
    There(String),
    /// This run has made it, or would make it.
    Made(String),
}

/// Something that the command does not do.
pub struct ToDo {
    /// What.
    pub what: String,
    /// The commands that do it.
    pub commands: Vec<String>,
}

/// What a run has found and made, in order, and what is left to do.
#[derive(Default)]
pub struct Report {
    /// What was found and made.
    pub steps: Vec<Step>,
    /// What is left to do.
    pub left: Vec<ToDo>,
}

impl Report {
    /// Returns whether nothing was made, because everything was there.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        !self.steps.iter().any(|step| matches!(step, Step::Made(_)))
    }

    /// Adds something that was there.
    pub(crate) fn there(&mut self, what: String) {
        self.steps.push(Step::There(what));
    }

    /// Adds something that was made.
    pub(crate) fn made(&mut self, what: String) {
        self.steps.push(Step::Made(what));
    }

    /// Adds something that is left to do.
    pub(crate) fn add_left(&mut self, what: &str, commands: Vec<String>) {
        let what = what.to_owned();
        self.left.push(ToDo { what, commands });
    }
}
