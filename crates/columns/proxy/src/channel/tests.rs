//! Goal: a report of a confidential virtual machine counts for the channel that it is for, and for
//! a kind of report that the owner accepts. Method: reports of a root that only these tests trust,
//! for a request whose nonce is known; published ones, which are for other purposes.

use std::path::Path;

use strongroom_format::columns::sev_snp::SnpTcb;

use super::*;

/// Reads a vector of `testing/vectors/attestation`.
pub(super) fn file(name: &str) -> Vec<u8> {
    let vectors =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testing/vectors/attestation");
    std::fs::read(vectors.join(name)).unwrap()
}

/// A report of SEV-SNP and its certificates as Linux gives them, in one table.
pub(super) fn snp_evidence(report: &[u8], certificates: &[Vec<u8>]) -> Vec<u8> {
    let mut entries = Vec::new();
    let mut offset = (certificates.len() + 1) * 24;
    for certificate in certificates {
        entries.extend_from_slice(&[7; 16]);
        for number in [offset, certificate.len()] {
            entries.extend_from_slice(&u32::try_from(number).unwrap().to_le_bytes());
        }
        offset += certificate.len();
    }
    [report, &entries, &[0; 24], &certificates.concat()].concat()
}

fn made_report(name: &str) -> Vec<u8> {
    let certificates = ["vcek", "ask", "ark"].map(|name| file(&format!("made/snp-{name}.der")));
    let report = file(&format!("made/snp-{name}.report"));
    snp_evidence(&report, &certificates)
}

fn made_quote(name: &str) -> Vec<u8> {
    file(&format!("made/tdx-{name}.quote"))
}

/// Accepts what `generate.py` has made, of both kinds.
fn accepted() -> AttestationPolicy {
    let measurement = TdMeasurement {
        mrtd: [1; 48],
        rtmr: [2, 3, 4, 5].map(|byte| Some([byte; 48])),
        mrconfigid: Some([6; 48]),
    };
    let minimum = TdxTcb {
        fmspc: [0, 0x80, 0x6f, 5, 0, 0],
        sgx: [5; 16],
        pce: 11,
        tdx: [4, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    };
    AttestationPolicy {
        sev_snp: Some(SnpPolicy {
            roots: vec![key_digest(&file("made/snp-ark.der")).unwrap()],
            ..SnpPolicy::new(vec![[0x55; 48]], SnpTcb::default())
        }),
        tdx: Some(TdxPolicy {
            root: key_digest(&file("made/tdx-root.der")).unwrap(),
            ..TdxPolicy::new(vec![measurement], vec![minimum])
        }),
        ..AttestationPolicy::default()
    }
}

/// The attestation for which `generate.py` has made reports.
fn attestation(provider: AttestationProvider, evidence: Vec<u8>) -> Attestation {
    Attestation {
        provider,
        store_id: [5; 16],
        incarnation: [6; 16],
        public_key: [7; 32],
        nonce: [9; 32],
        proofs: Vec::new(),
        evidence,
    }
}

fn check(attestation: &Attestation, accepted: &AttestationPolicy) -> Result<(), ChannelError> {
    let request = AttestationRequest {
        nonce: [9; 32],
        asked: Instant::now(),
        time_limit: Duration::from_secs(60),
    };
    request.check(&attestation.to_bytes(), accepted).map(drop)
}

const SNP: AttestationProvider = AttestationProvider::SevSnp;
const TDX: AttestationProvider = AttestationProvider::Tdx;

#[test]
fn a_report_has_to_be_for_this_channel() {
    let accepted = accepted();
    for (provider, bound, others) in [
        (
            SNP,
            made_report("bound"),
            ["right", "bound-and-more"].map(made_report),
        ),
        (
            TDX,
            made_quote("bound"),
            ["right", "bound-and-one"].map(made_quote),
        ),
    ] {
        let right = attestation(provider, bound);
        assert_eq!(check(&right, &accepted), Ok(()));
        for other in others {
            let other = attestation(provider, other);
            assert_eq!(check(&other, &accepted), Err(ChannelError::Unbound));
        }
        let mut another_key = right.clone();
        another_key.public_key[31] ^= 1;
        assert_eq!(check(&another_key, &accepted), Err(ChannelError::Unbound));
        let mut another_store = right.clone();
        another_store.store_id[0] ^= 1;
        assert_eq!(check(&another_store, &accepted), Err(ChannelError::Unbound));
        let mut with_proof = right.clone();
        with_proof.proofs.push(([1; 16], [2; 32]));
        assert_eq!(check(&with_proof, &accepted), Err(ChannelError::Unbound));
        let mut old = right;
        old.nonce[0] ^= 1;
        assert_eq!(check(&old, &accepted), Err(ChannelError::Replayed));
    }
}

/// Genuine, with the measurement that the policy names, and for somebody else's purpose: two of
/// them have 32 bytes of data and zeros, as ours do.
#[test]
fn a_genuine_report_that_is_not_for_this_channel_is_refused() {
    let report = file("snp-milan-bound.report");
    let mut certificates = vec![file("snp-milan-bound.vcek.der")];
    certificates.extend(read_certificates(&file("ark-ask-milan.pem")).unwrap());
    let measurement = report[144..192].try_into().unwrap();
    let mut accepted = accepted();
    accepted.sev_snp = Some(SnpPolicy::new(vec![measurement], SnpTcb::default()));
    let evidence = snp_evidence(&report, &certificates);
    let given = attestation(SNP, evidence);
    assert_eq!(check(&given, &accepted), Err(ChannelError::Unbound));
    // Within the policy it is only what the report is for that is wrong.
    accepted.sev_snp = Some(SnpPolicy::new(Vec::new(), SnpTcb::default()));
    assert_eq!(check(&given, &accepted), Err(ChannelError::Launch));
}

#[test]
fn a_kind_of_report_without_a_policy_is_refused() {
    let both = accepted();
    let snp = attestation(SNP, made_report("bound"));
    let tdx = attestation(TDX, made_quote("bound"));
    let only_tdx = AttestationPolicy {
        sev_snp: None,
        ..both.clone()
    };
    let only_snp = AttestationPolicy {
        tdx: None,
        ..both.clone()
    };
    assert_eq!(check(&snp, &only_tdx), Err(ChannelError::NoPolicy));
    assert_eq!(check(&tdx, &only_tdx), Ok(()));
    assert_eq!(check(&tdx, &only_snp), Err(ChannelError::NoPolicy));
    assert_eq!(check(&snp, &only_snp), Ok(()));
    // One kind does not pass for another, whatever a policy accepts.
    for (provider, evidence) in [(SNP, &tdx.evidence), (TDX, &snp.evidence)] {
        let mixed = attestation(provider, evidence.clone());
        assert_eq!(check(&mixed, &both), Err(ChannelError::Malformed));
    }
    let unsigned = AttestationPolicy {
        process: true,
        ..both.clone()
    };
    for provider in [AttestationProvider::Process, AttestationProvider::Tpm] {
        let other = attestation(provider, snp.evidence.clone());
        assert!(check(&other, &unsigned).is_err());
    }
    // Digests of programs are in no report.
    let measured = AttestationPolicy {
        measurements: vec![[0; 32]],
        ..both
    };
    assert_eq!(check(&snp, &measured), Err(ChannelError::Measurement));
    assert_eq!(check(&tdx, &measured), Err(ChannelError::Measurement));
}
