//! Goal: Intel's judgement is taken from files as its service answers, and every file that is wrong
//! is named with what is wrong. Method: the options as clap parses them, on genuine answers
//! (testing/vectors/attestation) at a time when they were valid.

use clap::Parser;

use super::super::ReportTrust;
use super::*;

/// 1 July 2025.
const JULY_2025: u64 = 1_751_328_000;
const MONTH: u64 = 30 * 86_400;

#[derive(Parser)]
struct Words {
    #[command(flatten)]
    trust: ReportTrust,
}

fn vector(name: &str) -> PathBuf {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/vectors/attestation");
    vectors.join(name)
}

/// A measurement, and these words; `@` before a word names a vector.
fn parse(words: &str) -> Result<ReportTrust, clap::Error> {
    let digest = "01".repeat(48);
    let fixed = format!("proxy --tdx-measurement mrtd={digest},rtmr1={digest},rtmr2={digest}");
    let words = fixed.split(' ').chain(words.split(' ')).map(|word| {
        let path = word.strip_prefix('@').map(vector);
        path.map_or_else(|| word.to_owned(), |path| path.display().to_string())
    });
    Words::try_parse_from(words).map(|words| words.trust)
}

/// Words that clap takes.
fn options(words: &str) -> ReportTrust {
    parse(words).unwrap()
}

/// The policy that these words say at `now`, or the failure's number and text.
fn policy(words: &str, now: u64) -> Result<Option<TdxPolicy>, (u16, String)> {
    let policy = options(words).tdx_at(now);
    policy.map_err(|failure| (failure.code().number, failure.detail().to_owned()))
}

const INFO: &str = "--tdx-tcb-info @intel-b0c0.tcb-info.json";
const OTHERS: &str =
    "--tdx-qe-identity @intel-2025.qe-identity.json --tdx-tcb-signer @intel-tcb-signer.pem";

#[test]
fn intels_judgement_takes_the_place_of_a_level() {
    let words =
        format!("{INFO} {OTHERS} --tdx-accept out-of-date --tdx-accept sw-hardening-needed");
    let told = policy(&words, JULY_2025).unwrap().unwrap();
    let judgement = told.collateral.unwrap();
    let accepted = [TcbStatus::OutOfDate, TcbStatus::SwHardeningNeeded];
    assert_eq!(judgement.accepted, accepted);
    assert!(judgement.grace_days == 0 && told.minimum.is_empty());
    let svn = "00".repeat(16);
    let level = format!("--tdx-min-tcb fmspc=B0C06F000000,sgx={svn},pce=11,tdx={svn}");
    let both = policy(&format!("{INFO} {OTHERS} {level}"), JULY_2025);
    let both = both.unwrap().unwrap();
    assert!(both.collateral.is_some() && both.minimum.len() == 1);
    let level_alone = policy(&level, 0).unwrap().unwrap();
    assert!(level_alone.collateral.is_none());
}

#[test]
fn options_that_need_each_other_are_asked_for_together() {
    for wrong in [
        "--tdx-min-qe-svn 4",
        INFO,
        OTHERS,
        "--tdx-tcb-info @intel-b0c0.tcb-info.json --tdx-qe-identity @intel-2025.qe-identity.json",
        "--tdx-tcb-info @intel-b0c0.tcb-info.json --tdx-tcb-signer @intel-tcb-signer.pem",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
    for never in ["revoked", "up-to-date", "Revoked", "unknown", ""] {
        let words = format!("{INFO} {OTHERS} --tdx-accept {never}");
        assert!(parse(&words).is_err(), "{never}");
    }
    for wrong in ["-1", "65536", "x"] {
        let words = format!("{INFO} {OTHERS} --tdx-tcb-grace {wrong}");
        assert!(parse(&words).is_err(), "{wrong}");
    }
    let svn = "00".repeat(16);
    let level = format!("--tdx-min-tcb fmspc=B0C06F000000,sgx={svn},pce=11,tdx={svn}");
    for wrong in ["--tdx-accept out-of-date", "--tdx-tcb-grace 1"] {
        assert!(parse(&format!("{level} {wrong}")).is_err(), "{wrong}");
    }
}

#[test]
fn what_has_expired_is_refused_unless_days_of_grace_are_named() {
    let at = |more: &str, now| policy(&format!("{INFO} {OTHERS}{more}"), now);
    let late = JULY_2025 + MONTH;
    let (code, text) = at("", late).unwrap_err();
    assert_eq!(code, 1001);
    assert!(text.contains("--tdx-tcb-grace"), "{text}");
    assert!(at(" --tdx-tcb-grace 11", late).is_err());
    assert!(at(" --tdx-tcb-grace 12", late).is_ok());
}

#[test]
fn a_file_that_is_wrong_is_named() {
    let refused = |info: &str, identity: &str, signer: &str| {
        let words =
            format!("--tdx-tcb-info {info} --tdx-qe-identity {identity} --tdx-tcb-signer {signer}");
        policy(&words, JULY_2025).unwrap_err()
    };
    let (info, identity, signer) = (
        "@intel-b0c0.tcb-info.json",
        "@intel-2025.qe-identity.json",
        "@intel-tcb-signer.pem",
    );
    for ((code, text), named, why) in [
        (refused(identity, identity, signer), "qe-identity", "JSON"),
        (refused(info, info, signer), "tcb-info", "JSON"),
        (
            refused(info, identity, info),
            "tcb-info",
            "Intel SGX TCB Signing",
        ),
        (
            refused(info, identity, "@made/tcb-signer-right.pem"),
            "tcb-signer-right",
            "Intel's root",
        ),
        (
            refused("@made/tcb-info-right.json", identity, signer),
            "tcb-info-right",
            "not signed by the key of --tdx-tcb-signer",
        ),
        (
            refused(info, "@made/tcb-enclave-right.json", signer),
            "tcb-enclave-right",
            "not signed by the key of --tdx-tcb-signer",
        ),
        (
            refused("/dev/zero", identity, signer),
            "/dev/zero",
            "larger",
        ),
        (
            refused(&format!("{info} --tdx-tcb-info {info}"), identity, signer),
            "--tdx-tcb-info",
            "the same family",
        ),
    ] {
        assert_eq!(code, 1001, "{text}");
        assert!(text.contains(named) && text.contains(why), "{text}");
    }
    let (code, _) = refused("@nothing", identity, signer);
    assert_eq!(code, 5001);
}
