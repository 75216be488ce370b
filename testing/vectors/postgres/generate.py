#!/usr/bin/env python3
"""Makes the known-answer vectors of an instance's files from the specification, not from the Rust code.

An independent second implementation of docs/spec/postgres.md on AES-ECB, AES-CTR and AES-GCM of the `cryptography`
package: XTS is written out here. Data keys are those of ../header. Run without arguments; writes the *.json files
beside itself.
"""
import hashlib
import json
import pathlib
import struct

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

HERE = pathlib.Path(__file__).parent


def fixed(tag, n):
    """Fixed bytes for the input named `tag`."""
    return hashlib.shake_256(b"strongroom postgres vectors / " + tag.encode()).digest(n)


def ecb(key, block):
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)


def xts(key, tweak, data):
    """IEEE 1619: T = E(K2, tweak) * alpha^j; C = E(K1, P ^ T) ^ T. The polynomial is x^128 + x^7 + x^2 + x + 1."""
    half = len(key) // 2
    mask = int.from_bytes(ecb(key[half:], tweak), "little")
    out = b""
    for at in range(0, len(data), 16):
        plain = int.from_bytes(data[at:at + 16], "little")
        sealed = int.from_bytes(ecb(key[:half], (plain ^ mask).to_bytes(16, "little")), "little")
        out += (sealed ^ mask).to_bytes(16, "little")
        mask <<= 1
        if mask >> 128:
            mask = (mask & (1 << 128) - 1) ^ 0x87
    return out


def tail(key, tweak, unit, data):
    marked = tweak[:11] + b"\1" + tweak[12:]
    stream = xts(key, marked, struct.pack("<IB11x", unit, len(data)))
    return bytes(a ^ b for a, b in zip(data, stream))


def block(key, tweak, data, seals_zeros=False):
    whole = len(data) // 16 * 16
    if whole == len(data) == 8192 and not any(data) and not seals_zeros:
        return data
    out = xts(key, tweak, data[:whole])
    return out + tail(key, tweak, whole // 16, data[whole:]) if whole < len(data) else out


def write(name, content):
    (HERE / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def blocks(name, header):
    subkeys = json.loads((HERE / f"../header/{header}.json").read_text())["subkeys"]
    made = []

    def case(what, label, address, tweak, data):
        key = bytes.fromhex(subkeys[label])
        made.append({"what": what, "label": label, "address": address, "tweak": tweak.hex(), "plain": data.hex(),
                     "sealed": block(key, tweak, data, label == "pg-slru").hex()})

    def relation(what, db, rel, fork, backend, segment, within, data):
        tweak = struct.pack("<IIII", db, rel, fork | backend << 8, segment * 131072 + within)
        case(what, "pg-relation", {"relation": [db, rel, fork, backend, segment, within]}, tweak, data)

    page = fixed(f"{name} page", 8192)
    relation("first block", 5, 16384, 0, 0, 0, 0, page)
    relation("catalog of the instance", 0, 1262, 0, 0, 0, 0, page[:512])
    relation("visibility map", 5, 16384, 2, 0, 0, 1, page[:512])
    relation("last block of the third segment", 4294967295, 4294967294, 3, 0, 2, 131071, page[:512])
    relation("temporary relation", 5, 16400, 0, 3 + 1, 0, 7, page[:512])
    relation("a block of zeros", 5, 16384, 0, 0, 0, 2, bytes(8192))
    relation("zeros that are less than a block", 5, 16384, 0, 0, 0, 2, bytes(512))

    def wal(what, tli, log, seg, at, data):
        case(what, "pg-wal", {"wal": [tli, log, seg, at]}, struct.pack("<IIII", tli, seg, log, at), data)

    wal("first block of a segment", 1, 0, 1, 0, page)
    wal("some block", 0x0A0B0C0D, 0x01020304, 0xFF, 2047, page[:512])
    case("a log without a name", "pg-wal", {"unnamed": [4711, 3]}, struct.pack("<IQI", 0, 4711, 3), page[:512])
    for directory in range(1, 8):
        case("SLRU", "pg-slru", {"slru": [directory, 0x123456789ABCDEF, 31]},
             struct.pack("<B3xQI", directory, 0x123456789ABCDEF, 31), page[:64])
    case("SLRU, a page of zeros", "pg-slru", {"slru": [1, 0, 2]}, struct.pack("<B3xQI", 1, 0, 2), bytes(8192))
    case("control file", "pg-control", {"control": [0]}, b"pg_control\0\0" + bytes(4), page)
    for db, size in [(0, 512), (5, 524), (5, 513), (16384, 527)]:
        case("relation map", "pg-map", {"map": [db, 0]}, struct.pack("<IQI", db, 0, 0), page[:size])
    write(name, {"test": "blocks", "header": header, "cases": made})


def streams():
    subkeys = json.loads((HERE / "../header/postgres-aes-256-xts-raw.json").read_text())["subkeys"]
    key, made = bytes.fromhex(subkeys["pg-stream"]), []
    for number, (nonce, size) in enumerate([(fixed("stream nonce", 16), 100), (b"\xff" * 16, 40), (bytes(16), 5000)]):
        data = fixed(f"stream {number}", size)
        header = b"\x89STRONGROOM PG STREAM\r\n\x1a\n".ljust(32, b"\0") + struct.pack("<H14x", 1) + nonce
        sealed = Cipher(algorithms.AES(key), modes.CTR(nonce)).encryptor().update(data)
        made.append({"nonce": nonce.hex(), "plain": data.hex(), "file_header": header.hex(), "sealed": sealed.hex()})
    write("streams", {"test": "streams", "header": "postgres-aes-256-xts-raw", "cases": made})


def container(key, file_id, nonces, data, name=None):
    """Of version 2 when the file has a name that it is bound to."""
    if not data:
        return b""
    version = 1 if name is None else 2
    role = b"PGCT" if name is None else b"PGCN"
    bound_to = b"" if name is None else hashlib.sha256(name.encode()).digest()[:16]
    out = b"\x89STRONGROOM PG CONTAINER\r\n\x1a\n".ljust(32, b"\0") + struct.pack("<H14x", version) + file_id
    for number in range(len(data) // 4096 + 1):
        bound = struct.pack("<4sHHII16sQQ", role, 1, 1, 4096, 0, file_id, number, 0) + bound_to
        out += nonces[number] + AESGCM(key).encrypt(nonces[number], data[4096 * number:][:4096], bound)
    return out


def containers():
    subkeys = json.loads((HERE / "../header/postgres-aes-256-xts-raw.json").read_text())["subkeys"]
    key, made = bytes.fromhex(subkeys["pg-container"]), []
    for size in [0, 1, 4095, 4096, 4097, 8192, 9000]:
        data, file_id = fixed(f"container {size}", size), fixed(f"file id {size}", 16)
        nonces = [fixed(f"nonce {size} {number}", 12) for number in range(size // 4096 + 1)]
        made.append({"file_id": file_id.hex(), "plain": data.hex(),
                     "file": container(key, file_id, nonces, data).hex()})
    for name, size in [("pg_replslot/a/state", 200), ("pg_twophase/0000030A", 4096), ("base/5/pg_internal.init", 9000),
                       ("", 100)]:
        data, file_id = fixed(f"container {name}", size), fixed(f"file id {name}", 16)
        nonces = [fixed(f"nonce {name} {number}", 12) for number in range(size // 4096 + 1)]
        made.append({"file_id": file_id.hex(), "name": name, "plain": data.hex(),
                     "file": container(key, file_id, nonces, data, name).hex()})
    write("containers", {"test": "containers", "header": "postgres-aes-256-xts-raw", "cases": made})


def main():
    for old in HERE.glob("*.json"):
        old.unlink()
    blocks("blocks-aes-128-xts", "postgres-aes-128-xts-keyring")
    blocks("blocks-aes-256-xts", "postgres-aes-256-xts-raw")
    streams()
    containers()


main()
