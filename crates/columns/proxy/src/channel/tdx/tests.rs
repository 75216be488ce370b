//! Goal: genuine quotes of Intel's processors are accepted where the policy names what they say,
//! and nothing else is. Method: published quotes (testing/vectors/attestation/README.md) with one
//! thing changed at a time; and quotes of a root that only these tests trust, each with one fault
//! that no signature shows.

mod judged;

use super::*;
use crate::channel::tests::file;
use crate::channel::x509::key_digest;

/// Verifies without Intel's judgement, so that the time does not count.
fn verify<'a>(quote: &'a [u8], policy: &TdxPolicy) -> Result<&'a [u8], ChannelError> {
    super::verify(quote, policy, 0)
}

/// The policy that a quote satisfies exactly.
fn exactly(quote: &[u8]) -> TdxPolicy {
    let parsed = TdxQuote::parse(quote).unwrap();
    let text = parsed.chain.strip_suffix(&[0]).unwrap_or(parsed.chain);
    let leaf = &read_pem(text).unwrap()[0];
    let platform = Platform::of(&Certificate::parse(leaf).unwrap()).unwrap();
    let measurement = TdMeasurement {
        mrtd: parsed.report.mrtd,
        rtmr: parsed.report.rtmr.map(Some),
        mrconfigid: Some(parsed.report.mrconfigid),
    };
    let minimum = TdxTcb {
        fmspc: platform.fmspc,
        sgx: platform.components,
        pce: platform.pce,
        tdx: parsed.report.tee_tcb_svn,
    };
    TdxPolicy {
        minimum_qe_svn: parsed.qe.svn,
        ..TdxPolicy::new(vec![measurement], vec![minimum])
    }
}

#[test]
fn genuine_quotes_are_accepted() {
    for name in ["tdx-pks", "tdx-gcp", "tdx-azure", "tdx-e5"] {
        let quote = file(&format!("{name}.quote"));
        let policy = exactly(&quote);
        assert_eq!(verify(&quote, &policy), Ok(&quote[568..632]), "{name}");
        // What is not named is not compared.
        let mut loose = policy.clone();
        loose.measurements[0].rtmr = [None; 4];
        loose.measurements[0].mrconfigid = None;
        assert!(verify(&quote, &loose).is_ok(), "{name}");
    }
    // As Intel's TCB info writes the platform's family.
    let policy = exactly(&file("tdx-pks.quote"));
    assert_eq!(policy.minimum[0].fmspc, [0x50, 0x80, 0x6f, 0, 0, 0]);
}

/// Signed by Intel's hardware: from a trust domain whose host may read its memory.
#[test]
fn a_genuine_quote_of_a_trust_domain_with_debugging_is_refused() {
    let quote = file("tdx-debug.quote");
    assert_eq!(verify(&quote, &exactly(&quote)), Err(ChannelError::Guest));
}

#[test]
fn every_changed_byte_is_refused() {
    let quote = file("tdx-azure.quote");
    let policy = exactly(&quote);
    // Header and report, signature and key, the enclave's report, its signature, its data.
    let end = 636 + 128 + 6 + 384 + 64 + 2 + 32;
    for at in 0..end {
        let mut forged = quote.clone();
        forged[at] ^= 1 << (at % 8);
        assert!(verify(&forged, &policy).is_err(), "byte {at}");
    }
    for bit in (168 * 8..176 * 8).chain(184 * 8..232 * 8) {
        let mut forged = quote.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(
            verify(&forged, &policy),
            Err(ChannelError::Signature),
            "bit {bit}"
        );
    }
}

#[test]
fn what_is_cut_or_too_long_is_refused() {
    let quote = file("tdx-e5.quote");
    let policy = exactly(&quote);
    for cut in 0..quote.len() {
        assert_eq!(
            verify(&quote[..cut], &policy),
            Err(ChannelError::Malformed),
            "{cut} bytes"
        );
    }
    for more in [1, 70] {
        let longer = [&quote[..], &vec![0; more]].concat();
        assert_eq!(verify(&longer, &policy), Err(ChannelError::Malformed));
    }
}

/// The parts of two genuine quotes, put together.
#[test]
fn parts_of_another_quote_are_refused() {
    let (quote, other) = (file("tdx-azure.quote"), file("tdx-e5.quote"));
    let policy = exactly(&quote);
    // The report; the signature and its key; the enclave's report and its signature; the chain.
    let parts = [0..632, 636..764, 770..1218, 1252..quote.len()];
    for part in parts {
        let mut forged = quote.clone();
        forged[part.clone()].copy_from_slice(&other[part.clone()]);
        assert!(verify(&forged, &policy).is_err(), "{part:?}");
        assert!(verify(&forged, &exactly(&other)).is_err(), "{part:?}");
    }
}

#[test]
fn older_platforms_are_refused() {
    let quote = file("tdx-gcp.quote");
    let right = exactly(&quote);
    let with = |change: &dyn Fn(&mut TdxPolicy)| {
        let mut policy = right.clone();
        change(&mut policy);
        verify(&quote, &policy).map(drop)
    };
    let older = Err(ChannelError::Firmware);
    for at in 0..16 {
        assert_eq!(
            with(&|policy| policy.minimum[0].sgx[at] += 1),
            older,
            "{at}"
        );
        assert_eq!(
            with(&|policy| policy.minimum[0].tdx[at] += 1),
            older,
            "{at}"
        );
    }
    assert_eq!(with(&|policy| policy.minimum[0].pce += 1), older);
    assert_eq!(with(&|policy| policy.minimum[0].fmspc[5] ^= 1), older);
    assert_eq!(with(&|policy| policy.minimum_qe_svn += 1), older);
    assert_eq!(with(&|policy| policy.minimum.clear()), older);
    // Versions of a module count within its major version.
    assert_eq!(with(&|policy| policy.minimum[0].tdx[1] = 0), older);
    assert_eq!(with(&|policy| policy.minimum[0].tdx[0] -= 1), Ok(()));
    let another = TdxTcb {
        fmspc: [0; 6],
        ..right.minimum[0]
    };
    assert_eq!(with(&|policy| policy.minimum.insert(0, another)), Ok(()));
}

#[test]
fn other_measurements_are_refused() {
    let quote = file("tdx-gcp.quote");
    let right = exactly(&quote);
    let with = |change: &dyn Fn(&mut TdMeasurement)| {
        let mut policy = right.clone();
        change(&mut policy.measurements[0]);
        verify(&quote, &policy).map(drop)
    };
    let refused = Err(ChannelError::Launch);
    assert_eq!(with(&|one| one.mrtd[47] ^= 1), refused);
    assert_eq!(with(&|one| one.mrconfigid = Some([1; 48])), refused);
    for register in 0..4 {
        assert_eq!(
            with(&|one| one.rtmr[register] = Some([1; 48])),
            refused,
            "{register}"
        );
    }
    let mut policy = right.clone();
    policy.measurements.clear();
    assert_eq!(verify(&quote, &policy), Err(ChannelError::Launch));
    let other = TdMeasurement {
        mrtd: [1; 48],
        ..right.measurements[0].clone()
    };
    policy.measurements = vec![other, right.measurements[0].clone()];
    assert!(verify(&quote, &policy).is_ok());
}

/// Quotes of the root that `generate.py` has made.
#[test]
fn what_a_signature_does_not_show_is_refused() {
    let right = file("made/tdx-right.quote");
    let policy = TdxPolicy {
        root: key_digest(&file("made/tdx-root.der")).unwrap(),
        ..exactly(&right)
    };
    assert!(verify(&right, &policy).is_ok());
    let trusting_intel = TdxPolicy {
        root: INTEL_ROOT,
        ..policy.clone()
    };
    assert_eq!(verify(&right, &trusting_intel), Err(ChannelError::Chain));
    for (name, refused) in [
        ("debug", ChannelError::Guest),
        ("migratable", ChannelError::Guest),
        ("another-key", ChannelError::Signature),
        ("bound-and-more", ChannelError::Signature),
        ("enclave-debug", ChannelError::Chain),
        ("enclave-signer", ChannelError::Chain),
        ("enclave-product", ChannelError::Chain),
        ("enclave-misc", ChannelError::Chain),
        ("enclave-old", ChannelError::Firmware),
        ("issuer-not-ca", ChannelError::Chain),
        ("no-extension", ChannelError::Chain),
        ("two-certificates", ChannelError::Chain),
        ("other-order", ChannelError::Chain),
    ] {
        let quote = file(&format!("made/tdx-{name}.quote"));
        assert_eq!(verify(&quote, &policy), Err(refused), "{name}");
    }
}

#[test]
fn revoked_certificates_are_refused_where_the_owner_gives_a_list() {
    let right = file("made/tdx-right.quote");
    let with = |lists: &[&str]| {
        let lists = lists
            .iter()
            .map(|name| file(&format!("made/tdx-{name}.crl")));
        let policy = TdxPolicy {
            root: key_digest(&file("made/tdx-root.der")).unwrap(),
            revocation_lists: lists.collect(),
            ..exactly(&right)
        };
        verify(&right, &policy).map(drop)
    };
    assert_eq!(with(&["other"]), Ok(()));
    assert_eq!(with(&["pck"]), Err(ChannelError::Revoked));
    assert_eq!(with(&["ca"]), Err(ChannelError::Revoked));
    assert_eq!(with(&["other", "pck"]), Err(ChannelError::Revoked));
    assert_eq!(with(&["forged"]), Err(ChannelError::Chain));
    // Intel's own lists, of the root and of the authority of platforms, which name others.
    let quote = file("tdx-pks.quote");
    let mut policy = exactly(&quote);
    policy.revocation_lists = vec![file("intel-root.crl"), file("intel-platform.crl")];
    assert!(verify(&quote, &policy).is_ok());
    for list in 0..2 {
        let mut forged = policy.clone();
        let signature = forged.revocation_lists[list].last_mut().unwrap();
        *signature ^= 1;
        assert_eq!(verify(&quote, &forged), Err(ChannelError::Chain), "{list}");
    }
}

#[test]
fn the_root_is_intels() {
    for name in ["tdx-pks", "tdx-gcp", "tdx-azure", "tdx-e5", "tdx-debug"] {
        let quote = file(&format!("{name}.quote"));
        let parsed = TdxQuote::parse(&quote).unwrap();
        let text = parsed.chain.strip_suffix(&[0]).unwrap_or(parsed.chain);
        assert_eq!(
            key_digest(&read_pem(text).unwrap()[2]),
            Some(INTEL_ROOT),
            "{name}"
        );
    }
}
