#!/usr/bin/env python3
"""Writes gguf_quants/: a small GGUF file and what its tensors hold, both by others' code than levada's.

The file is written by the `gguf` package's GGUFWriter; the expected values are its own numpy dequantisation
(gguf.quants) and, for FP8, ml_dtypes. Blocks are random bytes with finite scales, so every bit pattern of the quants and
of the packed 6-bit scales occurs. Run in a throwaway venv:

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install gguf==0.19.0 numpy==2.4.6 ml_dtypes==0.6.0
    /tmp/venv/bin/python tests/vectors/make_gguf_quants.py
"""
import pathlib

import gguf
import ml_dtypes
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Value

FOLDER = pathlib.Path(__file__).parent / "gguf_quants"
ROWS, COLUMNS = 2, 512
# Where the float16 scales stand in a block.
SCALE_OFFSETS = {Type.Q8_0: [0], Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q4_K: [0, 2], Type.Q6_K: [208]}


def random_blocks(rng, kind):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (ROWS * COLUMNS // elements, size), dtype=np.uint8)
    for offset in SCALE_OFFSETS[kind]:
        scales = rng.normal(0, 0.05, len(blocks)).astype(np.float16)
        scales[0] = np.float16(3e-6)  # a subnormal
        blocks[:, offset:offset + 2] = scales[:, None].view(np.uint8)
    return blocks.reshape(ROWS, -1)


def add_metadata(writer):
    writer.add_string("test.string", "häuser")
    writer.add_uint8("test.u8", 200)
    writer.add_int8("test.i8", -100)
    writer.add_uint16("test.u16", 60000)
    writer.add_int16("test.i16", -30000)
    writer.add_uint32("test.u32", 4000000000)
    writer.add_int32("test.i32", -2000000000)
    writer.add_uint64("test.u64", 2**63 - 1)
    writer.add_uint64("test.u64_wide", 2**63)
    writer.add_int64("test.i64", -(2**63))
    writer.add_float32("test.f32", 0.25)
    writer.add_float64("test.f64", 0.1)
    writer.add_bool("test.bool", True)
    writer.add_array("test.strings", ["a", "", "ж"])
    writer.add_key_value("test.i32s", [1, -2, 3], Value.ARRAY, Value.INT32)
    writer.add_key_value("test.f32s", [0.5, 1.5], Value.ARRAY, Value.FLOAT32)


def main():
    FOLDER.mkdir(exist_ok=True)
    rng = np.random.default_rng(20261129)
    writer = gguf.GGUFWriter(FOLDER / "quants.gguf", "test")
    add_metadata(writer)
    for kind in SCALE_OFFSETS:
        blocks = random_blocks(rng, kind)
        writer.add_tensor(kind.name, blocks, raw_dtype=kind)
        gguf.dequantize(blocks, kind).astype("<f4").tofile(FOLDER / f"{kind.name}.f32")
    plain = rng.normal(0, 1, (ROWS, COLUMNS)).astype(np.float32)
    writer.add_tensor("F32", plain)
    plain.astype("<f4").tofile(FOLDER / "F32.f32")
    halves = plain.astype(np.float16)
    writer.add_tensor("F16", halves)
    halves.astype("<f4").tofile(FOLDER / "F16.f32")
    brain = plain.astype(ml_dtypes.bfloat16)
    writer.add_tensor("BF16", brain.view(np.uint8), raw_dtype=Type.BF16)
    brain.astype("<f4").tofile(FOLDER / "BF16.f32")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    # All 256 values of FP8 E4M3, in the order of their bit patterns.
    np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype("<f4").tofile(FOLDER / "F8_E4M3.f32")


if __name__ == "__main__":
    main()
