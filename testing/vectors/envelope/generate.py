#!/usr/bin/env python3
"""Writes envelopes.json: a second implementation of docs/spec/columns.md, "Envelopes", on the Python package `cryptography`."""

import json
import struct
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KINDS = {"int8": (3, 8), "int4": (2, 4), "text": (6, None), "bytea": (7, None), "date": (8, 4),
         "uuid": (12, 16), "time": (13, 8), "jsonb": (14, None)}
KEY = bytes(range(32))
KEY_ID = bytes(range(100, 116))
SESSION = bytes(range(200, 216))


def key_of(salt, column_key=KEY):
    return HKDF(hashes.SHA256(), 32, salt, b"strongroom/v1/envelope").derive(column_key)


def bound(kind, key_id, lineage, sealer, result):
    return (b"ENVL" + struct.pack("<HHII", 1, 1, 0, 0) + key_id + struct.pack("<QQ", kind + 256 * sealer, lineage)
            + result)


def padded(kind, value):
    if KINDS[kind][1] is not None:
        return value
    value += b"\x80"
    return value + bytes(-len(value) % 16)


def envelope(kind, plain, number, version=1, reserved=0, key=None, under=None, aad_kind=None, key_id=KEY_ID,
             lineage=None, sealer=2, aad_sealer=None, serial=None, session=SESSION, aad_serial=None):
    salt, nonce = bytes([number]) * 16, bytes([number + 1]) * 12
    of = KINDS[kind][0]
    # The class of the lineage is "ordered": the two low bits are 2.
    own = number * 1000 + 2
    head, result = bytes([version, of, sealer, reserved]) + KEY_ID + salt + nonce + struct.pack("<Q", own), b""
    if serial is not None:
        head += struct.pack("<Q", serial)
        result = session + struct.pack("<Q", aad_serial or serial)
    aad = bound(aad_kind or of, key_id, lineage or own, aad_sealer or sealer, result)
    return head + AESGCM(key or key_of(under or salt)).encrypt(nonce, plain, aad)


def case(name, kind, sealed, value=None):
    one = {"name": name, "kind": KINDS[kind][0], "envelope": sealed.hex()}
    one["value" if value is not None else "refuse"] = value.hex() if value is not None else True
    return one


def accepted():
    for at, (kind, value) in enumerate([
        ("int8", (77).to_bytes(8, "big")), ("int4", (-1).to_bytes(4, "big", signed=True)), ("date", bytes(4)),
        ("text", b""), ("text", b"fifteen bytes.."), ("text", b"sixteen bytes..."), ("text", "Zürich".encode()),
        ("bytea", bytes(40)), ("bytea", b"\x80\0\0"),
        ("uuid", bytes(range(16))), ("time", (43_200_000_000).to_bytes(8, "big")),
        ("jsonb", b'\1{"a": [1.50, null]}'),
    ]):
        yield case(f"{kind}, {len(value)} bytes", kind, envelope(kind, padded(kind, value), 10 + at), value)
    yield case("of a client", "int8", envelope("int8", bytes(8), 30, sealer=1), bytes(8))
    yield case("a result", "int8", envelope("int8", bytes(8), 32, sealer=3, serial=1), bytes(8))
    yield case("a later result, text", "text", envelope("text", padded("text", b"x"), 33, sealer=3, serial=2**40), b"x")
    yield case("of a client, text", "text", envelope("text", padded("text", b"x"), 31, sealer=1), b"x")


def refused():
    eight = bytes(8)
    yield case("another version", "int8", envelope("int8", eight, 40, version=2))
    yield case("a reserved byte", "int8", envelope("int8", eight, 41, reserved=1))
    yield case("under the column key itself", "int8", envelope("int8", eight, 42, key=KEY))
    yield case("under another salt's key", "int8", envelope("int8", eight, 43, under=bytes(16)))
    yield case("bound to another kind", "int8", envelope("int8", eight, 44, aad_kind=2))
    yield case("bound to another lineage", "int8", envelope("int8", eight, 54, lineage=6))
    yield case("a client's, presented as the zone's", "int8", envelope("int8", eight, 55, aad_sealer=1))
    yield case("a result of another session", "int8", envelope("int8", eight, 57, sealer=3, serial=1, session=bytes(16)))
    yield case("a result with another number", "int8", envelope("int8", eight, 58, sealer=3, serial=2, aad_serial=1))
    yield case("a result without a number", "int8", envelope("int8", eight, 59, sealer=3, serial=0))
    yield case("a result that is sealed for nobody", "int8", envelope("int8", eight, 60, sealer=3))
    yield case("a zone's, presented as a result", "int8", envelope("int8", eight, 61, sealer=3, serial=1, aad_sealer=2))
    yield case("no sealer", "int8", envelope("int8", eight, 56, sealer=0))
    yield case("bound to another key", "int8", envelope("int8", eight, 45, key_id=bytes(16)))
    yield case("under another column key", "int8", envelope("int8", eight, 46, key=key_of(bytes([46]) * 16, bytes(32))))
    yield case("a value that is too short", "int8", envelope("int8", bytes(7), 47))
    yield case("a value that is too long", "int8", envelope("int8", bytes(9), 48))
    yield case("no padding", "text", envelope("text", b"sixteen bytes...", 49))
    yield case("padding of zeros", "text", envelope("text", bytes(16), 50))
    yield case("a block of padding too much", "text", envelope("text", b"x\x80" + bytes(30), 51))
    yield case("padding that is too short", "text", envelope("text", b"x\x80" + bytes(6), 52))
    yield case("nothing at all", "text", envelope("text", b"", 53))


if __name__ == "__main__":
    whole = {"key": KEY.hex(), "key_id": KEY_ID.hex(), "session": SESSION.hex(), "cases": [*accepted(), *refused()]}
    Path(__file__).with_name("envelopes.json").write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
