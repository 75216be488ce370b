//! Goal: genuine reports of AMD's processors are accepted where the policy names what they say, and
//! nothing else is. Method: published reports (testing/vectors/attestation/README.md) with one
//! thing changed at a time; and reports of a root that only these tests trust, each with one fault
//! that no signature shows.

use strongroom_format::columns::sev_snp::snp_report_layout;

use super::*;
use crate::channel::tests::{file, snp_evidence as evidence};
use crate::channel::x509::{key_digest, read_certificates};

/// 1 July 2025, when the published VLEK was valid.
const NOW: u64 = 1_751_328_000;

fn chain(product: &str) -> Vec<Vec<u8>> {
    read_certificates(&file(&format!("ark-ask-{product}.pem"))).unwrap()
}

/// A published report: its files, its chain, and the versions and measurement that it has.
struct Genuine {
    report: Vec<u8>,
    certificates: Vec<Vec<u8>>,
    policy: SnpPolicy,
}

impl Genuine {
    fn new(name: &str, signer: &str, product: &str, tcb: [u8; 4]) -> Self {
        let report = file(&format!("snp-{name}.report"));
        let mut certificates = vec![file(&format!("snp-{name}.{signer}.der"))];
        certificates.extend(chain(product));
        let [boot_loader, tee, snp, microcode] = tcb;
        let minimum = SnpTcb {
            boot_loader,
            tee,
            snp,
            microcode,
            fmc: 0,
        };
        let measurement = report[144..192].try_into().unwrap();
        let policy = SnpPolicy::new(vec![measurement], minimum);
        Self {
            report,
            certificates,
            policy,
        }
    }

    fn milan() -> Self {
        Self::new("milan", "vcek", "milan", [3, 0, 8, 0x73])
    }

    fn evidence(&self) -> Vec<u8> {
        evidence(&self.report, &self.certificates)
    }

    fn verify(&self) -> Result<Vec<u8>, ChannelError> {
        verify(&self.evidence(), &self.policy, NOW).map(<[u8]>::to_vec)
    }
}

#[test]
fn genuine_reports_are_accepted() {
    let genoa = Genuine::new("genoa", "vcek", "genoa", [10, 0, 23, 84]);
    let bound = Genuine::new("milan-bound", "vcek", "milan", [3, 0, 8, 0x73]);
    for mut genuine in [Genuine::milan(), genoa, turin(), bound] {
        let data = genuine.report[80..144].to_vec();
        assert_eq!(genuine.verify(), Ok(data.clone()));
        // The same with the certificates from the owner, in part or all.
        for kept in [2, 1, 0] {
            let mut given = genuine.certificates.clone();
            genuine.policy.certificates = given.split_off(kept);
            let bytes = evidence(&genuine.report, &given);
            assert_eq!(verify(&bytes, &genuine.policy, NOW), Ok(&data[..]));
        }
        let bare = verify(&genuine.report, &genuine.policy, NOW);
        assert_eq!(bare, Ok(&data[..]), "without a table");
        // Dates do not count for a chip's own key.
        let certificates = std::mem::take(&mut genuine.policy.certificates);
        let bytes = evidence(&genuine.report, &certificates);
        assert_eq!(verify(&bytes, &genuine.policy, 0), Ok(&data[..]));
        // What a host puts into its table besides is passed over.
        let more = [&certificates[..], &[b"no certificate".to_vec()]].concat();
        let bytes = evidence(&genuine.report, &more);
        assert_eq!(verify(&bytes, &genuine.policy, NOW), Ok(&data[..]));
    }
}

/// Signed by AMD's hardware: from a guest whose host may read its memory.
#[test]
fn a_genuine_report_of_a_guest_with_debugging_is_refused() {
    let genuine = Genuine::new("milan-debug", "vcek", "milan", [2, 0, 5, 0x44]);
    assert_eq!(genuine.verify(), Err(ChannelError::Guest));
}

#[test]
fn a_key_of_a_cloud_is_taken_only_where_it_is_allowed_and_valid() {
    let mut genuine = Genuine::new("milan-vlek", "vlek", "milan-vlek", [4, 0, 24, 0xd9]);
    assert_eq!(genuine.verify(), Err(ChannelError::Guest));
    genuine.policy.vlek = true;
    // The guest's system ran at VMPL 1.
    assert_eq!(genuine.verify(), Err(ChannelError::Guest));
    genuine.policy.highest_vmpl = 1;
    assert!(genuine.verify().is_ok());
    // 1 December 2024 and 1 January 2026: before it was issued, after it has expired.
    for now in [0, 1_733_011_200, 1_767_225_600, u64::MAX] {
        let bytes = genuine.evidence();
        let refused = verify(&bytes, &genuine.policy, now);
        assert_eq!(refused, Err(ChannelError::Dates), "{now}");
    }
    // The chain of keys of chips is another one.
    genuine.certificates.truncate(1);
    genuine.certificates.extend(chain("milan"));
    assert_eq!(genuine.verify(), Err(ChannelError::Chain));
}

#[test]
fn every_changed_byte_is_refused() {
    let genuine = Genuine::milan();
    let bytes = genuine.evidence();
    for at in 0..snp_report_layout::SIZE {
        let mut forged = bytes.clone();
        forged[at] ^= 1 << (at % 8);
        let refused = verify(&forged, &genuine.policy, NOW);
        assert!(refused.is_err(), "byte {at}");
    }
    // Every bit of the policy, the versions and the measurement.
    for bit in [8, 384, 480, 496]
        .into_iter()
        .chain(144..192)
        .flat_map(|at| at * 8..at * 8 + 8)
    {
        let mut forged = bytes.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let refused = verify(&forged, &genuine.policy, NOW);
        assert_eq!(refused, Err(ChannelError::Signature), "bit {bit}");
    }
    let mut zeros = bytes;
    zeros[672..816].fill(0);
    let refused = verify(&zeros, &genuine.policy, NOW);
    assert_eq!(refused, Err(ChannelError::Signature), "r and s are zero");
}

/// The certificates of the chip and of the issuer; of the root only its key counts, which is
/// pinned.
#[test]
fn every_changed_byte_of_a_certificate_is_refused() {
    let mut genuine = Genuine::milan();
    for which in 0..2 {
        for at in (0..genuine.certificates[which].len()).step_by(3) {
            genuine.certificates[which][at] ^= 1 << (at % 8);
            assert!(genuine.verify().is_err(), "certificate {which}, byte {at}");
            genuine.certificates[which][at] ^= 1 << (at % 8);
        }
    }
    assert!(genuine.verify().is_ok());
}

#[test]
fn what_is_cut_or_too_long_is_refused() {
    let genuine = Genuine::milan();
    let bytes = genuine.evidence();
    for cut in 0..bytes.len() {
        let refused = verify(&bytes[..cut], &genuine.policy, NOW);
        assert!(refused.is_err(), "{cut} bytes");
    }
    for more in [1, 24, 4096] {
        let longer = [&bytes[..], &vec![0; more]].concat();
        let refused = verify(&longer, &genuine.policy, NOW);
        assert_eq!(refused, Err(ChannelError::Malformed), "{more} bytes");
    }
}

#[test]
fn certificates_have_to_be_those_of_the_report() {
    let genuine = Genuine::milan();
    let with = |certificates: &[Vec<u8>]| {
        let bytes = evidence(&genuine.report, certificates);
        verify(&bytes, &genuine.policy, NOW).map(drop)
    };
    let [vcek, ask, ark] = genuine.certificates.clone().try_into().unwrap();
    assert_eq!(with(&[ark.clone(), vcek.clone(), ask.clone()]), Ok(()));
    assert_eq!(with(&[]), Err(ChannelError::Chain));
    assert_eq!(with(&[ask.clone(), ark.clone()]), Err(ChannelError::Chain));
    assert_eq!(with(&[vcek.clone(), ark.clone()]), Err(ChannelError::Chain));
    assert_eq!(with(&[vcek.clone(), ask.clone()]), Err(ChannelError::Chain));
    // Another chip's key, another processor's chain, a made one's.
    let other = file("snp-milan-debug.vcek.der");
    let swapped = [other.clone(), ask.clone(), ark.clone()];
    assert_eq!(with(&swapped), Err(ChannelError::Signature));
    assert_eq!(
        with(&[other, vcek.clone(), ask, ark]),
        Ok(()),
        "the right one is among them"
    );
    for product in ["genoa", "turin", "milan-vlek"] {
        let certificates = [&[vcek.clone()][..], &chain(product)].concat();
        assert_eq!(with(&certificates), Err(ChannelError::Chain), "{product}");
    }
    let made = ["ark", "ask"].map(|name| file(&format!("made/snp-{name}.der")));
    let certificates = [&[vcek][..], &made].concat();
    assert_eq!(with(&certificates), Err(ChannelError::Chain));
}

#[test]
fn the_root_is_one_that_is_trusted() {
    let mut genuine = Genuine::milan();
    let [milan, genoa, turin] = AMD_ROOTS;
    for (product, root) in [("milan", milan), ("genoa", genoa), ("turin", turin)] {
        assert_eq!(key_digest(&chain(product)[1]), Some(root), "{product}");
    }
    genuine.policy.roots = vec![genoa, turin];
    assert_eq!(genuine.verify(), Err(ChannelError::Chain));
    genuine.policy.roots = vec![milan];
    assert!(genuine.verify().is_ok());
    // The issuer is none, should somebody name it.
    genuine.policy.roots = vec![key_digest(&genuine.certificates[1]).unwrap()];
    assert_eq!(genuine.verify(), Err(ChannelError::Chain));
    genuine.policy.roots.clear();
    assert_eq!(genuine.verify(), Err(ChannelError::Chain));
}

/// Another order of the versions, and a chip's number of eight bytes.
#[test]
fn a_genuine_report_of_turin_is_accepted() {
    let genuine = turin();
    let data = genuine.report[80..144].to_vec();
    assert_eq!(genuine.verify(), Ok(data));
    let newer = [
        SnpTcb {
            fmc: 2,
            ..genuine.policy.minimum
        },
        SnpTcb {
            boot_loader: 4,
            ..genuine.policy.minimum
        },
        SnpTcb {
            tee: 3,
            ..genuine.policy.minimum
        },
        SnpTcb {
            snp: 6,
            ..genuine.policy.minimum
        },
        SnpTcb {
            microcode: 0x62,
            ..genuine.policy.minimum
        },
    ];
    for minimum in newer {
        let policy = SnpPolicy {
            minimum,
            ..genuine.policy.clone()
        };
        let bytes = genuine.evidence();
        let refused = verify(&bytes, &policy, NOW);
        assert_eq!(refused, Err(ChannelError::Firmware), "{minimum:?}");
    }
    let without = SnpPolicy {
        roots: AMD_ROOTS[..2].to_vec(),
        ..genuine.policy.clone()
    };
    let bytes = genuine.evidence();
    assert_eq!(verify(&bytes, &without, NOW), Err(ChannelError::Chain));
}

/// Turin, which has an FMC, at exactly its versions.
fn turin() -> Genuine {
    let mut genuine = Genuine::new("turin", "vcek", "turin", [3, 2, 5, 0x61]);
    genuine.policy.minimum.fmc = 1;
    genuine
}

#[test]
fn older_firmware_and_other_measurements_are_refused() {
    let mut genuine = Genuine::milan();
    let right = genuine.policy.clone();
    let newer = [
        SnpTcb {
            boot_loader: 4,
            ..right.minimum
        },
        SnpTcb {
            tee: 1,
            ..right.minimum
        },
        SnpTcb {
            snp: 9,
            ..right.minimum
        },
        SnpTcb {
            microcode: 0x74,
            ..right.minimum
        },
        SnpTcb {
            fmc: 1,
            ..right.minimum
        },
    ];
    for minimum in newer {
        genuine.policy.minimum = minimum;
        assert_eq!(genuine.verify(), Err(ChannelError::Firmware), "{minimum:?}");
    }
    genuine.policy = SnpPolicy {
        minimum: SnpTcb::default(),
        ..right.clone()
    };
    assert!(genuine.verify().is_ok());
    let mut other = right.measurements[0];
    other[47] ^= 1;
    genuine.policy = SnpPolicy {
        measurements: vec![other, [0; 48]],
        ..right.clone()
    };
    assert_eq!(genuine.verify(), Err(ChannelError::Launch));
    genuine.policy.measurements.extend(&right.measurements);
    assert!(genuine.verify().is_ok());
    genuine.policy.measurements.clear();
    assert_eq!(genuine.verify(), Err(ChannelError::Launch));
    genuine.policy = SnpPolicy {
        smt: false,
        ..right
    };
    assert_eq!(genuine.verify(), Err(ChannelError::Guest));
}

/// Reports of the root that `generate.py` has made.
fn made() -> SnpPolicy {
    let minimum = SnpTcb {
        boot_loader: 3,
        tee: 0,
        snp: 8,
        microcode: 0xd9,
        fmc: 0,
    };
    SnpPolicy {
        roots: vec![key_digest(&file("made/snp-ark.der")).unwrap()],
        ..SnpPolicy::new(vec![[0x55; 48]], minimum)
    }
}

fn check_made(
    report: &str,
    certificates: [&str; 3],
    policy: &SnpPolicy,
) -> Result<(), ChannelError> {
    let certificates = certificates.map(|name| file(&format!("made/snp-{name}.der")));
    let report = file(&format!("made/snp-{report}.report"));
    verify(&evidence(&report, &certificates), policy, NOW).map(drop)
}

#[test]
fn what_a_signature_does_not_show_is_refused() {
    let (chain, policy) = (["vcek", "ask", "ark"], made());
    assert_eq!(check_made("right", chain, &policy), Ok(()));
    assert_eq!(check_made("version-5", chain, &policy), Ok(()));
    let trusting_amd = SnpPolicy {
        roots: AMD_ROOTS.to_vec(),
        ..policy.clone()
    };
    assert_eq!(
        check_made("right", chain, &trusting_amd),
        Err(ChannelError::Chain)
    );
    for (report, refused) in [
        ("debug", ChannelError::Guest),
        ("migrate", ChannelError::Guest),
        ("reserved-bit", ChannelError::Guest),
        ("vmpl-1", ChannelError::Guest),
        ("other-chip", ChannelError::Chain),
        ("hidden-chip", ChannelError::Chain),
        ("other-tcb", ChannelError::Chain),
        ("reserved-tcb", ChannelError::Chain),
        ("says-vlek", ChannelError::Chain),
        ("says-none", ChannelError::Malformed),
        ("older-current", ChannelError::Firmware),
        ("older-committed", ChannelError::Firmware),
        ("older-launch", ChannelError::Firmware),
    ] {
        assert_eq!(check_made(report, chain, &policy), Err(refused), "{report}");
    }
    let alone = SnpPolicy {
        smt: false,
        ..policy
    };
    assert_eq!(check_made("no-smt", chain, &alone), Ok(()));
    assert_eq!(check_made("right", chain, &alone), Err(ChannelError::Guest));
}

#[test]
fn revoked_certificates_are_refused_where_the_owner_gives_a_list() {
    let chain = ["vcek", "ask", "ark"];
    let with = |lists: &[&str]| {
        let lists = lists
            .iter()
            .map(|name| file(&format!("made/snp-{name}.crl")));
        let policy = SnpPolicy {
            revocation_lists: lists.collect(),
            ..made()
        };
        check_made("right", chain, &policy)
    };
    assert_eq!(with(&["other"]), Ok(()));
    assert_eq!(with(&["ask"]), Err(ChannelError::Revoked));
    assert_eq!(with(&["vcek"]), Err(ChannelError::Revoked));
    assert_eq!(with(&["other", "ask"]), Err(ChannelError::Revoked));
    assert_eq!(with(&["forged"]), Err(ChannelError::Chain));
    // Lists of others say nothing.
    let mut genuine = Genuine::milan();
    genuine.policy.revocation_lists = vec![file("made/snp-ask.crl")];
    assert!(genuine.verify().is_ok());
}

#[test]
fn certificates_of_another_form_are_refused() {
    let policy = SnpPolicy {
        vlek: true,
        ..made()
    };
    for chain in [
        ["vcek", "ask-not-ca", "ark"],
        ["vcek-by-ark", "ask", "ark"],
        ["vcek-by-ark", "ark", "ark"],
    ] {
        assert_eq!(
            check_made("right", chain, &policy),
            Err(ChannelError::Chain),
            "{chain:?}"
        );
    }
    // A report names the kind of its key, and the certificate has to be of that kind.
    let with_vlek = ["vlek", "ask", "ark"];
    assert_eq!(check_made("says-vlek", with_vlek, &policy), Ok(()));
    assert_eq!(
        check_made("right", with_vlek, &policy),
        Err(ChannelError::Chain)
    );
    // From Turin on: another order of the versions, a chip's number of eight bytes.
    let with_fmc = ["vcek-fmc", "ask", "ark"];
    assert_eq!(check_made("fmc", with_fmc, &policy), Ok(()));
    for report in ["right", "fmc-longer-chip"] {
        assert_eq!(
            check_made(report, with_fmc, &policy),
            Err(ChannelError::Chain),
            "{report}"
        );
    }
    let newer = SnpTcb {
        fmc: 2,
        ..policy.minimum
    };
    let newer = SnpPolicy {
        minimum: newer,
        ..policy
    };
    assert_eq!(
        check_made("fmc", with_fmc, &newer),
        Err(ChannelError::Firmware)
    );
}
