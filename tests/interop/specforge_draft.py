"""SpecForge 0.2.0's DFlash module as it comes from PyPI, without the rest of that package."""
import importlib
import json
import os
import sys
import types

import torch
from safetensors.torch import load_file
from transformers.models.qwen3.modeling_qwen3 import Qwen3Config


def load_module(package_dir):
    """The module specforge.modeling.draft.dflash from an unpacked wheel. The packages above it are left empty: their own
    __init__ import every draft and its optional dependencies."""
    for name in ("specforge", "specforge.modeling", "specforge.modeling.draft"):
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(package_dir, *name.split("."))]
        sys.modules[name] = package
    return importlib.import_module("specforge.modeling.draft.dflash")


def load_draft(module, folder):
    """The draft of an exported folder, float32, loaded strictly: a missing or an extra tensor raises."""
    config = Qwen3Config.from_dict(json.load(open(os.path.join(folder, "config.json"))))
    config._attn_implementation = "eager"
    draft = module.DFlashDraftModel(config).float().eval()
    state = load_file(os.path.join(folder, "model.safetensors"))
    draft.load_state_dict({name: tensor.float() for name, tensor in state.items()}, strict=True)
    return draft


def visible(draft, layer_type, anchor):
    """Which keys (context before the anchor, then the block) the block's rows see; [1, 1, block, anchor + block]."""
    block = draft.block_size
    key = torch.arange(anchor + block)[None]
    row = torch.arange(anchor, anchor + block)[:, None]
    allow = torch.ones(block, anchor + block, dtype=torch.bool)
    if layer_type == "sliding_attention":
        allow = (key <= row) & ((key >= row - draft.config.sliding_window + 1) | (key >= anchor))
    return allow[None, None]


@torch.no_grad()
def run_block(draft, features, embedding, tokens, anchor):
    """Normed output [block, hidden] of the block at `anchor`; features [tokens, layers * hidden]."""
    block = draft.block_size
    ids = torch.full((1, block), draft.mask_token_id)
    ids[0, 0] = tokens[anchor]
    masks = {kind: visible(draft, kind, anchor) for kind in set(draft.layer_types)}
    return draft(position_ids=torch.arange(anchor + block)[None], attention_mask=masks, noise_embedding=embedding[ids],
                 target_hidden=features[None, :anchor])[0]
