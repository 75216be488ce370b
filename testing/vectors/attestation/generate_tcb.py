#!/usr/bin/env python3
"""Makes the forged judgements of TDX platforms of `made/tcb-*`: signed, by a root that nobody trusts.

They are what Intel's service answers (`TCB Info`, `Enclave Identity`) with one fault each or none,
the certificates of the key that signs them, and quotes of the same root. Written from Intel's "API
for Provisioning Certification Service" with the Python package `cryptography`; the signatures are
random, so that each run gives other files. The keys are thrown away.
"""

import datetime
import hashlib
import json
import os
import struct

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from generate import BEGIN, DER, END, MADE, name, pair, revoking, sequence, small, write

PEM = serialization.Encoding.PEM
FMSPC = bytes([0, 0x80, 0x6F, 5, 0, 0])
SIGNER = "dc9e2a7c6f948f17474e34a7fc43ed030f7c1563f1babddf6340c82e0e54a8c5"
TCB_SIGNER = "Intel SGX TCB Signing"


def key():
    return ec.generate_private_key(ec.SECP256R1())


def certificate(subject, own, issuer, issuer_key, serial, ca=False, extra=(), dates=(BEGIN, END)):
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(own.public_key())
        .serial_number(serial)
        .not_valid_before(dates[0])
        .not_valid_after(dates[1])
    )
    if ca:
        builder = builder.add_extension(x509.BasicConstraints(True, None), True)
    for number, value in extra:
        value = x509.UnrecognizedExtension(x509.ObjectIdentifier(number), value)
        builder = builder.add_extension(value, False)
    return builder.sign(issuer_key, hashes.SHA256())


def signed(by, content):
    """The signature in the form of quotes and judgements: r, then s."""
    r, s = utils.decode_dss_signature(by.sign(content, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def quotes(root, middle, platform, attestation):
    """Quotes of a platform with the version 5 of all SGX components, PCE 11 and TDX module 1.4."""

    def pck(pce_id):
        parts = [pair([2, at], small(5)) for at in range(1, 17)] + [pair([2, 17], small(11))]
        fields = [pair([2], sequence(*parts)), pair([4], b"\x04\x06" + FMSPC)]
        if pce_id is not None:
            fields.insert(1, pair([3], b"\x04\x02" + pce_id))
        extra = [("1.2.840.113741.1.13.1", sequence(*fields))]
        return certificate("PCK", platform, "CA", middle, 1, extra=extra)

    issuers = [
        certificate("CA", middle, "Root", root, 2, ca=True),
        certificate("Root", root, "Root", root, 3, ca=True),
    ]

    def make(file, svn=(4, 1, 7), enclave=(), pce_id=bytes(2)):
        quote = bytearray(632)
        quote[:8] = struct.pack("<HHI", 4, 2, 0x81)
        quote[12:28] = bytes.fromhex("939a7233f79c4ca9940a0db3957f0607")
        quote[48:64] = bytes(svn) + bytes(13)
        quote[168:176] = struct.pack("<Q", 0x10000000)
        numbers = attestation.public_key().public_numbers()
        point = numbers.x.to_bytes(32, "big") + numbers.y.to_bytes(32, "big")
        report = bytearray(384)
        report[48:56] = struct.pack("<Q", 0x15)
        report[56:64] = struct.pack("<Q", 0xE7)
        report[128:160] = bytes.fromhex(SIGNER)
        report[256:260] = struct.pack("<HH", 2, 6)
        report[320:352] = hashlib.sha256(point + b"auth").digest()
        for at, value in enclave:
            report[at : at + len(value)] = value
        text = b"".join(one.public_bytes(PEM) for one in [pck(pce_id), *issuers])
        inner = bytes(report) + signed(platform, bytes(report))
        inner += struct.pack("<H", 4) + b"auth" + struct.pack("<HI", 5, len(text)) + text
        outer = signed(attestation, bytes(quote)) + point + struct.pack("<HI", 6, len(inner)) + inner
        write(f"tcb-{file}.quote", bytes(quote) + struct.pack("<I", len(outer)) + outer)

    make("module-1")
    make("module-0", svn=(4, 0, 7))
    make("no-pce-id", pce_id=None)
    make("other-pce-id", pce_id=b"\x00\x01")
    write("tcb-root.der", issuers[1].public_bytes(DER))
    return issuers[1]


def signers(root, root_certificate, signer):
    def make(file, *chain):
        write(f"tcb-signer-{file}.pem", b"".join(one.public_bytes(PEM) for one in chain))

    def issued(subject=TCB_SIGNER, dates=(BEGIN, END), issuer="Root", by=root):
        return certificate(subject, signer, issuer, by, 4, dates=dates)

    def in_2026(*days):
        return [datetime.datetime(2026, 1, day) for day in days]

    right = issued()
    other = key()
    other_root = certificate("Root", other, "Root", other, 3, ca=True)
    make("right", right, root_certificate)
    make("alone", right)
    make("other-order", root_certificate, right)
    make("twice", right, right, root_certificate)
    make("other-name", issued("Intel SGX PCK Platform CA"), root_certificate)
    make("other-root", issued(by=other), other_root)
    make("not-by-root", issued(by=other), root_certificate)
    make("expired", issued(dates=in_2026(1, 14)), root_certificate)
    make("not-yet", issued(dates=in_2026(16, 30)), root_certificate)
    write("tcb-other.crl", revoking("Root", root, [2, 3]))
    write("tcb-signer.crl", revoking("Root", root, [2, 4]))
    write("tcb-forged.crl", revoking("Root", other, [2]))


def answer(file, member, body, by):
    text = json.dumps(body, separators=(",", ":")) if isinstance(body, dict) else body
    signature = signed(by, text.encode()).hex()
    write(f"tcb-{file}.json", f'{{"{member}":{text},"signature":"{signature}"}}'.encode())


def level(status, sgx=(5,) * 16, pce=11, tdx=(4, 0, 7)):
    numbers = list(tdx) + [0] * (16 - len(tdx))
    tcb = {
        "sgxtcbcomponents": [{"svn": svn} for svn in sgx],
        "pcesvn": pce,
        "tdxtcbcomponents": [{"svn": svn} for svn in numbers],
    }
    return {"tcb": tcb, "tcbDate": "2025-08-13T00:00:00Z", "tcbStatus": status}


def svn_level(svn, status):
    return {"tcb": {"isvsvn": svn}, "tcbDate": "2025-08-13T00:00:00Z", "tcbStatus": status}


def module(**changes):
    one = {"mrsigner": "00" * 48, "attributes": "00" * 8, "attributesMask": "FF" * 8}
    return {**one, **changes}


def identity(levels, **changes):
    return module(**{"id": "TDX_01", "tcbLevels": levels, **changes})


STATUSES = [
    "SWHardeningNeeded",
    "ConfigurationNeeded",
    "ConfigurationAndSWHardeningNeeded",
    "OutOfDate",
    "OutOfDateConfigurationNeeded",
    "Revoked",
    "Splendid",
]


def tcb_infos(signer):
    good = [svn_level(4, "UpToDate"), svn_level(2, "OutOfDate")]
    base = {
        "id": "TDX",
        "version": 3,
        "issueDate": "2026-01-10T00:00:00Z",
        "nextUpdate": "2026-02-09T00:00:00Z",
        "fmspc": FMSPC.hex().upper(),
        "pceId": "0000",
        "tcbType": 0,
        "tcbEvaluationDataNumber": 20,
        "tdxModule": module(),
        "tdxModuleIdentities": [identity([svn_level(2, "UpToDate")], id="TDX_03"), identity(good)],
        "tcbLevels": [level("UpToDate"), level("OutOfDate", pce=5)],
    }

    def make(file, by=signer, without=(), **changes):
        body = {key: value for key, value in {**base, **changes}.items() if key not in without}
        answer(f"info-{file}", "tcbInfo", body, by)

    def levels(file, *all):
        make(file, tcbLevels=list(all))

    def modules(file, *all):
        make(file, tdxModuleIdentities=list(all))

    make("right")
    for status in STATUSES:
        levels(f"level-{status}", level(status), level("UpToDate", pce=10))
        modules(f"module-{status}", identity([svn_level(4, status), svn_level(3, "UpToDate")]))
    for at in (0, 7, 15):
        newer = [5] * 16
        newer[at] = 6
        levels(f"newer-sgx-{at}", level("UpToDate", sgx=newer))
    levels("newer-pce", level("UpToDate", pce=12))
    levels("newer-tdx-0", level("UpToDate", tdx=(5, 0, 7)))
    levels("newer-tdx-1", level("UpToDate", tdx=(4, 2, 7)))
    levels("newer-tdx-2", level("UpToDate", tdx=(4, 0, 8)))
    levels("newer-tdx-15", level("UpToDate", tdx=(4, 0, 7) + (0,) * 12 + (1,)))
    levels("second", level("UpToDate", pce=12), level("SWHardeningNeeded"), level("UpToDate", pce=5))
    modules("module-newer", identity([svn_level(5, "UpToDate")]))
    modules("module-missing", identity(good, id="TDX_02"))
    make("no-modules", without=["tdxModuleIdentities"])
    modules("module-signer", identity(good, mrsigner="00" * 47 + "01"))
    modules("module-attributes", identity(good, attributes="01" + "00" * 7))
    make("loader-signer", tdxModule=module(mrsigner="01" + "00" * 47))
    make("loader-attributes", tdxModule=module(attributes="00" * 7 + "80"))

    make("other-key", by=key())
    make("other-id", id="SGX")
    make("version-2", version=2)
    make("version-4", version=4)
    make("type-1", tcbType=1)
    make("other-family", fmspc="00906F050000")
    make("other-pce-id", pceId="0001")
    make("dates-swapped", issueDate="2026-02-09T00:00:00Z", nextUpdate="2026-01-10T00:00:00Z")
    make("date-form", nextUpdate="2026-02-09 00:00:00")
    make("no-next-update", without=["nextUpdate"])
    make("short-family", fmspc="00806F0500")
    make("negative", tcbLevels=[level("UpToDate", pce=-1)])
    levels("no-levels")
    levels("sgx-15", level("UpToDate", sgx=(5,) * 15))
    levels("sgx-17", level("UpToDate", sgx=(5,) * 17))
    levels("svn-256", level("UpToDate", sgx=(5,) * 15 + (256,)))
    text = json.dumps(base, separators=(",", ":"))
    for file, member in [("id", '"id":"TDX"'), ("family", '"fmspc":"00806F050000"')]:
        twice = text.replace(member, f"{member},{member}")
        answer(f"info-twice-{file}", "tcbInfo", twice, signer)
    answer("info-pretty", "tcbInfo", json.dumps(base, indent=2), signer)


def enclaves(signer):
    base = {
        "id": "TD_QE",
        "version": 2,
        "issueDate": "2026-01-12T00:00:00Z",
        "nextUpdate": "2026-02-11T00:00:00Z",
        "tcbEvaluationDataNumber": 20,
        "miscselect": "00000000",
        "miscselectMask": "FFFFFFFF",
        "attributes": "11000000000000000000000000000000",
        "attributesMask": "FBFFFFFFFFFFFFFF0000000000000000",
        "mrsigner": SIGNER.upper(),
        "isvprodid": 2,
        "tcbLevels": [svn_level(5, "UpToDate"), svn_level(4, "OutOfDate")],
    }

    def make(file, by=signer, **changes):
        answer(f"enclave-{file}", "enclaveIdentity", {**base, **changes}, by)

    make("right")
    for status in STATUSES:
        levels = [svn_level(7, "UpToDate"), svn_level(6, status), svn_level(5, "UpToDate")]
        make(f"level-{status}", tcbLevels=levels)
    make("newer", tcbLevels=[svn_level(7, "UpToDate")])
    make("signer", mrsigner="00" * 32)
    make("product", isvprodid=1)
    make("misc", miscselect="01000000")
    make("attributes", attributes="13" + "00" * 15)
    make("later-attributes", attributesMask="FB" + "FF" * 7 + "02" + "00" * 7)
    make("other-key", by=key())
    make("other-id", id="QE")
    make("version-3", version=3)
    make("no-levels", tcbLevels=[])
    make("short-mask", attributesMask="FB")


def main():
    os.makedirs(MADE, exist_ok=True)
    root, middle, platform, attestation, signer = (key() for _ in range(5))
    root_certificate = quotes(root, middle, platform, attestation)
    signers(root, root_certificate, signer)
    tcb_infos(signer)
    enclaves(signer)


if __name__ == "__main__":
    main()
