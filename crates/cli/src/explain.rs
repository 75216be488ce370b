//! `strongroom explain SR-nnnn`: what an error code means and what to do.
//!
//! Must not: hold any text of its own about a code; the table in strongroom-format is the one
//! source.

use clap::Args;
use strongroom_format::code::{self, Class, Code};

use crate::context::Context;
use crate::failure::{Failure, code_text};
use crate::help::tail;

/// Explain an error code.
#[derive(Args)]
#[command(after_help = tail!("  strongroom explain SR-2002"))]
pub(crate) struct ExplainArgs {
    /// The code, as SR-2002 or 2002.
    #[arg(value_name = "SR-nnnn", value_parser = parse)]
    code: &'static Code,
}

impl ExplainArgs {
    /// Prints the code, what it means, what to do, its class and the exit code. SR-5001 if standard
    /// output cannot be written.
    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let Code {
            class, what, todo, ..
        } = self.code;
        let text = format!(
            "{}: {what}\n  to do: {todo}\n  class: {} (exit code {})\n",
            code_text(self.code),
            class_name(*class),
            class.exit_code()
        );
        context.output.text(&text)
    }
}

/// Looks up the error code that is written as `SR-2002` or `2002`, in upper or lower case. The
/// error is the text that clap shows if it is no number, or no such code exists.
fn parse(text: &str) -> Result<&'static Code, String> {
    let upper = text.to_ascii_uppercase();
    let digits = upper.strip_prefix("SR-").unwrap_or(&upper);
    let number = digits
        .parse()
        .map_err(|_| "a code is written SR-nnnn, four digits".to_owned())?;
    code::by_number(number).ok_or_else(|| "no such code".to_owned())
}

/// Returns the name of the class as `strongroom explain` prints it.
fn class_name(class: Class) -> &'static str {
    match class {
        Class::Usage => "usage",
        Class::Key => "key",
        Class::Data => "data",
        Class::Io => "operating system",
        Class::Refused => "refused to protect data",
        Class::Warning => "warning",
        Class::Bug => "defect",
    }
}
