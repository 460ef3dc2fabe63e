"""Golden values of the checksum by pieces (docs/formats/store.md), by python-xxhash 3: pip install xxhash.

python3 make_pieces.py > pieces.txt      lines: bytes, value in hex; byte i of the object is (i * 131 + i // 251) % 256
"""

import struct

import xxhash

PIECE = 16 * 1024
SIZES = [0, 1, 8, 240, 241, 512, 1024, 1025, 16383, 16384, 16385, 32767, 32768, 32769, 65536, 100_001, 3 * PIECE + 240, 1 << 20]


def piece_hash(value: bytes) -> int:
    count = max(1, len(value) // PIECE)
    pieces = [value[i * PIECE:(i + 1) * PIECE if i + 1 < count else len(value)] for i in range(count)]
    hashes = [xxhash.xxh3_64_intdigest(piece) for piece in pieces]
    if count == 1:
        return hashes[0]
    return xxhash.xxh3_64_intdigest(struct.pack(f"<{count}Q", *hashes))


for size in SIZES:
    print(size, f"{piece_hash(bytes((i * 131 + i // 251) % 256 for i in range(size))):016x}")
