"""Golden bytes of the store's wire frames and of its shared index, written by struct and the PyPI package xxhash 4.1.0
from docs/formats/store.md alone; nothing of levada takes part. usage: make_store.py FOLDER"""

import pathlib
import struct
import sys

import xxhash


def frame(op, *, reply=False, status=0, flags=0, id=0, text=b"", field=b"", body=0, first=0, second=0, third=0, inc=0):
    head = b"LVST" + struct.pack(
        "<BBBBIHHQQQQQ", 1, op | (0x80 if reply else 0), status, flags, id, len(text + field), len(field), body, first,
        second, third, inc)
    assert len(head) == 56
    return head + struct.pack("<Q", xxhash.xxh3_64_intdigest(head)) + text + field


FRAMES = [
    ("hello", frame(1, id=1, text=b"correct horse")),
    ("hello reply", frame(1, reply=True, id=1, first=1 << 30, third=1, inc=0x1122334455667788)),
    ("put", frame(3, flags=1, id=2, text=b"s/run:a/g1/x", body=4096, first=250000, second=0xDEADBEEFCAFEF00D)),
    ("get", frame(4, id=3, text=b"s/run:a/g1/x", first=4096, inc=0x1122334455667788)),
    ("get reply", frame(4, reply=True, id=3, body=4096, first=4096, second=0xDEADBEEFCAFEF00D, inc=0x1122334455667788)),
    ("not found", frame(4, reply=True, status=4, id=4, text=b"gone", field=b"incarnation", inc=9)),
    ("remove reply", frame(5, reply=True, flags=2, id=5, inc=9)),
]


def index(entries, objects, data_bytes, incarnation):
    """The image of an arena's memory: `objects` are (key, offset, value)."""
    page = lambda n: (n + 4095) // 4096 * 4096
    buckets = 1 << (2 * entries - 1).bit_length()
    buckets_at = 4096
    entries_at = buckets_at + page(buckets * 4)
    data_at = entries_at + page(entries * 1024)
    image = bytearray(page(data_at + data_bytes))
    image[0:7] = b"LVSTIDX"
    struct.pack_into("<BII", image, 7, 1, entries, buckets)
    struct.pack_into("<QQQQQ", image, 16, incarnation, buckets_at, entries_at, data_at, data_bytes)
    struct.pack_into("<QI", image, 56, 2 * len(objects), 0)
    for number, (key, offset, value) in enumerate(objects):
        at, hashed = entries_at + 1024 * number, xxhash.xxh3_64_intdigest(key)
        bucket = buckets_at + 4 * (hashed & (buckets - 1))
        (chain,) = struct.unpack_from("<I", image, bucket)
        struct.pack_into("<QQQQQII", image, at, (number + 1) << 1 | 1, hashed, offset, len(value),
                         xxhash.xxh3_64_intdigest(value), chain, len(key))
        image[at + 64:at + 64 + len(key)] = key
        struct.pack_into("<I", image, bucket, number + 1)
        image[data_at + offset:data_at + offset + len(value)] = value
    return bytes(image)


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "frames.txt").write_text("".join(f"{name}: {data.hex()}\n" for name, data in FRAMES))
    objects = [(b"s/run:a/g1/%d" % i, 512 * i, bytes([65 + i]) * (100 + i)) for i in range(5)]
    (folder / "index.bin").write_bytes(index(8, objects, 4096, 0x1122334455667788))


main(sys.argv[1])
