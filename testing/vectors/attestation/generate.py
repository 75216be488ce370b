#!/usr/bin/env python3
"""Makes the forged attestations of `made/`: well-formed and signed, by a root that nobody trusts.

A test that trusts this root sees what is refused for the reports' content, and not for a signature.
Written from AMD's and Intel's documents with the Python package `cryptography`; the signatures are
random, so that each run gives other files. The keys are thrown away.
"""

import datetime
import hashlib
import os
import struct
import warnings

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from cryptography.x509.oid import NameOID

warnings.simplefilter("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
MADE = os.path.join(HERE, "made")
DER = serialization.Encoding.DER
BEGIN = datetime.datetime(2020, 1, 1)
END = datetime.datetime(2045, 1, 1)


def write(name, content):
    with open(os.path.join(MADE, name), "wb") as file:
        file.write(content)


def name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def certificate(subject, key, issuer, issuer_key, extensions=(), ca=False):
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(BEGIN)
        .not_valid_after(END)
    )
    if ca:
        builder = builder.add_extension(x509.BasicConstraints(True, None), True)
    for number, value in extensions:
        value = x509.UnrecognizedExtension(x509.ObjectIdentifier(number), value)
        builder = builder.add_extension(value, False)
    if isinstance(issuer_key, rsa.RSAPrivateKey):
        pss = padding.PSS(padding.MGF1(hashes.SHA384()), 48)
        return builder.sign(issuer_key, hashes.SHA384(), rsa_padding=pss)
    return builder.sign(issuer_key, hashes.SHA256())


def revoking(issuer, key, serials):
    """A list of revoked certificates."""
    builder = x509.CertificateRevocationListBuilder().issuer_name(name(issuer))
    builder = builder.last_update(BEGIN).next_update(BEGIN + datetime.timedelta(30))
    for serial in serials:
        one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(BEGIN)
        builder = builder.add_revoked_certificate(one.build())
    if isinstance(key, rsa.RSAPrivateKey):
        pss = padding.PSS(padding.MGF1(hashes.SHA384()), 48)
        return builder.sign(key, hashes.SHA384(), rsa_padding=pss).public_bytes(DER)
    return builder.sign(key, hashes.SHA256()).public_bytes(DER)


def binding(provider):
    """What evidence has to bind (docs/spec/columns-channel.md, "Attestation"), for a fixed head."""
    head = struct.pack("<HHI", 3, provider, 0)
    head += bytes([5] * 16) + bytes([6] * 16) + bytes([7] * 32) + bytes([9] * 32)
    return hashlib.sha256(b"strongroom/v1/columns-attestation" + head).digest()


def small(number):
    """An INTEGER in DER, of one byte."""
    return bytes([2, 1, number]) if number < 128 else bytes([2, 2, 0, number])


def snp():
    ark, ask = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    key = ec.generate_private_key(ec.SECP384R1())
    chip = bytes(range(1, 65))
    amd = "1.3.6.1.4.1.3704.1."
    versions = [("3.1", 3), ("3.2", 0), ("3.3", 8), ("3.8", 0xD9)]
    extensions = [(amd + at, small(value)) for at, value in versions]
    root = certificate("ARK", ark, "ARK", ark, ca=True)
    middle = certificate("ASK", ask, "ARK", ark, ca=True)
    not_ca = certificate("ASK", ask, "ARK", ark)
    leaf = certificate("VCEK", key, "ASK", ask, extensions + [(amd + "4", chip)])
    by_root = certificate("VCEK", key, "ARK", ark, extensions + [(amd + "4", chip)])
    vlek = certificate("VLEK", key, "ASK", ask, extensions + [(amd + "5", b"\x16\x01c")])
    fmc = [(amd + at, small(value)) for at, value in versions + [("3.9", 1)]]
    turin = certificate("VCEK", key, "ASK", ask, fmc + [(amd + "4", chip[:8])])
    for file, made in [
        ("ark", root),
        ("ask", middle),
        ("ask-not-ca", not_ca),
        ("vcek", leaf),
        ("vcek-by-ark", by_root),
        ("vlek", vlek),
        ("vcek-fmc", turin),
    ]:
        write(f"snp-{file}.der", made.public_bytes(DER))

    write("snp-other.crl", revoking("ARK", ark, [2, 300]))
    write("snp-ask.crl", revoking("ARK", ark, [2, 1]))
    write("snp-vcek.crl", revoking("ASK", ask, [1]))
    write("snp-forged.crl", revoking("ARK", ask, [2]))

    tcb = bytes([3, 0, 0, 0, 0, 0, 8, 0xD9])
    base = bytearray(672)

    def put(report, at, value):
        report[at : at + len(value)] = value

    put(base, 0, struct.pack("<IIQ", 2, 0, 0x30000))
    put(base, 52, struct.pack("<I", 1))
    put(base, 80, bytes([0xAA] * 32))
    put(base, 144, bytes([0x55] * 48))
    put(base, 416, chip)
    for at in (56, 384, 480, 496):
        put(base, at, tcb)
    older = bytes([3, 0, 0, 0, 0, 0, 7, 0xD9])
    reserved = bytes([3, 0, 1, 0, 0, 0, 8, 0xD9])
    with_fmc = [(at, bytes([1, 3, 0, 8, 0, 0, 0, 0xD9])) for at in (56, 384, 480, 496)]
    variants = {
        "right": [],
        "version-5": [(0, b"\x05")],
        "debug": [(8, struct.pack("<Q", 0xB0000))],
        "migrate": [(8, struct.pack("<Q", 0x70000))],
        "reserved-bit": [(8, struct.pack("<Q", 0x10000))],
        "no-smt": [(8, struct.pack("<Q", 0x20000))],
        "vmpl-1": [(48, b"\x01")],
        "other-chip": [(479, b"\x00")],
        "hidden-chip": [(416, bytes(64))],
        "other-tcb": [(384, bytes([3, 0, 0, 0, 0, 0, 9, 0xD9]))],
        "reserved-tcb": [(384, reserved)],
        "older-current": [(56, older)],
        "older-committed": [(480, older)],
        "older-launch": [(496, older)],
        "says-vlek": [(72, b"\x04")],
        "says-none": [(72, b"\x1c")],
        "bound": [(80, binding(3))],
        "bound-and-more": [(80, binding(3) + bytes(31) + b"\x01")],
        "fmc": with_fmc + [(424, bytes(56))],
        "fmc-longer-chip": with_fmc,
    }
    for file, changes in variants.items():
        report = bytearray(base)
        for at, value in changes:
            put(report, at, value)
        signature = key.sign(bytes(report), ec.ECDSA(hashes.SHA384()))
        r, s = utils.decode_dss_signature(signature)
        signed = r.to_bytes(72, "little") + s.to_bytes(72, "little") + bytes(368)
        write(f"snp-{file}.report", bytes(report) + signed)


def sequence(*parts):
    content = b"".join(parts)
    length = len(content)
    head = bytes([length]) if length < 128 else b"\x82" + struct.pack(">H", length)
    return b"\x30" + head + content


def pair(number, value):
    """A field of Intel's extension: its number, then its value in DER."""
    body = bytes.fromhex("2a864886f84d010d01") + bytes(number)
    return sequence(b"\x06" + bytes([len(body)]) + body, value)


def tdx():
    root, middle, platform, attestation = (ec.generate_private_key(ec.SECP256R1()) for _ in range(4))
    parts = [pair([2, at], small(5)) for at in range(1, 17)] + [pair([2, 17], small(11))]
    tcb = pair([2], sequence(*parts))
    fields = sequence(tcb, pair([4], b"\x04\x06" + bytes([0, 0x80, 0x6F, 5, 0, 0])))
    sgx = [("1.2.840.113741.1.13.1", fields)]
    chain = [
        certificate("PCK", platform, "CA", middle, sgx),
        certificate("CA", middle, "Root", root, ca=True),
        certificate("Root", root, "Root", root, ca=True),
    ]
    bare = certificate("PCK", platform, "CA", middle)
    not_ca = certificate("CA", middle, "Root", root)
    write("tdx-other.crl", revoking("CA", middle, [2, 300]))
    write("tdx-pck.crl", revoking("CA", middle, [2, 1]))
    write("tdx-ca.crl", revoking("Root", root, [1]))
    write("tdx-forged.crl", revoking("CA", root, [2]))
    write("tdx-root.der", chain[2].public_bytes(DER))

    def signed(key, content):
        r, s = utils.decode_dss_signature(key.sign(content, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    def make(file, changes=(), enclave=(), auth=b"auth", bound=None, pem=chain):
        quote = bytearray(632)
        head = struct.pack("<HHI", 4, 2, 0x81)
        quote[: len(head)] = head
        quote[12:28] = bytes.fromhex("939a7233f79c4ca9940a0db3957f0607")
        quote[48:64] = bytes([4, 1, 7] + [0] * 13)
        quote[168:176] = struct.pack("<Q", 0x10000000)
        for at, digit in [(184, 1), (376, 2), (424, 3), (472, 4), (520, 5), (232, 6)]:
            quote[at : at + 48] = bytes([digit] * 48)
        quote[568:600] = bytes([0xAA] * 32)
        for at, value in changes:
            quote[at : at + len(value)] = value
        numbers = attestation.public_key().public_numbers()
        point = numbers.x.to_bytes(32, "big") + numbers.y.to_bytes(32, "big")
        report = bytearray(384)
        report[48:56] = struct.pack("<Q", 0x15)
        signer = "dc9e2a7c6f948f17474e34a7fc43ed030f7c1563f1babddf6340c82e0e54a8c5"
        report[128:160] = bytes.fromhex(signer)
        report[256:260] = struct.pack("<HH", 2, 6)
        report[320:352] = bound or hashlib.sha256(point + auth).digest()
        for at, value in enclave:
            report[at : at + len(value)] = value
        text = b"".join(one.public_bytes(serialization.Encoding.PEM) for one in pem)
        inner = bytes(report) + signed(platform, bytes(report))
        inner += struct.pack("<H", len(auth)) + auth + struct.pack("<HI", 5, len(text)) + text
        outer = signed(attestation, bytes(quote)) + point + struct.pack("<HI", 6, len(inner)) + inner
        write(f"tdx-{file}.quote", bytes(quote) + struct.pack("<I", len(outer)) + outer)

    make("right")
    make("debug", [(168, struct.pack("<Q", 0x10000001))])
    make("migratable", [(168, struct.pack("<Q", 0x30000000))])
    make("bound", [(568, binding(4))])
    make("bound-and-one", [(568, binding(4) + bytes(31) + b"\x01")])
    make("another-key", bound=bytes(32))
    make("bound-and-more", enclave=[(352, b"\x01")])
    make("enclave-debug", enclave=[(48, b"\x17")])
    make("enclave-signer", enclave=[(128, b"\x00")])
    make("enclave-product", enclave=[(256, b"\x01")])
    make("enclave-misc", enclave=[(16, b"\x01")])
    make("enclave-old", enclave=[(258, b"\x05")])
    make("issuer-not-ca", pem=[chain[0], not_ca, chain[2]])
    make("no-extension", pem=[bare, chain[1], chain[2]])
    make("two-certificates", pem=chain[:2])
    make("other-order", pem=[chain[1], chain[0], chain[2]])


if __name__ == "__main__":
    os.makedirs(MADE, exist_ok=True)
    snp()
    tdx()
