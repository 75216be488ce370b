//! Goal: `strongroom columns zone` asks the kernel for reports of a confidential virtual machine
//! behind its closed sandbox, for the channel at hand, and gives none that another process may have
//! asked for. Method: the real command on a directory with pipes, at whose other ends this
//! test answers as Linux does (`Documentation/ABI/testing/configfs-tsm-report`); it is asked
//! over its socket as a PostgreSQL backend asks it.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use common::Place;
use strongroom_columns_proxy::channel::{
    AttestationPolicy, AttestationRequest, ChannelError, SnpPolicy, read_certificates,
};
use strongroom_format::columns::channel::{Attestation, AttestationProvider};
use strongroom_format::columns::sev_snp::{SnpEvidence, SnpTcb};
use strongroom_format::columns::tdx::TdxQuote;

use crate::columns_tpm::{Running, attest, connected, zone_attested_by};

/// The hardware behind a kernel that this test plays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plays {
    SevSnp,
    Tdx,
}

fn vector(name: &str) -> Vec<u8> {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/vectors/attestation");
    fs::read(vectors.join(name)).unwrap()
}

/// A published report, with these data in place of its own, so that its signature is wrong; and the
/// certificates of the host.
fn report(plays: Plays, data: &[u8]) -> (Vec<u8>, Vec<u8>) {
    if plays == Plays::Tdx {
        let mut quote = vector("tdx-azure.quote");
        quote[568..632].copy_from_slice(data);
        // As a host fills its buffer up.
        quote.extend_from_slice(&[0; 70]);
        return (quote, Vec::new());
    }
    let mut report = vector("snp-milan.report");
    report[80..144].copy_from_slice(data);
    let certificate = vector("snp-milan.vcek.der");
    let mut table = vec![1; 16];
    table.extend_from_slice(&48_u32.to_le_bytes());
    table.extend_from_slice(&u32::try_from(certificate.len()).unwrap().to_le_bytes());
    table.extend_from_slice(&[0; 24]);
    table.extend_from_slice(&certificate);
    (report, table)
}

/// Makes an entry, and answers in it until the test ends. With each report, `generation` goes up
/// by `steps`.
fn kernel(place: &Place, plays: Plays, steps: u32) -> PathBuf {
    let entry = place.path("entry");
    fs::create_dir(&entry).unwrap();
    let provider = if plays == Plays::Tdx {
        "tdx_guest\n"
    } else {
        "sev_guest\n"
    };
    place.write("entry/provider", provider);
    place.write("entry/generation", "7\n");
    for pipe in ["inblob", "outblob", "auxblob"] {
        let made = Command::new("mkfifo").arg(entry.join(pipe)).status();
        assert!(made.unwrap().success());
    }
    let served = entry.clone();
    thread::spawn(move || serve(&served, plays, steps));
    entry
}

/// Answers one question after the other. Each opening of a pipe waits for the other end, so that
/// the zone is waiting for `outblob` while `generation` is written.
fn serve(entry: &Path, plays: Plays, steps: u32) {
    let give = |name: &str, content: &[u8]| {
        let mut pipe = OpenOptions::new()
            .write(true)
            .open(entry.join(name))
            .unwrap();
        // The reader may have enough, and close its end.
        drop(pipe.write_all(content));
    };
    let mut generation = 7_u32;
    loop {
        let mut data = Vec::new();
        let mut pipe = fs::File::open(entry.join("inblob")).unwrap();
        pipe.read_to_end(&mut data).unwrap();
        generation += steps;
        let mut file = fs::File::create(entry.join("generation")).unwrap();
        file.write_all(format!("{generation}\n").as_bytes())
            .unwrap();
        let (out, aux) = report(plays, &data);
        give("outblob", &out);
        if plays == Plays::SevSnp {
            give("auxblob", &aux);
        }
    }
}

fn zone(place: &Place, kind: &str, entry: &Path) -> Command {
    let mut command = zone_attested_by(place, kind);
    command.arg("--tsm").arg(entry);
    command
}

/// A place with a key for a zone.
fn place() -> Place {
    let place = Place::new();
    place.write("key", [7; 32]);
    place
}

#[test]
fn a_zone_asks_for_reports_behind_its_sandbox() {
    for (plays, kind) in [(Plays::SevSnp, "sev-snp"), (Plays::Tdx, "tdx")] {
        let place = place();
        let entry = kernel(&place, plays, 1);
        let running = Running(zone(&place, kind, &entry).spawn().unwrap());
        let mut host = connected(&place);
        for _ in 0..2 {
            let question = AttestationRequest::new().unwrap();
            let answer = attest(&mut host, &question);
            let parsed = Attestation::parse(&answer).unwrap();
            let data = if plays == Plays::SevSnp {
                assert_eq!(parsed.provider, AttestationProvider::SevSnp);
                let evidence = SnpEvidence::parse(&parsed.evidence).unwrap();
                assert_eq!(evidence.certificates, [&vector("snp-milan.vcek.der")[..]]);
                evidence.report.report_data.to_vec()
            } else {
                assert_eq!(parsed.provider, AttestationProvider::Tdx);
                TdxQuote::parse(&parsed.evidence)
                    .unwrap()
                    .report
                    .report_data
                    .to_vec()
            };
            let binding = strongroom_columns_zone::session::attest::binding(&parsed);
            assert_eq!(data, [binding, [0; 32]].concat());
            // This test has no processor that signs.
            let mut policy = SnpPolicy::new(vec![[0; 48]], SnpTcb::default());
            policy.certificates = read_certificates(&vector("ark-ask-milan.pem")).unwrap();
            let accepted = AttestationPolicy {
                sev_snp: Some(policy),
                ..AttestationPolicy::default()
            };
            let refused = match plays {
                Plays::SevSnp => ChannelError::Signature,
                Plays::Tdx => ChannelError::NoPolicy,
            };
            assert_eq!(question.check(&answer, &accepted).unwrap_err(), refused);
        }
        drop(host);
        running.stop();
    }
}

fn said(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_zone_does_not_start_without_a_report_of_its_own() {
    let refused = |place: &Place, kind: &str, entry: &Path| {
        let text = said(&zone(place, kind, entry).output().unwrap());
        assert!(text.contains("SR-5001"), "{text}");
        assert!(!place.path("state").exists(), "no store was made");
        text
    };
    let one = place();
    let text = refused(&one, "sev-snp", &one.path("missing/entry"));
    assert!(text.contains("missing/entry"), "{text}");
    let entry = kernel(&one, Plays::Tdx, 1);
    let text = refused(&one, "sev-snp", &entry);
    assert!(text.contains("tdx_guest"), "{text}");
    // Somebody else writes to the entry while the report is made.
    let other = place();
    let entry = kernel(&other, Plays::SevSnp, 2);
    let text = refused(&other, "sev-snp", &entry);
    assert!(text.contains("another process"), "{text}");
}
