//! Goal: Intel's judgement counts only as Intel has signed it and while it is valid, and decides as
//! Intel defines. Method: genuine answers of Intel's service with the quotes that they are for, at
//! times when they were valid; and answers of a root that only these tests trust, each with one
//! fault that no signature shows (`testing/vectors/attestation/generate_tcb.py`).

use super::*;
use crate::channel::tests::file;
use crate::channel::x509::key_digest;

/// Midday of 15 January 2026, when what `generate_tcb.py` has made is valid.
const JANUARY_2026: u64 = 1_768_478_400;
/// 1 July 2025, when the genuine answers of 2025 were valid.
const JULY_2025: u64 = 1_751_328_000;
const DAY: u64 = 86_400;

/// Intel's key, by its genuine certificates.
fn intel() -> TcbSigner {
    TcbSigner::read(&file("intel-tcb-signer.pem"), &INTEL_ROOT, &[]).unwrap()
}

fn made_root() -> [u8; 32] {
    key_digest(&file("made/tcb-root.der")).unwrap()
}

fn made_signer_with(name: &str, lists: &[Vec<u8>]) -> Result<TcbSigner, CollateralError> {
    let pem = file(&format!("made/tcb-signer-{name}.pem"));
    TcbSigner::read(&pem, &made_root(), lists)
}

fn made_signer() -> TcbSigner {
    made_signer_with("right", &[]).unwrap()
}

fn made_info(name: &str) -> Result<TcbInfo, CollateralError> {
    let json = file(&format!("made/tcb-info-{name}.json"));
    TcbInfo::read(&json, &made_signer())
}

fn made_enclave(name: &str) -> Result<EnclaveIdentity, CollateralError> {
    let json = file(&format!("made/tcb-enclave-{name}.json"));
    EnclaveIdentity::read(&json, &made_signer())
}

/// Intel's word alone decides about the platform of this quote.
fn judged_by(quote: &[u8], root: [u8; 32], collateral: TdxCollateral) -> TdxPolicy {
    TdxPolicy {
        minimum: Vec::new(),
        collateral: Some(collateral),
        root,
        ..exactly(quote)
    }
}

/// What becomes of a quote that `generate_tcb.py` has made, under answers that it has made.
fn judge(quote: &str, info: &str, enclave: &str) -> Result<(), ChannelError> {
    judge_accepting(quote, info, enclave, &[])
}

fn judge_accepting(
    quote: &str,
    info: &str,
    enclave: &str,
    accepted: &[TcbStatus],
) -> Result<(), ChannelError> {
    let quote = file(&format!("made/tcb-{quote}.quote"));
    let mut collateral = made_collateral(made_signer(), info, enclave);
    collateral.accepted = accepted.to_vec();
    let policy = judged_by(&quote, made_root(), collateral);
    super::super::verify(&quote, &policy, JANUARY_2026).map(drop)
}

/// Answers that `generate_tcb.py` has made, as if this key had signed them.
fn made_collateral(signer: TcbSigner, info: &str, enclave: &str) -> TdxCollateral {
    let infos = vec![made_info(info).unwrap()];
    TdxCollateral::new(signer, infos, made_enclave(enclave).unwrap()).unwrap()
}

/// The genuine answers for the processors of this quote, by the names of their files.
fn genuine(info: &str, enclave: &str) -> TdxCollateral {
    let info = TcbInfo::read(&file(&format!("intel-{info}.tcb-info.json")), &intel());
    let enclave = file(&format!("intel-{enclave}.qe-identity.json"));
    let enclave = EnclaveIdentity::read(&enclave, &intel());
    TdxCollateral::new(intel(), vec![info.unwrap()], enclave.unwrap()).unwrap()
}

#[test]
fn a_genuine_quote_is_accepted_by_intels_genuine_word() {
    let quote = file("tdx-b0c0.quote");
    let policy = judged_by(&quote, INTEL_ROOT, genuine("b0c0", "2025"));
    let verify_at = |now| super::super::verify(&quote, &policy, now).map(drop);
    assert_eq!(verify_at(JULY_2025), Ok(()));
    // The enclave's identity was issued last, the TCB info ends first.
    let (issued, ends) = (1_750_329_147, 1_752_920_163);
    assert_eq!(verify_at(issued), Ok(()));
    assert_eq!(verify_at(issued - 1), Err(ChannelError::Expired));
    assert_eq!(verify_at(ends), Ok(()));
    assert_eq!(verify_at(ends + 1), Err(ChannelError::Expired));
    for never in [0, u64::MAX] {
        assert_eq!(verify_at(never), Err(ChannelError::Expired));
    }
}

/// Of 2023, by a key whose certificate was issued anew in 2025.
#[test]
fn days_of_grace_count_from_the_next_update() {
    let quote = file("tdx-debug.quote");
    let mut policy = judged_by(&quote, INTEL_ROOT, genuine("5080", "2023"));
    // The enclave's identity ends first, on 8 July 2023: 724 days before.
    assert_eq!(
        super::super::verify(&quote, &policy, JULY_2025),
        Err(ChannelError::Expired)
    );
    for (days, expected) in [(723, ChannelError::Expired), (724, ChannelError::Guest)] {
        let collateral = policy.collateral.as_mut().unwrap();
        collateral.grace_days = days;
        let ends = collateral.check_dates(JULY_2025);
        assert_eq!(ends.is_ok(), days == 724);
        // Up to date by Intel's word of then, and with debugging.
        assert_eq!(
            super::super::verify(&quote, &policy, JULY_2025),
            Err(expected)
        );
    }
    // A certificate that is not valid yet has none.
    let collateral = policy.collateral.as_ref().unwrap();
    let in_2023 = 1_687_651_200;
    assert_eq!(collateral.check_dates(in_2023), Err(CollateralError::Dates));
}

#[test]
fn a_genuine_quote_of_an_old_or_another_platform_is_refused() {
    let verify_with = |quote: &str, info: &str, enclave: &str| {
        let quote = file(&format!("{quote}.quote"));
        let mut collateral = genuine(info, enclave);
        collateral.grace_days = u16::MAX;
        let policy = judged_by(&quote, INTEL_ROOT, collateral);
        super::super::verify(&quote, &policy, JULY_2025).map(drop)
    };
    // Older than every level of 2023.
    assert_eq!(
        verify_with("tdx-pks", "5080", "2023"),
        Err(ChannelError::Firmware)
    );
    let other = Err(ChannelError::Uncovered);
    assert_eq!(verify_with("tdx-pks", "b0c0", "2025"), other);
    assert_eq!(verify_with("tdx-gcp", "b0c0", "2025"), other);
    assert_eq!(verify_with("tdx-b0c0", "5080", "2025"), other);
}

#[test]
fn no_changed_byte_of_a_genuine_answer_is_taken() {
    let (info, enclave) = (
        file("intel-b0c0.tcb-info.json"),
        file("intel-2025.qe-identity.json"),
    );
    let signer = intel();
    let signature = info.len() - "\"}".len() - 128;
    for at in 0..info.len() {
        let mut forged = info.clone();
        // Another digit, letter or sign; digits of the signature may be in either case.
        forged[at] ^= if at >= signature { 1 } else { 1 << (at % 6) };
        assert!(TcbInfo::read(&forged, &signer).is_err(), "byte {at}");
    }
    for at in 0..enclave.len() {
        let mut forged = enclave.clone();
        forged[at] ^= 1;
        assert!(
            EnclaveIdentity::read(&forged, &signer).is_err(),
            "byte {at}"
        );
    }
    for cut in 0..info.len() {
        let refused = Err(CollateralError::Form);
        assert_eq!(TcbInfo::read(&info[..cut], &signer), refused, "{cut} bytes");
    }
    // White space within the signed object is signed, too.
    let text = String::from_utf8(info).unwrap();
    let spaced = text.replacen(r#""id":"#, r#""id": "#, 1);
    assert_eq!(
        TcbInfo::read(spaced.as_bytes(), &signer),
        Err(CollateralError::Signature)
    );
    let spaced = text.replacen(r#""tcbInfo":"#, "\n \"tcbInfo\" : ", 1);
    assert!(TcbInfo::read(format!("{spaced}\n").as_bytes(), &signer).is_ok());
}

#[test]
fn what_is_no_answer_of_intels_service_is_refused() {
    let signer = made_signer();
    let right = String::from_utf8(file("made/tcb-info-right.json")).unwrap();
    let (body, signature) = right.split_at(right.len() - r#""signature":""}"#.len() - 128);
    let is_refused = |text: &str, why: CollateralError| {
        assert_eq!(TcbInfo::read(text.as_bytes(), &signer), Err(why), "{text}");
    };
    assert!(TcbInfo::read(format!("{body}{signature}").as_bytes(), &signer).is_ok());
    let form = CollateralError::Form;
    is_refused("", form);
    is_refused("{}", form);
    is_refused(&body.replace("{\"tcbInfo\":", ""), form);
    is_refused(&format!("{right}{right}"), form);
    is_refused(&format!("\u{feff}{right}"), form);
    is_refused(&right.replace("tcbInfo", "enclaveIdentity"), form);
    is_refused(&right.replacen('{', r#"{"more":1,"#, 1), form);
    is_refused(&right.replacen('{', r#"{"signature":"","#, 1), form);
    // A member twice, of which one is signed.
    let twice = format!(r#"{body}"tcbInfo":{{}},{signature}"#);
    is_refused(&twice, form);
    let twice = format!(r#"{{"tcbInfo":{{}},{}"#, right.split_at(1).1);
    is_refused(&twice, form);
    let again = signature.trim_end_matches('}');
    is_refused(&format!("{body}{again},{signature}"), form);
    // Signatures of another length, and none at all.
    let digits = &signature[r#""signature":""#.len()..][..128];
    for wrong in ["", "00", &digits[2..], &format!("{digits}00"), "x"] {
        is_refused(&right.replace(digits, wrong), form);
    }
    for wrong in [
        "0".repeat(128),
        "f".repeat(128),
        digits.replace(digits, &digits[1..]) + "0",
    ] {
        is_refused(&right.replace(digits, &wrong), CollateralError::Signature);
    }
    let large = format!("{right}{}", " ".repeat(262_145 - right.len()));
    assert_eq!(
        TcbInfo::read(large.as_bytes(), &signer),
        Err(CollateralError::TooLarge)
    );
    assert!(TcbInfo::read(&large.as_bytes()[1..], &signer).is_err());
    assert!(TcbInfo::read(&large.as_bytes()[..262_144], &signer).is_ok());
    // The depth of what is not read is limited.
    let deep = format!(r#"{{"tcbInfo":{}"#, "[".repeat(200_000));
    is_refused(&deep, form);
    // One kind of answer does not pass for the other.
    let enclave = file("made/tcb-enclave-right.json");
    assert_eq!(TcbInfo::read(&enclave, &signer), Err(form));
    let text = String::from_utf8(enclave).unwrap();
    is_refused(
        &text.replace("enclaveIdentity", "tcbInfo"),
        CollateralError::Kind,
    );
    let as_enclave = right.replace("tcbInfo", "enclaveIdentity");
    assert_eq!(
        EnclaveIdentity::read(as_enclave.as_bytes(), &signer),
        Err(CollateralError::Kind)
    );
}

#[test]
fn what_is_signed_and_not_of_the_form_is_refused() {
    assert!(made_info("right").is_ok());
    assert!(made_info("pretty").is_ok());
    for (name, why) in [
        ("other-key", CollateralError::Signature),
        ("other-id", CollateralError::Kind),
        ("version-2", CollateralError::Kind),
        ("version-4", CollateralError::Kind),
        ("type-1", CollateralError::Kind),
        ("dates-swapped", CollateralError::Form),
        ("date-form", CollateralError::Form),
        ("no-next-update", CollateralError::Form),
        ("short-family", CollateralError::Form),
        ("negative", CollateralError::Form),
        ("no-levels", CollateralError::Form),
        ("sgx-15", CollateralError::Form),
        ("sgx-17", CollateralError::Form),
        ("svn-256", CollateralError::Form),
        ("twice-id", CollateralError::Form),
        ("twice-family", CollateralError::Form),
    ] {
        assert_eq!(made_info(name), Err(why), "{name}");
    }
    for (name, why) in [
        ("other-key", CollateralError::Signature),
        ("other-id", CollateralError::Kind),
        ("version-3", CollateralError::Kind),
        ("no-levels", CollateralError::Form),
        ("short-mask", CollateralError::Form),
    ] {
        assert_eq!(made_enclave(name), Err(why), "{name}");
    }
    // Intel's key has signed none of it.
    let right = file("made/tcb-info-right.json");
    assert_eq!(
        TcbInfo::read(&right, &intel()),
        Err(CollateralError::Signature)
    );
}

#[test]
fn the_signing_key_leads_to_the_root() {
    for name in [
        "alone",
        "other-order",
        "twice",
        "other-name",
        "other-root",
        "not-by-root",
    ] {
        let read = made_signer_with(name, &[]);
        assert_eq!(read, Err(CollateralError::Signer), "{name}");
    }
    let pem = file("made/tcb-signer-right.pem");
    let trusting_intel = TcbSigner::read(&pem, &INTEL_ROOT, &[]);
    assert_eq!(trusting_intel, Err(CollateralError::Signer));
    for wrong in [
        &b""[..],
        b"-----BEGIN CERTIFICATE-----\n",
        &file("made/tcb-root.der"),
    ] {
        let read = TcbSigner::read(wrong, &made_root(), &[]);
        assert_eq!(read, Err(CollateralError::Signer));
    }
    // The authority of platforms is below the same root, and signs no TCB info.
    let quote = file("tdx-b0c0.quote");
    let text = TdxQuote::parse(&quote).unwrap().chain;
    let chain = String::from_utf8(text.strip_suffix(&[0]).unwrap_or(text).to_vec()).unwrap();
    let (_, above) = chain.split_once("-----END CERTIFICATE-----\n").unwrap();
    let read = TcbSigner::read(above.as_bytes(), &INTEL_ROOT, &[]);
    assert_eq!(read, Err(CollateralError::Signer));
}

/// What the guide's commands leave behind the certificates.
#[test]
fn ends_of_lines_behind_the_certificates_are_passed_over() {
    let pem = file("intel-tcb-signer.pem");
    let longer = [&pem, &b"\n\r\n\n"[..]].concat();
    assert_eq!(TcbSigner::read(&longer, &INTEL_ROOT, &[]), Ok(intel()));
}

#[test]
fn a_signing_key_that_was_revoked_is_refused() {
    let with = |name: &str| made_signer_with("right", &[file(&format!("made/tcb-{name}.crl"))]);
    assert_eq!(with("other"), Ok(made_signer()));
    assert_eq!(with("signer"), Err(CollateralError::Revoked));
    assert_eq!(with("forged"), Err(CollateralError::Revoked));
    let lists = [file("intel-root.crl"), file("intel-platform.crl")];
    let read = TcbSigner::read(&file("intel-tcb-signer.pem"), &INTEL_ROOT, &lists);
    assert_eq!(read, Ok(intel()));
}

#[test]
fn the_signing_keys_certificate_has_to_be_valid_and_has_no_grace() {
    for name in ["expired", "not-yet"] {
        let signer = made_signer_with(name, &[]).unwrap();
        let mut collateral = made_collateral(signer, "right", "right");
        collateral.grace_days = u16::MAX;
        let dates = collateral.check_dates(JANUARY_2026);
        assert_eq!(dates, Err(CollateralError::Dates), "{name}");
        let quote = file("made/tcb-module-1.quote");
        let policy = judged_by(&quote, made_root(), collateral);
        let verified = super::super::verify(&quote, &policy, JANUARY_2026);
        assert_eq!(verified, Err(ChannelError::Expired), "{name}");
    }
}

#[test]
fn each_status_has_to_be_accepted() {
    assert_eq!(judge("module-1", "right", "right"), Ok(()));
    let all = [
        TcbStatus::SwHardeningNeeded,
        TcbStatus::ConfigurationNeeded,
        TcbStatus::ConfigurationAndSwHardeningNeeded,
        TcbStatus::OutOfDate,
        TcbStatus::OutOfDateConfigurationNeeded,
        TcbStatus::Revoked,
        TcbStatus::Unknown,
    ];
    for status in all {
        let never = matches!(status, TcbStatus::Revoked | TcbStatus::Unknown);
        let word = match status {
            TcbStatus::Unknown => "Splendid".to_owned(),
            _ => status.to_string(),
        };
        let others: Vec<_> = all.into_iter().filter(|one| *one != status).collect();
        let refused = Err(ChannelError::Judged(status));
        for (info, enclave) in [
            (format!("level-{word}"), "right".to_owned()),
            (format!("module-{word}"), "right".to_owned()),
            ("right".to_owned(), format!("level-{word}")),
        ] {
            let under =
                |accepted: &[TcbStatus]| judge_accepting("module-1", &info, &enclave, accepted);
            assert_eq!(under(&[]), refused, "{info}, {enclave}");
            assert_eq!(under(&others), refused, "{info}, {enclave}");
            let accepted = if never { &refused } else { &Ok(()) };
            assert_eq!(under(&[status]), *accepted, "{info}, {enclave}");
        }
    }
}

#[test]
fn the_first_level_of_which_no_part_is_newer_decides() {
    let second = Err(ChannelError::Judged(TcbStatus::SwHardeningNeeded));
    assert_eq!(judge("module-1", "second", "right"), second);
    let none = Err(ChannelError::Firmware);
    for name in ["newer-sgx-0", "newer-sgx-7", "newer-sgx-15", "newer-pce"] {
        assert_eq!(judge("module-1", name, "right"), none, "{name}");
        assert_eq!(judge("module-0", name, "right"), none, "{name}");
    }
    for name in ["newer-tdx-2", "newer-tdx-15"] {
        assert_eq!(judge("module-1", name, "right"), none, "{name}");
        assert_eq!(judge("module-0", name, "right"), none, "{name}");
    }
    // The module's own versions: later major versions have levels of their own.
    for name in ["newer-tdx-0", "newer-tdx-1"] {
        assert_eq!(judge("module-1", name, "right"), Ok(()), "{name}");
        assert_eq!(judge("module-0", name, "right"), none, "{name}");
    }
}

#[test]
fn the_module_has_to_be_one_that_intel_names() {
    assert_eq!(judge("module-0", "right", "right"), Ok(()));
    let other = Err(ChannelError::Uncovered);
    for name in [
        "module-missing",
        "no-modules",
        "module-signer",
        "module-attributes",
    ] {
        assert_eq!(judge("module-1", name, "right"), other, "{name}");
        assert_eq!(judge("module-0", name, "right"), Ok(()), "{name}");
    }
    for name in ["loader-signer", "loader-attributes"] {
        assert_eq!(judge("module-0", name, "right"), other, "{name}");
        assert_eq!(judge("module-1", name, "right"), Ok(()), "{name}");
    }
    let none = Err(ChannelError::Firmware);
    assert_eq!(judge("module-1", "module-newer", "right"), none);
}

#[test]
fn the_enclave_has_to_be_the_one_that_intel_names() {
    for name in [
        "signer",
        "product",
        "misc",
        "attributes",
        "later-attributes",
    ] {
        let refused = Err(ChannelError::Chain);
        assert_eq!(judge("module-1", "right", name), refused, "{name}");
    }
    let none = Err(ChannelError::Firmware);
    assert_eq!(judge("module-1", "right", "newer"), none);
}

#[test]
fn the_word_is_for_one_family_of_processors() {
    let other = Err(ChannelError::Uncovered);
    assert_eq!(judge("module-1", "other-family", "right"), other);
    assert_eq!(judge("module-1", "other-pce-id", "right"), other);
    assert_eq!(judge("other-pce-id", "right", "right"), other);
    assert_eq!(judge("no-pce-id", "right", "right"), other);
    assert_eq!(judge("other-pce-id", "other-pce-id", "right"), Ok(()));
    // Of several, the right one is found, wherever it is; two for one family are refused.
    let enclave = made_enclave("right").unwrap();
    let several = |names: &[&str]| {
        let infos = names.iter().map(|name| made_info(name).unwrap()).collect();
        TdxCollateral::new(made_signer(), infos, enclave.clone())
    };
    let quote = file("made/tcb-module-1.quote");
    for names in [["other-family", "right"], ["right", "other-family"]] {
        let policy = judged_by(&quote, made_root(), several(&names).unwrap());
        assert!(super::super::verify(&quote, &policy, JANUARY_2026).is_ok());
    }
    let twice = several(&["right", "other-family", "second"]);
    assert_eq!(twice, Err(CollateralError::Twice));
}

#[test]
fn a_level_of_the_owners_has_to_hold_as_well() {
    let quote = file("made/tcb-module-1.quote");
    let both = TdxPolicy {
        root: made_root(),
        collateral: Some(made_collateral(made_signer(), "right", "right")),
        ..exactly(&quote)
    };
    let verify_at = |policy: &TdxPolicy, now| super::super::verify(&quote, policy, now).map(drop);
    assert_eq!(verify_at(&both, JANUARY_2026), Ok(()));
    let mut newer = both.clone();
    newer.minimum[0].pce += 1;
    let refused = Err(ChannelError::Firmware);
    assert_eq!(verify_at(&newer, JANUARY_2026), refused);
    let late = JANUARY_2026 + 60 * DAY;
    assert_eq!(verify_at(&both, late), Err(ChannelError::Expired));
    // Without Intel's word the time does not count; without either nothing does.
    let mut neither = both;
    neither.collateral = None;
    assert_eq!(verify_at(&neither, late), Ok(()));
    neither.minimum.clear();
    assert_eq!(verify_at(&neither, JANUARY_2026), refused);
}

/// Messages name Intel's word and the option that would accept it, and never offer what is not.
#[test]
fn a_refusal_says_how_intel_judges() {
    let text = ChannelError::Judged(TcbStatus::SwHardeningNeeded).to_string();
    assert!(text.contains("SWHardeningNeeded") && text.contains("--tdx-accept"));
    for status in [TcbStatus::Revoked, TcbStatus::Unknown] {
        let text = ChannelError::Judged(status).to_string();
        assert!(text.contains("never accepted") && !text.contains("--tdx-accept"));
    }
}
