//! One process of one engine: a script in, answers out.
//!
//! Must not: count an answer that is not asked to be measured.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use strongroom_benches::Failure;

/// What the measured lines of a script took together, and what they returned.
#[derive(Debug, PartialEq)]
pub(crate) struct Done {
    /// Seconds; bytes where the command says so.
    pub(crate) amount: f64,
    pub(crate) digest: String,
}

/// Lines for a driver: some make ready, some are measured, some only prove that the results agree.
#[derive(Clone, Default)]
pub(crate) struct Script {
    /// Before the clock; answers nothing.
    pub(crate) before: String,
    /// Each answers.
    pub(crate) measured: Vec<String>,
    /// Each answers; not counted, but compared.
    pub(crate) compared: Vec<String>,
    /// After; answers nothing.
    pub(crate) after: String,
}

impl Script {
    fn text(&self) -> String {
        let mut text = self.before.clone();
        for line in self.measured.iter().chain(&self.compared) {
            text.push_str(line);
            text.push('\n');
        }
        text.push_str(&self.after);
        text
    }
}

/// Runs a script to its end.
pub(crate) fn run(program: &Path, script: &Script) -> Result<Done, Failure> {
    let (output, _) = spoken(Command::new(program), &script.text())?;
    understood(&output, script)
}

/// Runs the lines of which nothing is measured.
pub(crate) fn prepare(program: &Path, lines: &str) -> Result<String, Failure> {
    Ok(spoken(Command::new(program), lines)?.0)
}

/// Instructions of the measured lines in user mode, by callgrind; its profile goes to `profile`.
pub(crate) fn counted(program: &Path, script: &Script, profile: &Path) -> Result<u64, Failure> {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(program);
    let only = Script {
        compared: Vec::new(),
        ..script.clone()
    };
    let (_, said) = spoken(command, &only.text())?;
    collected(&said).ok_or_else(|| format!("callgrind counted nothing: {said}").into())
}

/// "==7== Collected : 1234567"
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// Output and errors of a driver that ended well.
fn spoken(mut command: Command, text: &str) -> Result<(String, String), Failure> {
    let mut child = quiet(&mut command).stderr(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().ok_or("no standard input")?;
    // A driver answers little; its pipe does not fill up while it is being written to.
    let written = input.write_all(text.as_bytes());
    drop(input);
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(format!("a driver failed: {said}").into());
    }
    written?;
    Ok((String::from_utf8(output.stdout)?, said))
}

/// The VFS's warning of CTR is not for every round.
fn quiet(command: &mut Command) -> &mut Command {
    command
        .env("STRONGROOM_LOG", "off")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
}

fn understood(output: &str, script: &Script) -> Result<Done, Failure> {
    let answers: Vec<&str> = output.lines().collect();
    if answers.len() != script.measured.len() + script.compared.len() {
        return Err(format!("{} answers: {output}", answers.len()).into());
    }
    let mut done = Done {
        amount: 0.0,
        digest: String::new(),
    };
    for (index, answer) in answers.into_iter().enumerate() {
        let (amount, digest) = answer.split_once(' ').ok_or("not an answer")?;
        if index < script.measured.len() {
            done.amount += amount.parse::<f64>()?;
        }
        done.digest.push_str(digest);
    }
    Ok(done)
}

/// Several drivers that do the same at once.
pub(crate) struct Crowd {
    members: Vec<(Child, ChildStdin, BufReader<ChildStdout>)>,
}

impl Crowd {
    /// Starts one for each script, ready to measure.
    pub(crate) fn start(program: &Path, scripts: &[Script]) -> Result<Self, Failure> {
        let mut members = Vec::new();
        for script in scripts {
            let mut child = quiet(&mut Command::new(program)).spawn()?;
            let mut input = child.stdin.take().ok_or("no standard input")?;
            let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
            // Its answer says that everything before it is done.
            input.write_all(format!("{}about\n", script.before).as_bytes())?;
            input.flush()?;
            let mut ready = String::new();
            output.read_line(&mut ready)?;
            if ready.is_empty() {
                return Err("a driver ended before it was ready".into());
            }
            members.push((child, input, output));
        }
        Ok(Self { members })
    }

    /// Lets all go at once: from then until the last has ended, and what they returned.
    pub(crate) fn go(self, scripts: &[Script]) -> Result<Done, Failure> {
        let begin = Instant::now();
        let mut working = Vec::new();
        for ((child, mut input, output), script) in self.members.into_iter().zip(scripts) {
            let line = script.measured.join("\n");
            input.write_all(format!("{line}\n").as_bytes())?;
            drop(input);
            working.push((child, output));
        }
        let mut digest = String::new();
        let mut last = Duration::ZERO;
        for (mut child, mut output) in working {
            let mut text = String::new();
            output.read_to_string(&mut text)?;
            if !child.wait()?.success() {
                return Err("one of several drivers failed".into());
            }
            last = begin.elapsed();
            digest.push_str(text.split_whitespace().nth(1).ok_or("no answer")?);
        }
        Ok(Done {
            amount: last.as_secs_f64(),
            digest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Script, collected, understood};

    #[test]
    fn only_what_is_measured_counts_and_all_is_compared() {
        let script = Script {
            measured: vec!["a".to_owned(), "b".to_owned()],
            compared: vec!["c".to_owned()],
            ..Script::default()
        };
        let done = understood("0.5 aa\n0.25 bb\n9.0 cc\n", &script).unwrap();
        assert!((done.amount - 0.75).abs() < 1e-9);
        assert_eq!(done.digest, "aabbcc");
        understood("0.5 aa\n", &script).unwrap_err();
    }

    #[test]
    fn callgrinds_last_words_are_understood() {
        let said = "==7== Events    : Ir\n==7== Collected : 1234567\n==7== \n";
        assert_eq!(collected(said), Some(1_234_567));
        assert_eq!(collected("nothing"), None);
    }
}
