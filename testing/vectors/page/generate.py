#!/usr/bin/env python3
"""Makes the known-answer vectors of sealed pages, log frames and journal slots from docs/spec/sqlite.md, not from the Rust
code, on the `cryptography` package. Data keys and headers are those of ../header. Run without arguments.
"""
import hashlib
import hmac
import json
import pathlib
import struct

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

HERE = pathlib.Path(__file__).parent
WAL_MAGIC = bytes.fromhex("377f068253520001000010000000000053 54524f4e47524ddc93c75fb20a30f8".replace(" ", ""))
JOURNAL_MAGIC = b"\0STRONGROOM JOURNAL\r\n\x1a\n".ljust(32, b"\0")


def fixed(tag, n):
    return hashlib.shake_256(b"strongroom page vectors / " + tag.encode()).digest(n)


def hkdf(key, salt, info):
    return HKDF(algorithm=SHA256(), length=32, salt=salt, info=info).derive(key)


class Object:
    def __init__(self, name):
        made = json.loads((HERE / "../header" / f"{name}.json").read_text())
        self.name, self.cipher, self.size = name, made["cipher"], made["unit_size"]
        self.id = bytes.fromhex(made["inputs"]["ids"][0])
        self.keys = {epoch: bytes.fromhex(key) for epoch, key in enumerate(made["inputs"]["keys"], 1)}

    def sub(self, epoch, label):
        return hkdf(self.keys[epoch], self.id, b"strongroom/v1/" + label)

    def aad(self, role, cipher, size, epoch, position, extra=0):
        return struct.pack("<4sHHII16sQQ", role, 1, cipher, size, epoch, self.id, position, extra)

    def page(self, number, nonce, plain, epoch):
        bound = self.aad(b"PAGE", self.cipher, self.size, epoch, number)
        key = self.sub(epoch, b"page")
        if self.cipher == 1:
            sealed = AESGCM(key).encrypt(nonce, plain[:-32], bound)
            data, tag = sealed[:-16], sealed[-16:]
        else:
            block = hmac.digest(self.sub(epoch, b"page-iv"), bound + nonce, "sha256")[:16]
            data, tag = Cipher(algorithms.AES(key), modes.CTR(block)).encryptor().update(plain[:-32]), bytes(16)
        return data + nonce + tag + struct.pack("<I", epoch)

    def prologue(self, magic, kind, unit, epoch, salt):
        return magic + struct.pack("<HHII4x16s32s32s12s4x", 1, kind, unit, epoch, self.id, salt, bytes(32), bytes(12))

    def unit(self, prologue, label, role, size, epoch, position, nonce, plain, extra=0):
        key = hkdf(self.sub(epoch, label), prologue[64:96], prologue)
        return AESGCM(key).encrypt(nonce, plain, self.aad(role, 1, size, epoch, position, extra))


def write(name, **vector):
    (HERE / f"{name}.json").write_text(json.dumps(vector, indent=1) + "\n")


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


def pages():
    gcm, ctr, rekey = Object("sqlite-gcm-raw"), Object("sqlite-ctr-passphrase"), Object("rekey-begun")
    for name, of, number, epoch in [
        ("page-gcm-first", gcm, 1, 1), ("page-gcm-far", gcm, 2**32 - 2, 1), ("page-ctr", ctr, 7, 1),
        ("page-current-epoch", rekey, 3, 2), ("page-previous-epoch", rekey, 3, 1),
    ]:
        plain = fixed(name, of.size - 32) + bytes(32)
        nonce = fixed(name + " nonce", 12)
        write(name, test="page", header=of.name, number=number, epoch=epoch, nonce=nonce.hex(), plain=plain.hex(),
              sealed=of.page(number, nonce, plain, epoch).hex())
    plain, nonce, size = fixed("refused", gcm.size - 32) + bytes(32), fixed("refused nonce", 12), gcm.size
    good = gcm.page(5, nonce, plain, 1)
    for name, number, sealed in [
        ("first-byte", 5, flipped(good, 0)), ("last-data-byte", 5, flipped(good, size - 33)),
        ("nonce", 5, flipped(good, size - 32)), ("tag", 5, flipped(good, size - 5)),
        ("epoch", 5, flipped(good, size - 4)), ("other-page", 6, good), ("zeros", 5, bytes(size)),
        ("another-object", 5, rekey.page(5, nonce, plain, 1)),
    ]:
        write(f"refuse-{name}", test="refuse-page", header=gcm.name, number=number, sealed=sealed.hex())
    sealed = ctr.page(5, nonce, fixed("ctr", ctr.size - 32) + bytes(32), 1)
    write("refuse-ctr-tag", test="refuse-page", header=ctr.name, number=5, sealed=flipped(sealed, ctr.size - 20).hex())


def units():
    gcm = Object("sqlite-gcm-raw")
    salt = fixed("salt", 32)
    log = gcm.prologue(WAL_MAGIC, 1, gcm.size, 1, salt)
    nonce, plain = fixed("frame nonce", 12), fixed("frame", 24 + gcm.size)
    frame = nonce + gcm.unit(log, b"wal", b"WALF", gcm.size, 1, 9, nonce, plain)
    vector = dict(header=gcm.name, prologue=log.hex())
    write("frame", test="frame", index=9, nonce=nonce.hex(), plain=plain.hex(), sealed=frame.hex(), **vector)
    write("refuse-frame-moved", test="refuse-frame", index=10, sealed=frame.hex(), **vector)
    other = dict(header=gcm.name, prologue=flipped(log, 70).hex())
    write("refuse-frame-generation", test="refuse-frame", index=9, sealed=frame.hex(), **other)
    journal = gcm.prologue(JOURNAL_MAGIC, 2, 512, 1, salt)
    nonce, chunk = fixed("slot nonce", 12), fixed("slot", 300)
    body = gcm.unit(journal, b"journal", b"JRNL", 512, 1, 4, nonce, chunk + bytes(212), 300)
    slot = nonce + struct.pack("<HH", 300, 0) + body
    vector = dict(header=gcm.name, prologue=journal.hex())
    write("slot", test="slot", index=4, plain=chunk.hex(), sealed=slot.hex(), **vector)
    write("refuse-slot-length", test="refuse-slot", index=4, sealed=flipped(slot, 12).hex(), **vector)
    write("refuse-slot-moved", test="refuse-slot", index=3, sealed=slot.hex(), **vector)
    write("refuse-slot-reserved", test="refuse-slot", index=4, sealed=flipped(slot, 15).hex(), **vector)
    head(gcm, journal, vector["header"])


def head(gcm, prologue, name):
    """A journal's first 3072 bytes: the prologue twice, marks 3 and 2 twice each."""
    def mark(sequence, records, at, length):
        plain = struct.pack("<QHHIQQ", sequence, 1, 0, records, at, length)
        nonce = fixed(f"mark nonce {sequence}", 12)
        return nonce + gcm.unit(prologue, b"journal", b"MARK", 512, 1, 1 - sequence % 2, nonce, plain)

    def sectors(*records):
        return b"".join(record.ljust(512, b"\0") for record in records)

    newest, older = mark(3, 7, 8192, 16384), mark(2, 5, 4096, 8192)
    said = dict(header=name, sequence=3, records=7, at=8192, length=16384)
    whole = sectors(prologue, prologue, newest, newest, older, older)
    write("head", test="head", sealed=whole.hex(), **said)
    changed = flipped(flipped(whole, 70), 1024 + 20)
    write("head-one-copy-each", test="head", sealed=changed.hex(), **said)
    older_only = dict(header=name, sequence=2, records=5, at=4096, length=8192)
    torn = sectors(prologue, prologue, flipped(newest, 20), mark(1, 1, 0, 4096), older, older)
    write("head-torn", test="head", sealed=torn.hex(), **older_only)
    lost = sectors(prologue, prologue, flipped(newest, 20), flipped(newest, 21), older, older)
    write("refuse-head-mark-lost", test="refuse-head", header=name, sealed=lost.hex())
    swapped = sectors(prologue, prologue, older, older, newest, newest)
    write("refuse-head-pairs-swapped", test="refuse-head", header=name, sealed=swapped.hex())


pages()
units()
