//! The settings by which a restored PostgreSQL cluster recovers from an archive.
//!
//! Must not: hold a secret.

use strongroom_postgres_replication::Lsn;

/// Resets every setting of a recovery target (PostgreSQL documentation, "Recovery Target"). The
/// server goes on when recovery ends.
const RESET: &str = "\
recovery_target = ''
recovery_target_name = ''
recovery_target_time = ''
recovery_target_xid = ''
recovery_target_lsn = ''
recovery_target_inclusive = on
recovery_target_timeline = 'latest'
recovery_target_action = 'promote'
";

/// How far the log is replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveryTarget {
    /// To this time, as `recovery_target_time` takes it.
    Time(String),
    /// To this position of the log.
    Lsn(Lsn),
    /// To the end of the archive.
    End,
}

/// The text of the settings of a recovery, for `postgresql.auto.conf`: `restore_command`, which
/// brings a file of the archive, and the target. Nothing is written.
pub(crate) fn recovery_settings(restore_command: &str, target: RecoveryTarget) -> String {
    let mut out = String::from("# Written by strongroom backup restore.\n");
    out.push_str(&format!("restore_command = {}\n", quoted(restore_command)));
    // A cluster that was recovered before still has the settings of that recovery. PostgreSQL takes
    // the last setting of a name, but refuses two targets: the target comes after all others are
    // reset.
    out.push_str(RESET);
    let target = match target {
        RecoveryTarget::Time(time) => Some(("recovery_target_time", time)),
        RecoveryTarget::Lsn(lsn) => Some(("recovery_target_lsn", lsn.to_string())),
        RecoveryTarget::End => None,
    };
    if let Some((name, value)) = target {
        out.push_str(&format!("{name} = {}\n", quoted(&value)));
    }
    out
}

/// A string as postgresql.conf takes it (src/backend/utils/misc/guc-file.l), with quotes and
/// backslashes doubled.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', r"\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn strings_are_quoted_as_the_server_reads_them() {
        assert_eq!(quoted(r"it's \x"), r"'it''s \\x'");
    }
}
