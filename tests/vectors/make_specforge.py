"""A DFlash draft as SpecForge 0.2.0 makes and saves it, and what its module computes: dflash/specforge/.

usage: make_specforge.py SPECFORGE_DIR OUT   (the unpacked wheel; needs torch, transformers 5.19 and safetensors)
"""
import os
import sys

import torch
from safetensors.torch import save_file

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../interop"))
from specforge_draft import load_module, run_block  # noqa: E402
from transformers.models.qwen3.modeling_qwen3 import Qwen3Config  # noqa: E402


def main(specforge, out):
    module = load_module(specforge)
    torch.manual_seed(5)
    config = Qwen3Config(
        architectures=["DFlashDraftModel"], hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, vocab_size=64, rms_norm_eps=1e-5,
        rope_parameters={"rope_theta": 50000.0, "rope_type": "default"}, max_position_embeddings=512,
        attention_bias=False, tie_word_embeddings=False, layer_types=["sliding_attention", "full_attention"],
        use_sliding_window=True, sliding_window=6)
    config.block_size, config.num_target_layers = 4, 9
    config.dflash_config = {"mask_token_id": 63, "target_layer_ids": [1, 4, 6]}
    config._attn_implementation = "eager"
    draft = module.DFlashDraftModel(config).float().eval()
    with torch.no_grad():
        for parameter in draft.parameters():  # away from the initial ones and zeros
            parameter.add_(torch.randn_like(parameter) * 0.1)
    draft.save_pretrained(out)
    tokens, features = torch.randint(0, 60, (30,)), torch.randn(30, 3 * 32)
    embedding, anchors = torch.randn(64, 32), torch.tensor([2, 7, 8, 29])
    hidden = torch.stack([run_block(draft, features, embedding, tokens, int(anchor)) for anchor in anchors])
    save_file({"tokens": tokens, "features": features, "embedding": embedding, "anchors": anchors, "hidden": hidden},
              os.path.join(out, "probe.safetensors"))


if __name__ == "__main__":
    main(*sys.argv[1:])
