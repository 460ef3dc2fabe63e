"""Packs the DFlash goldens: runs dflash/oracle_dflash.py and leaves out what a file shares with another.

usage: make_dflash.py OUT   (needs torch and numpy; a minute on one core)

A tensor that equals the one of the same name in `full` is left out of the other training cases, as are bfloat16 tensors that
are just its rounded values; `optim_bf16` leans on `optim` in the same way. Tests look in the base file then. Booleans are bytes,
float64 is the int64 of its bits: our reader knows no other form of either.
"""
import importlib.util
import os
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("oracle", os.path.join(HERE, "dflash/oracle_dflash.py"))
oracle = importlib.util.module_from_spec(spec)
spec.loader.exec_module(oracle)

BASES = {"full": None, "sliding": "full", "bias_nodecay": "full", "dpace": "full", "dpace_conf": "full",
         "dpace_value": "full", "full_bf16": "full", "optim": None, "optim_bf16": "optim", "decode": None,
         "verify": None, "eagle3": None}


def same(a, b):
    return a.shape == b.shape and torch.equal(a, b.to(a.dtype))


def plain(value):
    if value.dtype == torch.bool:
        return value.byte()
    return value.contiguous().view(torch.int64) if value.dtype == torch.float64 else value


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    made = {name: oracle.CASES[name](name) for name in BASES}
    for name, base in BASES.items():
        kept = {key: plain(value) for key, value in made[name].items()
                if base is None or key not in made[base] or not same(value, made[base][key])}
        oracle.st_write(os.path.join(sys.argv[1], name + ".safetensors"), kept, {"case": name, "base": base or ""})


if __name__ == "__main__":
    main()
