"""Reads chunks from a Dolt store without busload, by the least code that can.

The store is a directory, or a bucket's http(s) URL, with classic table files. A program that talks
to busload usually has this already, with archives, retries and credentials: it is its database.
"""
import bisect
import hashlib
import itertools
import os
import urllib.request

FOOTER_BYTES = 20
RECORD_INDEX_BYTES = 28
MAGIC = bytes.fromhex("ffb5d8c22463ee50")


class OwnStore:
    """Opens its files when the first chunk is asked for."""

    def __init__(self, url):
        self._url = url
        self._files = None

    def get(self, address):
        """A chunk's contents, checked; none if no file holds it."""
        if self._files is None:
            self._files = [TableFile(self._url, *entry) for entry in read_manifest(self._url)]
        for file in self._files:
            record = file.record(address)
            if record is not None:
                contents = snappy_decode(record[:-4])
                if hashlib.sha512(contents).digest()[:20] != address:
                    raise ValueError(f"{file.name}: contents and address disagree")
                return contents
        return None


class TableFile:
    """A classic table file: its index in memory, its records where they are."""

    def __init__(self, url, name, count):
        self.name, self._url = name, url
        tail = read(url, name, -(count * RECORD_INDEX_BYTES + FOOTER_BYTES), None)
        if tail[-8:] != MAGIC or int.from_bytes(tail[-20:-16], "big") != count:
            raise ValueError(f"{name}: expected a classic table file of {count} chunks")
        offsets = range(12 * count, 16 * count, 4)
        lengths = [int.from_bytes(tail[at:at + 4], "big") for at in offsets]
        self._ends = list(itertools.accumulate(lengths))
        tuples = [tail[at:at + 12] for at in range(0, 12 * count, 12)]
        suffix = lambda ordinal: tail[16 * count + 12 * ordinal:][:12]
        ordinals = [int.from_bytes(entry[8:], "big") for entry in tuples]
        self._index = sorted((entry[:8] + suffix(o), o) for entry, o in zip(tuples, ordinals))

    def record(self, address):
        at = bisect.bisect_left(self._index, (address, 0))
        if at == len(self._index) or self._index[at][0] != address:
            return None
        ordinal = self._index[at][1]
        start = self._ends[ordinal - 1] if ordinal else 0
        return read(self._url, self.name, start, self._ends[ordinal] - start)


def read_manifest(url):
    fields = read(url, "manifest", 0, None).decode().split(":")
    files = fields[{"4": 4, "5": 5}[fields[0]]:]
    return [(name, int(count)) for name, count in zip(files[::2], files[1::2])]


def read(url, name, start, length):
    """Bytes of an object; a negative start counts from its end."""
    if url.startswith(("http://", "https://")):
        end = "" if length is None else start + length - 1
        ranges = f"bytes={start}" if start < 0 else f"bytes={start}-{end}"
        request = urllib.request.Request(f"{url}/{name}", headers={"Range": ranges})
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.read()
    with open(os.path.join(url, name), "rb") as file:
        file.seek(start, os.SEEK_END if start < 0 else os.SEEK_SET)
        return file.read() if length is None else file.read(length)


def snappy_decode(block):
    """A snappy block: a length, then literals and copies of what came before."""
    length, at = read_varint(block)
    out = bytearray()
    while at < len(block):
        tag, kind = block[at] >> 2, block[at] & 3
        at += 1
        if kind == 0:
            extra = max(tag - 59, 0)
            count = (int.from_bytes(block[at:at + extra], "little") if extra else tag) + 1
            out += block[at + extra:at + extra + count]
            at += extra + count
            continue
        if kind == 1:
            count, offset, extra = (tag & 7) + 4, (tag >> 3) << 8 | block[at], 1
        else:
            extra = 2 if kind == 2 else 4
            count, offset = tag + 1, int.from_bytes(block[at:at + extra], "little")
        at += extra
        if not 0 < offset <= len(out):
            raise ValueError("snappy: a copy from before the beginning")
        for _ in range(count):
            out.append(out[-offset])
    if len(out) != length:
        raise ValueError(f"snappy: expected {length} bytes, got {len(out)}")
    return bytes(out)


def read_varint(block):
    value = 0
    for at, byte in enumerate(block[:5]):
        value |= (byte & 127) << 7 * at
        if byte < 128:
            return value, at + 1
    raise ValueError("snappy: no length")
