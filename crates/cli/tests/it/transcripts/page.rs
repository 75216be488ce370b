//! The blocks of commands in a page of the documents, and what the page says of each one.
//!
//! A block is a run of lines that are indented by four spaces. It is a block of commands if a line
//! of it calls `strongroom` or begins with a prompt, `$ ` or `NAME$ `, or if a comment says that it
//! is run. A comment of HTML directly
//! above the block, which readers do not see, says what becomes of it:
//!
//!     <!-- commands: run -->                    it is run as it stands, by root
//!     <!-- commands: run as USER -->            that user runs it, in a directory of its own
//!     <!-- commands: not run: REASON -->        it cannot be, and why
//!
//! and `<!-- before: SHELL -->` above that is what the page takes for granted: a database that
//! exists, a server.

const SQLITE_PROMPT: &str = "sqlite> ";

/// One block of commands.
pub(crate) struct Block {
    /// Line of the page where it begins, from 1.
    pub(crate) line: usize,
    /// What the page says of it.
    pub(crate) fate: Fate,
    /// Shell text of the `before` comments above it.
    pub(crate) before: Vec<String>,
    /// Its lines, without the indentation.
    pub(crate) text: Vec<String>,
}

/// What becomes of a block.
pub(crate) enum Fate {
    /// It is run, by this user or by root.
    Run(Option<String>),
    /// It is not, for a reason that the page states.
    NotRun(String),
    /// The page says nothing.
    Unsaid,
}

/// One command of a block, and the output that the page shows below it.
pub(crate) struct Step {
    /// The host whose prompt stands before it, if one does.
    pub(crate) host: Option<String>,
    /// The shell's text.
    pub(crate) command: String,
    /// What is typed at the prompt of `sqlite3`.
    pub(crate) typed: Vec<String>,
    /// The lines shown, where the command has a prompt; `None` where the page shows commands only.
    pub(crate) shown: Option<Vec<String>>,
}

/// The blocks of commands of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let lines: Vec<&str> = page.lines().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let indented = |line: &&&str| line.starts_with("    ") || line.trim().is_empty();
        let begins = lines[at].starts_with("    ") && (at == 0 || lines[at - 1].trim().is_empty());
        if !begins {
            at += 1;
            continue;
        }
        let count = lines[at..].iter().take_while(indented).count();
        let mut text: Vec<String> = lines[at..at + count]
            .iter()
            .map(|line| line.strip_prefix("    ").unwrap_or_default().to_owned())
            .collect();
        while text.last().is_some_and(|line| line.trim().is_empty()) {
            text.pop();
        }
        let (fate, before) = comments_above(&lines[..at]);
        if matches!(fate, Fate::Run(_)) || text.iter().any(|line| is_command(line)) {
            found.push(Block {
                line: at + 1,
                fate,
                before,
                text,
            });
        }
        at += count;
    }
    found
}

fn is_command(line: &str) -> bool {
    line.starts_with("strongroom ") || prompt(line).is_some()
}

/// The host (empty for a bare `$ `) and the command behind a prompt.
fn prompt(line: &str) -> Option<(&str, &str)> {
    let (host, command) = line.split_once("$ ")?;
    let named = host.bytes().all(|byte| byte.is_ascii_lowercase());
    named.then_some((host, command))
}

/// The comments directly above a block: what becomes of it, and what is done before.
fn comments_above(above: &[&str]) -> (Fate, Vec<String>) {
    let (mut fate, mut before) = (Fate::Unsaid, Vec::new());
    let comments = above
        .iter()
        .rev()
        .skip_while(|line| line.trim().is_empty())
        .map_while(|line| line.strip_prefix("<!-- ")?.strip_suffix(" -->"));
    for comment in comments {
        if let Some(reason) = comment.strip_prefix("commands: not run: ") {
            fate = Fate::NotRun(reason.to_owned());
        } else if comment == "commands: run" {
            fate = Fate::Run(None);
        } else if let Some(user) = comment.strip_prefix("commands: run as ") {
            fate = Fate::Run(Some(user.to_owned()));
        } else if let Some(shell) = comment.strip_prefix("before: ") {
            before.insert(0, shell.to_owned());
        } else {
            break;
        }
    }
    (fate, before)
}

/// The commands of a block, in order.
pub(crate) fn steps(block: &Block) -> Vec<Step> {
    let with_prompts = block.text.iter().any(|line| prompt(line).is_some());
    if !with_prompts {
        return vec![Step {
            host: None,
            command: block.text.join("\n"),
            typed: Vec::new(),
            shown: None,
        }];
    }
    let mut steps: Vec<Step> = Vec::new();
    for line in &block.text {
        match (prompt(line), steps.last_mut()) {
            (Some((host, command)), _) => steps.push(Step {
                host: (!host.is_empty()).then(|| host.to_owned()),
                command: command.to_owned(),
                typed: Vec::new(),
                shown: Some(Vec::new()),
            }),
            (None, Some(step)) if is_unfinished(&step.command) => {
                step.command.push('\n');
                step.command.push_str(line);
            }
            (None, Some(step)) if line.starts_with(SQLITE_PROMPT) => {
                step.typed.push(line[SQLITE_PROMPT.len()..].to_owned());
            }
            (None, Some(step)) => step.shown.get_or_insert_default().push(line.clone()),
            (None, None) => {}
        }
    }
    steps
}

/// Whether a shell would ask for another line: an open quotation mark, or a backslash at the end.
fn is_unfinished(command: &str) -> bool {
    let mut open = None;
    for c in command.chars() {
        match open {
            None if matches!(c, '"' | '\'') => open = Some(c),
            Some(mark) if mark == c => open = None,
            _ => {}
        }
    }
    open.is_some() || command.ends_with('\\')
}
