#!/usr/bin/env python3
"""Compares the ways features take to trainers: the same fan-out run over nvlink, tcp and shm, server and trainers on one GPU.

  scripts/gpu-fanout.py [--binary "build/gpu/NAME/run levada"] [--shapes n22,smollm2] [--consumers 1]
  scripts/gpu-fanout.py --exact --prompts 8                                   # are the losses the same bits?
  scripts/gpu-fanout.py --device cpu --shapes tiny --transports tcp,shm       # where there is no GPU

The target has random weights of that shape, made on the spot; prompts are random ids. Prints for each transport samples per
second of all trainers together (from a quarter of the steps on: before that, libraries are loaded), milliseconds from asking
for one sample until its features are on the device and its ids on the host, ready to be trained on, whichever way they came
(over nvlink they are used in place, and measured by the step that used them), milliseconds to publish one batch, and the
ratios to tcp. The first step's loss must be the same over all of them: it ends with status 1 if one differs by more than a
unit of bfloat16, which is what two captures of a batch that was cut otherwise may differ by. With --exact each capture is a
step of its own, so that no bit may differ.
"""
import argparse
import datetime
import json
import os
import random
import re
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Samples as large as those of the spec's reference numbers (N22, 104 MB); SmolLM2-135M's; one for a processor.
SHAPES = {
    "n22": dict(hidden=1024, layers=18, intermediate=2048, heads=16, kv_heads=4, head_dim=64, captured=tuple(range(16)),
                tokens=3174, prompts=96),
    "smollm2": dict(hidden=576, layers=30, intermediate=1536, heads=9, kv_heads=3, head_dim=64, captured=(1, 8, 14, 20, 27),
                    tokens=512, prompts=240),
    "tiny": dict(hidden=64, layers=3, intermediate=128, heads=4, kv_heads=2, head_dim=16, captured=(0, 1), tokens=200, prompts=24),
}
VOCABULARY = 49152
BATCH = 2


def tensors_of(shape):
    hidden, q, kv = shape["hidden"], shape["heads"] * shape["head_dim"], shape["kv_heads"] * shape["head_dim"]
    yield "model.embed_tokens.weight", (VOCABULARY, hidden)
    yield "model.norm.weight", (hidden,)
    for layer in range(shape["layers"]):
        name = f"model.layers.{layer}."
        yield name + "input_layernorm.weight", (hidden,)
        yield name + "post_attention_layernorm.weight", (hidden,)
        for part, size in (("self_attn.q_proj", (q, hidden)), ("self_attn.k_proj", (kv, hidden)),
                           ("self_attn.v_proj", (kv, hidden)), ("self_attn.o_proj", (hidden, q)),
                           ("mlp.gate_proj", (shape["intermediate"], hidden)),
                           ("mlp.up_proj", (shape["intermediate"], hidden)),
                           ("mlp.down_proj", (hidden, shape["intermediate"]))):
            yield name + part + ".weight", size


def make_model(folder, shape):
    """A Hugging Face folder: bfloat16 numbers of 2^-7 to 2^-6 of either sign, norms of ones."""
    os.makedirs(folder)
    source = random.Random(11)
    count = (4 << 20) + 61  # no multiple of a row: layers differ
    numbers = bytearray(2 * count)
    numbers[0::2] = source.randbytes(count)
    numbers[1::2] = source.randbytes(count).translate(bytes(0x3C | (b & 0x80) for b in range(256)))
    header, offset, sizes = {}, 0, []
    for name, size in tensors_of(shape):
        length = 2 * size[0] * (size[1] if len(size) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": list(size), "data_offsets": [offset, offset + length]}
        offset += length
        sizes.append((length, len(size) == 1))
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for index, (length, is_norm) in enumerate(sizes):
            block = b"\x80\x3f" * (length // 2) if is_norm else b""
            while len(block) < length:
                block += bytes(numbers[2 * 7919 * index % len(numbers):]) if not block else bytes(numbers)
            file.write(block[:length])
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": shape["hidden"],
              "intermediate_size": shape["intermediate"], "num_hidden_layers": shape["layers"],
              "num_attention_heads": shape["heads"], "num_key_value_heads": shape["kv_heads"],
              "head_dim": shape["head_dim"], "rms_norm_eps": 1e-5, "rope_theta": 100000.0, "max_position_embeddings": 8192,
              "tie_word_embeddings": True, "hidden_act": "silu", "torch_dtype": "bfloat16", "vocab_size": VOCABULARY,
              "bos_token_id": 1, "eos_token_id": 2}
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    tokenizer = os.path.join(ROOT, "tests/vectors/smollm2_tokenizer")
    for name in os.listdir(tokenizer):
        if name.startswith("tokenizer"):
            shutil.copy(os.path.join(tokenizer, name), folder)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def bytes_of(shape):
    """One sample: hidden states of bfloat16, token ids and mask of int64."""
    return (2 * len(shape["captured"]) * shape["hidden"] + 16) * shape["tokens"]


def recipe_of(args, shape, folder, transport):
    sample = bytes_of(shape)
    on_gpu = args.device == "cuda"
    server = {"port": free_port()}
    managed = {"capture_servers": [server], "shutdown_grace_s": 20}
    if on_gpu:
        server["cuda_visible_devices"] = ["0"]
        managed["trainer_cuda_visible_devices"] = ["0"] * args.consumers
    fanout = {"window_lookahead": 32, "max_live_refs": 48, "max_live_bytes": 64 * sample,
              "capture_reservation_bytes": 2 * sample, "capture_max_sample_bytes": 2 * sample,
              "capture_batch_size": 1 if args.exact else 8,
              "consumers": [{"consumer_id": f"c{i}", "seed": i, "loss_type": "dflash", "dpace_alpha": 0.5,
                             "draft_block_size": 4, "num_anchors": args.anchors, "learning_rate": 0.0001,
                             "warmup_ratio": 0.1} for i in range(args.consumers)]}
    # One name for all: it is part of the samples' own, by which anchors are drawn.
    return {"run_id": "compare", "output_dir": os.path.join(folder, transport),
            "model": {"target_model_path": os.path.join(folder, "model"), "torch_dtype": "bfloat16",
                      "draft_num_hidden_layers": 1, "mask_token_id": 4, "sglang_max_total_tokens": 65536},
            "data": {"prompts_path": os.path.join(folder, "prompts.jsonl"), "max_prompts": shape["prompts"],
                     "max_length": shape["tokens"]},
            "training": {"strategy": "dflash", "batch_size": BATCH, "log_interval": 1},
            "levada": {"device": args.device, "transport": transport, "share_gpus": True,
                       "answer_max_tokens": shape["tokens"],  # no supervised token is cut off
                       "target_layer_ids": list(shape["captured"]), "trainer_threads": 2},
            "deployment": {"mode": "disaggregated", "disaggregated": {
                "control_dir": os.path.join(folder, transport, "control"), "backend": "mooncake",
                "managed_local": managed, "windowed_fanout": fanout}}}


def rate_of(log):
    """Samples per second of one trainer, from the times of its steps."""
    times = [datetime.datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S.%f").timestamp()
             for stamp in re.findall(r"^(\S+ \S+) info .*train: step \d+ loss", log, re.M)]
    times = times[len(times) // 4:]
    return BATCH * (len(times) - 1) / max(1e-3, times[-1] - times[0])


def measure(args, shape, folder, transport):
    recipe = os.path.join(folder, transport + ".yaml")
    with open(recipe, "w") as file:
        json.dump(recipe_of(args, shape, folder, transport), file)
    summary = os.path.join(folder, transport + "-summary.json")
    done = subprocess.run([*shlex.split(args.binary), "up", recipe, "--plain", "--exit-when-done", "--summary", summary],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=args.timeout)
    logs = os.path.join(folder, transport, "logs")
    texts = {name: open(os.path.join(logs, name), errors="replace").read() for name in os.listdir(logs)} \
        if os.path.isdir(logs) else {}
    if done.returncode != 0:
        for name, text in texts.items():
            print(f"--- {name}\n{text[-1500:]}", file=sys.stderr)
        sys.exit(f"the run over {transport} failed:\n{done.stdout[-2000:]}")
    with open(summary) as file:
        peak = json.load(file)
    if peak["peak_live_bytes"] != peak["peak_live_refs"] * bytes_of(shape):
        sys.exit(f"the samples over {transport} had {peak['peak_live_bytes'] / peak['peak_live_refs']} bytes each, not {bytes_of(shape)}")
    trainers = [text for name, text in sorted(texts.items()) if re.fullmatch(r"c\d+\.log", name)]
    reads = [float(re.search(r"([\d.e+-]+) ms to read one", text)[1]) for text in trainers]
    in_place = [int(re.search(r"\((\d+) trained on in place\)", text)[1]) for text in trainers]
    losses = [float(re.search(r"train: step 1 loss ([\d.e+-]+)", text)[1]) for text in trainers]
    published = re.search(r"batches, ([\d.e+-]+) ms each", texts["server-0.log"])
    return {"transport": transport, "samples_per_s": sum(map(rate_of, trainers)), "fetch_ms": sum(reads) / len(reads),
            "publish_ms": float(published[1]) if published else float("nan"), "in_place": sum(in_place),
            "losses": losses}


def compare(args, name):
    shape = SHAPES[name]
    with tempfile.TemporaryDirectory(prefix="levada-fanout-") as folder:
        make_model(os.path.join(folder, "model"), shape)
        source = random.Random(5)
        with open(os.path.join(folder, "prompts.jsonl"), "w") as file:
            for i in range(shape["prompts"]):
                ids = [source.randrange(5, VOCABULARY) for _ in range(shape["tokens"])]
                mask = [0] * 32 + [1] * (shape["tokens"] - 32)
                file.write(json.dumps({"id": f"p{i}", "input_ids": ids, "loss_mask": mask}) + "\n")
        rows = [measure(args, shape, folder, transport) for transport in args.transports.split(",")]
    tcp = next((row for row in rows if row["transport"] == "tcp"), rows[0])
    print(f"{name}, {args.consumers} trainers, {shape['prompts']} samples of {shape['tokens']} tokens, "
          f"{bytes_of(shape) / 1e6:.2f} MB each")
    print(f"{'transport':10} {'samples/s':>10} {'x tcp':>6} {'fetch ms':>9} {'of tcp':>7} {'publish ms':>11} {'in place':>9}"
          "  first loss")
    for row in rows:
        print(f"{row['transport']:10} {row['samples_per_s']:10.1f} {row['samples_per_s'] / tcp['samples_per_s']:6.2f} "
              f"{row['fetch_ms']:9.3f} {row['fetch_ms'] / tcp['fetch_ms']:7.3f} {row['publish_ms']:11.3f} "
              f"{row['in_place']:9}  {' '.join(map(str, row['losses']))}")
    same = all(abs(loss / first - 1) <= 2 ** -8 for row in rows for loss, first in zip(row["losses"], rows[0]["losses"]))
    equal = all(row["losses"] == rows[0]["losses"] for row in rows)
    print("first losses are " + ("equal" if equal else "the same but for bfloat16's rounding" if same else "DIFFERENT"))
    return equal if args.exact else same


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(ROOT, "build/release/levada"))
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--shapes", default="n22,smollm2", help="of " + ", ".join(SHAPES))
    parser.add_argument("--transports", default="nvlink,tcp,shm")
    parser.add_argument("--consumers", type=int, default=1)
    parser.add_argument("--prompts", type=int, help="instead of the shape's own")
    parser.add_argument("--anchors", type=int, default=64)
    parser.add_argument("--exact", action="store_true", help="one sample a capture, and equal losses")
    parser.add_argument("--timeout", type=int, default=240, help="seconds for one run")
    args = parser.parse_args()
    for name in args.shapes.split(","):
        if name not in SHAPES:
            parser.error(f"--shapes: {name} is none of {', '.join(SHAPES)}")
        SHAPES[name]["prompts"] = args.prompts or SHAPES[name]["prompts"]
    if not all([compare(args, name) for name in args.shapes.split(",")]):
        sys.exit(1)


if __name__ == "__main__":
    main()
