#!/usr/bin/env python3
"""A second reader of backup sets, written from docs/spec/backup.md and docs/spec/header.md alone.

    backup_reader.py MEDIUM POSITION KEYFILE|- OUT [PUBLIC_KEY]

KEYFILE holds 64 hexadecimal digits, a raw key; - is for a set that is not sealed. OUT is a directory that must not
exist; members are written into it. With PUBLIC_KEY, a PEM file, the set must be signed by that key. Needs the Python package `cryptography`, and the program `zstd` for compressed sets.
It stops at whatever the specification says a reader must refuse.
"""
import hashlib
import hmac
import json
import os
import struct
import subprocess
import sys

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, padding, serialization
from cryptography.hazmat.primitives.ciphers import Cipher, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

try:
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
except ImportError:
    from cryptography.hazmat.primitives.ciphers.algorithms import TripleDES

SEGMENT = 1048576
HEADER = 4096
MAGIC = b"\x89STRONGROOM\r\n\x1a\n\0"
KEY_BYTES = {1: 32, 5: 24, 6: 16}
TRIPLE_DES = 7
NAMES = {0: "none", 1: "aes-256", 5: "aes-192", 6: "aes-128", TRIPLE_DES: "triple-des-3key"}


def need(condition, what):
    if not condition:
        sys.exit(f"refused: {what}")


def hkdf(key, salt, info, length=32):
    return HKDF(hashes.SHA256(), length, salt, info).derive(key)


def triple_des(family_key, salt, nonce, head, data, trailer):
    """One segment under cipher 7: the tag first, then TDEA-CBC."""
    keys = hkdf(family_key, salt, nonce, 64)
    rest, tag = trailer[:8], trailer[8:]
    need(hmac.compare_digest(hmac.new(keys[32:], head + data + rest, "sha256").digest(), tag), "tag")
    here = 8 - len(data) % 8
    need(rest[here:] == bytes(8 - here), "zeros of a trailer")
    decryptor = Cipher(TripleDES(keys[:24]), modes.CBC(keys[24:32])).decryptor()
    padded = decryptor.update(data + rest[:here]) + decryptor.finalize()
    unpadder = padding.PKCS7(64).unpadder()
    return unpadder.update(padded) + unpadder.finalize()


def associated(role, object_id, position):
    return struct.pack("<4sHHII16sQQ", role, 1, 1, 0, 1, object_id, position, 0)


def data_key(header, raw):
    """The data key of a set's object header: raw-key slots only (header.md, "Opening")."""
    need(header[:16] == MAGIC, "magic")
    version, kind, length = struct.unpack_from("<HHI", header, 16)
    need((version, kind, length) == (1, 5, HEADER), "version or kind")
    need(hashlib.sha256(header[:3040]).digest() == header[3040:3072], "checksum")
    need(header[3072:] == bytes(HEADER - 3072), "anchors")
    object_id = header[24:40]
    epoch, previous = struct.unpack_from("<II", header, 60)
    need((epoch, previous) == (1, 0), "epoch")
    at = 256
    for _ in range(struct.unpack_from("<H", header, 70)[0]):
        slot_kind, slot_length = struct.unpack_from("<HH", header, at)
        slot = header[at : at + slot_length]
        at += slot_length
        if slot_kind != 2:
            continue
        kek = hkdf(raw, slot[24:56], b"strongroom/v1/slot")
        try:
            key = AESGCM(kek).decrypt(slot[60:72], slot[72:120], associated(b"SLOT", object_id, 2))
        except Exception:
            continue
        mac = hmac.new(hkdf(key, object_id, b"strongroom/v1/header-mac"), header[:3008], "sha256")
        need(hmac.compare_digest(mac.digest(), header[3008:3040]), "header MAC")
        canary = AESGCM(hkdf(key, object_id, b"strongroom/v1/canary"))
        opened = canary.decrypt(header[192:204], header[204:236], associated(b"CANR", object_id, 0))
        need(opened == b"strongroom/canar", "canary")
        return key
    sys.exit("refused: no slot opens")


def read_head(path, raw):
    """Description, cipher number and data key of a set; the data key is None in a plain one."""
    head = open(path, "rb").read()
    sealed = head.startswith(MAGIC)
    rest = head[HEADER:] if sealed else head
    magic, version, cipher, length, set_id = struct.unpack_from("<8sHHI16s", rest)
    need(magic == b"SRBKSET\x1a" and version == 1, "record")
    need(len(rest) == 64 + length, "length of the head")
    text = rest[64:]
    key = None
    if sealed:
        need(raw is not None, "a key is needed")
        key = data_key(head[:HEADER], raw)
        need(head[24:40] == set_id, "ids")
        need(struct.unpack_from("<H", head, 48)[0] == cipher, "ciphers")
        seal = hmac.new(hkdf(key, set_id, b"strongroom/v1/backup-set"), rest[:32] + text, "sha256")
        seal = seal.digest()
    else:
        need(cipher == 0, "cipher")
        seal = hashlib.sha256(rest[:32] + text).digest()
    need(hmac.compare_digest(seal, rest[32:64]), "seal")
    description = json.loads(text)
    need(description["set_id"] == set_id.hex(), "set id")
    need(description["key_algorithm"] == NAMES[cipher], "algorithm")
    return description, cipher, key


def check_signature(medium, position, description, public):
    """Refuses a set that the key of the PEM file `public` has not signed ("Signatures")."""
    head = open(f"{medium}/sets/{position:08}", "rb").read()
    signed = head[HEADER:] if head.startswith(MAGIC) else head
    path = f"{medium}/data/{description['set_id']}.signature"
    need(os.path.exists(path), "the set is not signed")
    record = open(path, "rb").read()
    need(len(record) == 128, "length of the signature")
    magic, version, algorithm, reserved, set_id, key_id = struct.unpack_from("<8sHHI16s32s", record)
    need((magic, version, algorithm, reserved) == (b"SRBKSIG\x1a", 1, 1, 0), "signature")
    need(set_id.hex() == description["set_id"], "the signature is another set's")
    path = f"{medium}/medium.json"
    need(os.path.exists(path), "the medium does not say which one it is")
    need(json.load(open(path))["medium_id"] == description["medium_id"], "a set of another medium")
    key = serialization.load_pem_public_key(open(public, "rb").read())
    der = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    need(hashlib.sha256(key.public_bytes(*der)).digest() == key_id, "another signer")
    try:
        key.verify(record[64:], b"strongroom/v1/backup-signature\0" + record[:64] + signed)
    except InvalidSignature:
        sys.exit("refused: the signature does not hold")
    ends = description["families"] + [description.get("postgres", {}).get("manifest_object", {"bytes_digest": ""})]
    need(all("bytes_digest" in end for end in ends), "the signature does not cover every byte")


class Family:
    def __init__(self, path, number, families, set_id, cipher, key, end):
        self.bytes = open(path, "rb").read()
        need(len(self.bytes) == end["length_bytes"], "length of a family")
        digest = hashlib.sha256(self.bytes).hexdigest()
        need(end.get("bytes_digest", digest) == digest, "digest of all bytes")
        header = self.bytes[:80]
        fields = struct.unpack("<8sHHHHII16s32s7sB", header)
        expected = (b"SRBKFAM\x1a", 1, cipher, number, families, SEGMENT, 0, set_id)
        need(fields[:8] == expected and fields[10] == 0, "header of a family")
        self.header, self.prefix, self.end = header, fields[9], end
        self.at, self.next = 80, 0
        self.digest = hashlib.sha256(header)
        self.aead = self.key = None
        if key is not None:
            family_input = hkdf(key, set_id, b"strongroom/v1/backup-family")
            family_key = hkdf(family_input, fields[8], header)
            self.salt, self.key = fields[8], family_key
            self.aead = None if cipher == TRIPLE_DES else AESGCM(family_key[: KEY_BYTES[cipher]])

    def segment(self):
        """The next piece; None at the family's end."""
        head = self.bytes[self.at : self.at + 12]
        length, plain_length, flags, reserved = struct.unpack("<IIHH", head)
        last, packed = flags & 1, flags & 2
        need(flags < 4 and reserved == 0 and length <= SEGMENT and plain_length <= SEGMENT, "segment")
        if last:
            need((length, plain_length, flags) == (0, 0, 1), "last segment")
        else:
            need(0 < length and (length < plain_length if packed else length == plain_length), "lengths")
        start = self.at + 12
        size = 16 if self.aead else 40 if self.key else 32
        data, trailer = self.bytes[start : start + length], self.bytes[start + length : start + length + size]
        need(len(data) == length and len(trailer) == size, "a family that is cut")
        number = struct.pack(">I", self.next)
        nonce = self.prefix + number + bytes([last])
        if self.aead:
            data = self.aead.decrypt(nonce, data + trailer, head)
        elif self.key:
            data = triple_des(self.key, self.salt, nonce, head, data, trailer)
        else:
            need(hashlib.sha256(self.header + number + head + data).digest() == trailer, "digest")
        self.digest.update(head + trailer)
        self.at, self.next = start + length + size, self.next + 1
        if last:
            need(self.at == len(self.bytes), "bytes after the end")
            need(self.next == self.end["segments"], "number of segments")
            need(self.digest.hexdigest() == self.end["digest"], "digest of a family")
            return None
        if packed:
            data = subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=True).stdout
        need(len(data) == plain_length, "length of a piece")
        return data


def stream(families):
    """All pieces, round-robin."""
    out, turn = [], 0
    while True:
        piece = families[turn % len(families)].segment()
        if piece is None:
            break
        need(not out or len(out[-1]) == SEGMENT, "a short piece that is not the last")
        out.append(piece)
        turn += 1
    for number, family in enumerate(families):
        if number != turn % len(families):
            need(family.segment() is None, "families of different lengths")
    return b"".join(out)


def inside(path):
    names = path.split(b"/")
    return path == b"." or (b"\0" not in path and all(name not in (b"", b".", b"..") for name in names))


def unpack(content, out, links):
    """Writes the members; returns members, files and bytes."""
    os.mkdir(out)
    at, members, files, size = 0, 0, 0, 0
    directories, current = {b"."}, None
    while True:
        kind, reserved, length = struct.unpack_from("<HHI", content, at)
        body = content[at + 8 : at + 8 + length]
        need(reserved == 0 and len(body) == length, "an item")
        at += 8 + length
        if kind == 1:
            need(current is None, "a member within a file")
            sort, _, mode, _, _, _, _, path_length, target_length = struct.unpack_from("<HHIIIqIHH", body)
            need(length == 32 + path_length + target_length, "a member")
            path, target = body[32 : 32 + path_length], body[32 + path_length :]
            need(inside(path), "a path")
            need(os.path.dirname(path) in directories | {b""}, "a member outside any directory")
            place = os.path.join(os.fsencode(out), path)
            members += 1
            if sort == 1:
                files += 1
                current = (os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode or 0o600), hashlib.sha256(), 0)
            elif sort == 2:
                if path not in directories:
                    os.mkdir(place)
                directories.add(path)
            elif sort == 3:
                need(links, "a link in a set of a kind that has none")
                os.symlink(target, place)
            else:
                sys.exit("refused: this reader knows no tablespaces")
        elif kind == 2:
            need(current is not None and length > 0, "data")
            file, digest, count = current
            os.write(file, body)
            digest.update(body)
            current = (file, digest, count + length)
        elif kind == 3:
            file, digest, count = current
            need(body == struct.pack("<Q", count) + digest.digest(), "digest of a file")
            os.close(file)
            size, current = size + count, None
        else:
            need(kind == 4 and current is None, "the end")
            need(body == struct.pack("<QQQ", members, files, size), "counts")
            need(at == len(content), "bytes after the end")
            return members, files, size


def main():
    medium, position, key_file, out, *public = sys.argv[1:]
    raw = None if key_file == "-" else bytes.fromhex(open(key_file).read().strip())
    description, cipher, key = read_head(f"{medium}/sets/{int(position):08}", raw)
    need(description.get("set_position", int(position)) == int(position), "position")
    if public:
        check_signature(medium, int(position), description, public[0])
    set_id, ends = bytes.fromhex(description["set_id"]), description["families"]
    families = [
        Family(f"{medium}/data/{set_id.hex()}.{number}", number, len(ends), set_id, cipher, key, end)
        for number, end in enumerate(ends)
    ]
    counts = unpack(stream(families), out, description["kind"] == "files")
    stated = tuple(description[name] for name in ("members", "files", "backup_size_bytes"))
    need(counts == stated, "counts of the head")
    print(f"{counts[1]} files, {counts[2]} bytes")


main()
