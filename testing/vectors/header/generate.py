#!/usr/bin/env python3
"""Makes the known-answer vectors of the object header from the specification, not from the Rust code.

An independent second implementation of docs/spec/header.md on the `cryptography` package (44 or later). All
inputs that are random in use are fixed here. Run without arguments; writes the *.json files beside itself.
"""
import hashlib
import hmac
import json
import pathlib
import struct

from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_private_key

HERE = pathlib.Path(__file__).parent
MAGIC = b"\x89STRONGROOM\r\n\x1a\n\0"
FIXED, MAC_AT, SUM_AT = 3072, 3008, 3040
KINDS = {"passphrase": 1, "raw": 2, "keyring": 3, "certificate": 4}
WYCHEPROOF = HERE.parent / "wycheproof"


def fixed(tag, n):
    """Fixed bytes for the input named `tag`."""
    return hashlib.shake_256(b"strongroom header vectors / " + tag.encode()).digest(n)


def hkdf(key, salt, info, length=32):
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(key)


def sub(key, object_id, label, length=32):
    return hkdf(key, object_id, b"strongroom/v1/" + label, length)


def aad(role, epoch, object_id, position, extra=0):
    return struct.pack("<4sHHII16sQQ", role, 1, 1, 0, epoch, object_id, position, extra)


def gcm(key, nonce, data, bound):
    return AESGCM(key).encrypt(nonce, data, bound)


def kek(opener, salt):
    if opener["kind"] == "passphrase":
        return Argon2id(salt=salt, length=32, iterations=opener["t"], lanes=opener["p"],
                        memory_cost=opener["m_kib"]).derive(bytes.fromhex(opener["bytes"]))
    if opener["kind"] == "raw":
        return hkdf(bytes.fromhex(opener["key"]), salt, b"strongroom/v1/slot")
    return hkdf(bytes.fromhex(newest(opener)["key"]), salt, b"strongroom/v1/slot")


def newest(opener):
    return max((v for v in opener["versions"] if v["active"]), key=lambda v: v["version"])


def slot(opener, salt, nonce, epoch, object_id, data_key):
    kind = KINDS[opener["kind"]]
    wrapped = gcm(kek(opener, salt), nonce, data_key, aad(b"SLOT", epoch, object_id, kind))
    cost, kdf, name, version = (0, 0, 0), 2, b"", 0
    if opener["kind"] == "passphrase":
        cost, kdf = (opener["m_kib"], opener["t"], opener["p"]), 1
    if opener["kind"] == "keyring":
        name, version = opener["id"].encode(), newest(opener)["version"]
    length = -(-(72 + 48 + len(name)) // 8) * 8
    record = struct.pack("<HHHHIIII32sHH12s", kind, length, kdf, len(name), *cost, version, salt,
                         len(wrapped), 0, nonce) + wrapped + name
    return record.ljust(length, b"\0")


def certificate(bits):
    """The opener with the private key of Wycheproof's vectors of this size."""
    group = json.loads((WYCHEPROOF / f"rsa_oaep_{bits}_sha256_mgf1sha256_test.json").read_text())["testGroups"][0]
    return {"kind": "certificate", "pkcs8": group["privateKeyPkcs8"]}


def spki_hash(public):
    return hashlib.sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


def mgf1(seed, length):
    blocks = (hashlib.sha256(seed + struct.pack(">I", i)).digest() for i in range(-(-length // 32)))
    return b"".join(blocks)[:length]


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


def oaep(public, message, label, seed):
    """RSAES-OAEP-ENCRYPT (RFC 8017, section 7.1.1) with a seed that is given."""
    numbers, k = public.public_numbers(), public.key_size // 8
    block = hashlib.sha256(label).digest() + bytes(k - len(message) - 66) + b"\x01" + message
    masked = xor(block, mgf1(seed, k - 33))
    encoded = b"\0" + xor(seed, mgf1(masked, 32)) + masked
    return pow(int.from_bytes(encoded, "big"), numbers.e, numbers.n).to_bytes(k, "big")


def certificate_slot(opener, tag, epoch, object_id, data_key, label=None, secret=None):
    private = load_der_private_key(bytes.fromhex(opener["pkcs8"]), None)
    public = private.public_key()
    label = label or b"strongroom/v1/certificate" + object_id
    secret = secret or fixed(f"{tag} secret", 32)
    sent = oaep(public, secret, label, fixed(f"{tag} seed", 32))
    back = private.decrypt(sent, padding.OAEP(padding.MGF1(SHA256()), SHA256(), label))
    assert back == secret
    salt, nonce = fixed(f"{tag} salt", 32), fixed(f"{tag} nonce", 12)
    wrapped = gcm(hkdf(secret, salt, b"strongroom/v1/slot"), nonce, data_key, aad(b"SLOT", epoch, object_id, 4))
    length = -(-(72 + 48 + 32 + len(sent)) // 8) * 8
    record = struct.pack("<HHHHIIII32sHH12s", 4, length, 3, 32, 0, 0, 0, 0, salt, len(wrapped), len(sent), nonce)
    return (record + wrapped + spki_hash(public) + sent).ljust(length, b"\0")


def seal(h):
    """Bytes of a header given as fields; adds MAC and checksum."""
    slots = b"".join(h["slots"])
    out = MAGIC + struct.pack("<HHI16sQHHIIIIHHQI44x", 1, h["kind"], 4096, h["object_id"], h["created"],
                              h["cipher"], 1, h["unit_size"], h["reserve"], h["epoch"], h["previous_epoch"],
                              1, len(h["slots"]), h["sequence"], h["features"])
    out += h["previous_key"] + bytes(4) + h["canary"] + bytes(20) + slots.ljust(2752, b"\0")
    assert len(out) == MAC_AT
    out += hmac.digest(sub(h["data_key"], h["object_id"], b"header-mac"), out, "sha256")
    return out + hashlib.sha256(out).digest()


def canary(data_key, object_id, epoch, nonce, value=b"strongroom/canar"):
    return nonce + gcm(sub(data_key, object_id, b"canary"), nonce, value, aad(b"CANR", epoch, object_id, 0))


def previous(h, old_key, nonce):
    bound = aad(b"PREV", h["epoch"], h["object_id"], h["previous_epoch"])
    return nonce + gcm(sub(h["data_key"], h["object_id"], b"previous-key"), nonce, old_key, bound)


class Inputs:
    """Hands out fixed inputs and records them for the vector file."""

    def __init__(self, name):
        self.name, self.taken = name, {"ids": [], "keys": [], "salts": [], "nonces": []}

    def take(self, what, n):
        value = fixed(f"{self.name} {what} {len(self.taken[what])}", n)
        self.taken[what].append(value.hex())
        return value


def slots_for(h, openers, inputs):
    h["slots"] = []
    for opener in openers:
        salt, nonce = inputs.take("salts", 32), inputs.take("nonces", 12)
        h["slots"].append(slot(opener, salt, nonce, h["epoch"], h["object_id"], h["data_key"]))


def create(inputs, kind, cipher, unit_size, reserve, opener, created):
    h = {"kind": kind, "cipher": cipher, "unit_size": unit_size, "reserve": reserve, "created": created,
         "epoch": 1, "previous_epoch": 0, "previous_key": bytes(60), "sequence": 1,
         "features": SEALED_ZEROS | BOUND_NAMES if kind == POSTGRES else 0}
    h["object_id"], h["data_key"] = inputs.take("ids", 16), inputs.take("keys", 32)
    slots_for(h, [opener], inputs)
    h["canary"] = canary(h["data_key"], h["object_id"], 1, inputs.take("nonces", 12))
    return h


def rekey(h, openers, inputs):
    old = h["data_key"]
    h = dict(h, epoch=h["epoch"] + 1, previous_epoch=h["epoch"], sequence=h["sequence"] + 1,
             data_key=inputs.take("keys", 32))
    slots_for(h, openers, inputs)
    h["previous_key"] = previous(h, old, inputs.take("nonces", 12))
    h["canary"] = canary(h["data_key"], h["object_id"], h["epoch"], inputs.take("nonces", 12))
    return h


def anchor(h, sequence, generation, sector_epoch=None, seals=0):
    epoch = sector_epoch or h["epoch"]
    out = struct.pack("<QI4x16s168xQ272x", sequence, epoch, generation, seals)
    return out + hmac.digest(sub(h["data_key"], h["object_id"], b"anchor"), out, "sha256")


def subkeys(h):
    if h["kind"] == POSTGRES:
        # XTS keys are both halves together.
        long = {3: 32, 4: 64}[h["cipher"]]
        lengths = {"relation": long, "wal": long, "slru": long, "control": long, "map": long, "stream": 32,
                   "container": 32}
        return {f"pg-{name}": sub(h["data_key"], h["object_id"], f"pg-{name}".encode(), length).hex()
                for name, length in lengths.items()}
    labels = ["page", "page-iv", "wal", "journal", "super-journal", "keyring-entries", "keyring-body"]
    return {label: sub(h["data_key"], h["object_id"], label.encode()).hex() for label in labels}


def write(name, content):
    (HERE / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


RAW = {"kind": "raw", "key": fixed("raw opener", 32).hex()}
RAW_2 = {"kind": "raw", "key": fixed("second raw opener", 32).hex()}
PASS = {"kind": "passphrase", "bytes": "correct horse battery staple".encode().hex(), "m_kib": 256, "t": 2, "p": 2}
RING = {"kind": "keyring", "id": "app-1.prod", "versions": [
    {"version": 1, "active": False, "key": fixed("key v1", 32).hex()},
    {"version": 2, "active": True, "key": fixed("key v2", 32).hex()}]}
SQLITE, KEYRING, POSTGRES, BACKUP, CREATED = 1, 2, 3, 5, 1767225600
FRESHNESS, SEALED_ZEROS, BOUND_NAMES = 1, 2, 4


def positive(name, kind, cipher, unit_size, reserve, opener, steps=()):
    inputs = Inputs(name)
    h = create(inputs, kind, cipher, unit_size, reserve, opener, CREATED)
    for step, openers in steps:
        if step == "rewrapped":
            h = dict(h, sequence=h["sequence"] + 1)
            slots_for(h, openers, inputs)
        elif step == "rekey_begun":
            h = rekey(h, openers, inputs)
        else:
            h = dict(h, sequence=h["sequence"] + 1, previous_epoch=0, previous_key=bytes(60))
    content = {"test": "make", "kind": kind, "cipher": cipher, "unit_size": unit_size, "unit_reserve": reserve,
               "created_unix_s": CREATED, "opener": opener, "inputs": inputs.taken,
               "steps": [{"do": step, "openers": openers} for step, openers in steps],
               "epoch": h["epoch"], "header": seal(h).hex(), "subkeys": subkeys(h),
               "first_anchor": anchor(h, 1, bytes(16)).hex() if kind == SQLITE else ""}
    if kind == SQLITE:
        generation, seals = fixed("generation", 16), 0x0123_4567_89AB_0000
        content["anchor"] = {"sequence": 6, "wal_generation": generation.hex(), "seals": seals,
                             "sector": anchor(h, 6, generation, seals=seals).hex()}
    write(name, content)
    return h


def opens(name, h, openers):
    """A header with slots that cannot be made again byte for byte: each opener must open it."""
    write(name, {"test": "open", "kind": h["kind"], "openers": openers, "epoch": h["epoch"], "header": seal(h).hex(),
                 "subkeys": subkeys(h), "first_anchor": ""})


def certificates():
    small, large, other = certificate(2048), certificate(3072), certificate(4096)
    inputs = Inputs("backup")
    h = create(inputs, BACKUP, 1, 0, 0, RAW, CREATED)
    raw_slot = h["slots"][0]
    place = (h["epoch"], h["object_id"], h["data_key"])
    small_slot, large_slot = certificate_slot(small, "2048", *place), certificate_slot(large, "3072", *place)
    h["slots"] = [small_slot, raw_slot, large_slot]
    opens("open-certificates", h, [small, large, RAW])
    h["slots"] = [large_slot]
    good = seal(h)
    opens("open-certificate", h, [large])
    negative("certificate-not-ours", good, other, 2032, BACKUP)
    negative("certificate-by-key", good, RAW, 2002, BACKUP)
    alone = seal(dict(h, slots=[raw_slot]))
    negative("certificate-for-key", alone, large, 2002, BACKUP)
    elsewhere = certificate_slot(large, "3072", *place, label=b"strongroom/v1/certificate" + bytes(16))
    negative("certificate-other-object", seal(dict(h, slots=[elsewhere])), large, 2002, BACKUP)
    short = certificate_slot(large, "3072", *place, secret=fixed("short", 31))
    negative("certificate-short-secret", seal(dict(h, slots=[short])), large, 2002, BACKUP)
    swapped = large_slot[:120] + small_slot[120:152] + large_slot[152:]
    negative("certificate-swapped-id", seal(dict(h, slots=[swapped])), small, 2002, BACKUP)
    flipped = large_slot[:-1] + bytes([large_slot[-1] ^ 1])
    negative("certificate-changed-secret", seal(dict(h, slots=[flipped])), large, 2002, BACKUP)
    for what, offset, value in (("kdf", 4, 2), ("id-length", 6, 31), ("secret-length", 58, 64), ("key-version", 20, 1)):
        odd = large_slot[:offset] + struct.pack("<H", value) + large_slot[offset + 2:]
        negative(f"certificate-{what}", seal(dict(h, slots=[odd])), large, 3003, BACKUP)
    negative("secret-of-a-raw-key", seal(dict(h, slots=[raw_slot[:58] + b"\x08\0" + raw_slot[60:]])), RAW, 3003, BACKUP)
    negative("backup-unit-size", seal(dict(h, unit_size=4096)), large, 3003, BACKUP)
    negative("backup-cipher", seal(dict(h, cipher=2)), large, 3003, BACKUP)


def negative(name, header, opener, error, kind=SQLITE):
    write("refuse-" + name, {"test": "refuse", "kind": kind, "opener": opener, "header": header.hex(), "error": error})


def patched(header, offset, value, resum=True):
    out = header[:offset] + value + header[offset + len(value):]
    return out[:SUM_AT] + hashlib.sha256(out[:SUM_AT]).digest() if resum else out


def main():
    for old in HERE.glob("*.json"):
        old.unlink()
    h = positive("sqlite-gcm-raw", SQLITE, 1, 4096, 32, RAW)
    positive("sqlite-ctr-passphrase", SQLITE, 2, 8192, 32, PASS)
    positive("sqlite-gcm-keyring", SQLITE, 1, 65536, 32, RING)
    ring = positive("keyring-passphrase", KEYRING, 1, 0, 0, PASS)
    instance = positive("postgres-aes-128-xts-keyring", POSTGRES, 3, 8192, 0, RING)
    plain_zeros = positive("postgres-aes-256-xts-raw", POSTGRES, 4, 8192, 0, RAW)
    positive("postgres-rekey-begun", POSTGRES, 4, 8192, 0, RAW, [("rekey_begun", [RAW_2])])
    positive("rewrapped-three-slots", SQLITE, 1, 512, 32, RAW, [("rewrapped", [RING, PASS, RAW_2])])
    during = positive("rekey-begun", SQLITE, 1, 4096, 32, RAW, [("rekey_begun", [RAW_2])])
    positive("rekey-finished", SQLITE, 1, 4096, 32, RAW, [("rekey_begun", [RAW_2]), ("rekey_finished", [])])

    good = seal(h)
    negative("magic", patched(good, 1, b"s"), RAW, 3001)
    negative("empty", b"", RAW, 3001)
    negative("truncated", good[:-1], RAW, 3006)
    negative("newer-version", patched(good, 16, b"\x02\x00"), RAW, 3002)
    negative("version-zero", patched(good, 16, b"\x00\x00"), RAW, 3003)
    negative("checksum", patched(good, 40, b"\xff", resum=False), RAW, 3003)
    negative("reserved-byte", patched(good, 100, b"\x01"), RAW, 3003)
    negative("byte-after-slots", patched(good, MAC_AT - 1, b"\x01"), RAW, 3003)
    negative("slot-count", patched(good, 70, b"\x09\x00"), RAW, 3003)
    negative("unknown-cipher", patched(good, 48, b"\x05\x00"), RAW, 3003)
    negative("xts-for-a-database", seal(dict(h, cipher=3)), RAW, 3003)
    negative("gcm-for-an-instance", seal(dict(instance, cipher=1)), RING, 3003, POSTGRES)
    negative("instance-unit-size", seal(dict(instance, unit_size=4096)), RING, 3003, POSTGRES)
    negative("instance-reserve", seal(dict(instance, reserve=32)), RING, 3003, POSTGRES)
    negative("instance-longer-key", patched(seal(instance), 48, b"\x04\x00"), RING, 3004, POSTGRES)
    negative("instance-as-database", seal(instance), RING, 3007)
    negative("instance-freshness", seal(dict(instance, features=FRESHNESS)), RING, 3003, POSTGRES)
    negative("database-sealed-zeros", seal(dict(h, features=SEALED_ZEROS)), RAW, 3003)
    negative("keyring-sealed-zeros", seal(dict(ring, features=SEALED_ZEROS)), PASS, 3003, KEYRING)
    negative("database-bound-names", seal(dict(h, features=BOUND_NAMES)), RAW, 3003)
    negative("keyring-bound-names", seal(dict(ring, features=BOUND_NAMES)), PASS, 3003, KEYRING)
    negative("instance-other-zeros", patched(seal(instance), 80, b"\4\0\0\0"), RING, 3004, POSTGRES)
    negative("instance-other-names", patched(seal(instance), 80, b"\2\0\0\0"), RING, 3004, POSTGRES)
    opens("postgres-stored-zeros", dict(plain_zeros, features=0), [RAW])
    opens("postgres-unbound-names", dict(plain_zeros, features=SEALED_ZEROS), [RAW])
    costly = slot(PASS, bytes(32), bytes(12), 1, h["object_id"], h["data_key"])
    costly = costly[:8] + struct.pack("<I", 0xFFFFFFFF) + costly[12:]
    negative("argon2-cost", seal(dict(h, slots=[costly])), PASS, 3003)
    negative("other-kind", good, RAW, 3007, KEYRING)
    negative("wrong-key", good, RAW_2, 2002)
    negative("wrong-kind-of-key", good, PASS, 2002)
    negative("no-slot", patched(patched(good, 70, bytes(2)), 256, bytes(2752)), RAW, 2002)
    negative("object-id", patched(good, 24, b"\xff"), RAW, 2002)
    gone = dict(RING, versions=RING["versions"][1:])
    old = dict(RING, versions=[dict(RING["versions"][0], active=True)])
    negative("unknown-version", seal(dict(h, slots=[slot(old, bytes(32), bytes(12), 1, h["object_id"],
                                                        h["data_key"])])), gone, 2003)
    negative("downgraded-cipher", patched(good, 48, b"\x02\x00"), RAW, 3004)
    negative("swapped-mac", patched(good, MAC_AT, bytes(32)), RAW, 3004)
    negative("canary-value", seal(dict(h, canary=canary(h["data_key"], h["object_id"], 1, bytes(12), bytes(16)))),
             RAW, 3005)
    negative("canary-epoch", seal(dict(h, canary=canary(h["data_key"], h["object_id"], 2, bytes(12)))), RAW, 3005)
    negative("previous-key", seal(dict(during, previous_key=bytes(59) + b"\x01")), RAW_2, 3005)
    certificates()


main()
