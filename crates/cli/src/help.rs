//! The end of every command's help: EXIT STATUS and one worked example.
//!
//! Must not: state a code that docs/reference/exit-codes.md does not list.

/// EXIT STATUS and the example, for clap's `after_help`.
macro_rules! tail {
    ($example:literal) => {
        concat!(
            "EXIT STATUS\n",
            "  0   done\n",
            "  2   the command line or the call was wrong\n",
            "  3   a key is missing, wrong or out of reach\n",
            "  4   damaged, forged or unsealed data\n",
            "  5   the operating system refused\n",
            "  6   refused to protect data\n",
            "  70  a defect in Strongroom\n",
            "\n",
            "EXAMPLE\n",
            $example
        )
    };
}
pub(crate) use tail;
