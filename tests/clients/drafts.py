"""Drafts for tests: untrained ones of any shape, written as SpecForge exports them. What they propose is noise, so almost all
of it is rejected; the answers must not show it."""
import array
import json
import math
import os
import random

TINY = {"hidden": 72, "heads": 9, "kv_heads": 3, "head_dim": 8, "vocabulary": 384, "target_layers": 3}
SMOLLM2 = {"hidden": 576, "heads": 9, "kv_heads": 3, "head_dim": 64, "vocabulary": 49152, "target_layers": 30}


def write_draft(folder, seed=0, layers=1, block_size=4, target=TINY, target_layer_ids=(0, 1), mask=383, **changes):
    os.makedirs(folder, exist_ok=True)
    hidden, intermediate = target["hidden"], 2 * target["hidden"]
    q, kv = target["heads"] * target["head_dim"], target["kv_heads"] * target["head_dim"]
    config = {
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": hidden, "intermediate_size": intermediate,
        "num_hidden_layers": layers, "num_attention_heads": target["heads"], "num_key_value_heads": target["kv_heads"],
        "head_dim": target["head_dim"], "vocab_size": target["vocabulary"], "num_target_layers": target["target_layers"],
        "block_size": block_size, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rope_scaling": None, "attention_bias": False,
        "hidden_act": "silu", "max_position_embeddings": 512, "dtype": "float32",
        "dflash_config": {"mask_token_id": mask, "target_layer_ids": list(target_layer_ids)}, **changes}
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    shapes = {"fc.weight": (hidden, len(target_layer_ids) * hidden), "hidden_norm.weight": (hidden,), "norm.weight": (hidden,)}
    for i in range(layers):
        shapes |= {f"layers.{i}.{name}.weight": shape for name, shape in {
            "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,), "self_attn.q_proj": (q, hidden),
            "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, q),
            "self_attn.q_norm": (target["head_dim"],), "self_attn.k_norm": (target["head_dim"],),
            "mlp.gate_proj": (intermediate, hidden), "mlp.up_proj": (intermediate, hidden),
            "mlp.down_proj": (hidden, intermediate)}.items()}
    return write_tensors(folder, shapes, seed)


def write_eagle(folder, seed=0, target=TINY, layer_ids=(0, 1), draft_vocabulary=192, **changes):
    """An EAGLE-3 draft, as SpecForge exports it; its head knows the first tokens of the target's."""
    os.makedirs(folder, exist_ok=True)
    hidden, intermediate = target["hidden"], 2 * target["hidden"]
    q, kv = target["heads"] * target["head_dim"], target["kv_heads"] * target["head_dim"]
    config = {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": intermediate,
        "num_hidden_layers": 1, "num_attention_heads": target["heads"], "num_key_value_heads": target["kv_heads"],
        "head_dim": target["head_dim"], "vocab_size": target["vocabulary"], "draft_vocab_size": draft_vocabulary,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rope_scaling": None, "hidden_act": "silu", "max_position_embeddings": 512,
        "tie_word_embeddings": False, "torch_dtype": "float32",
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(layer_ids), "use_aux_hidden_state": True}, **changes}
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    shapes = {"fc.weight": (hidden, len(layer_ids) * hidden), "norm.weight": (hidden,), "lm_head.weight": (draft_vocabulary, hidden)}
    shapes |= {f"midlayer.{name}.weight": shape for name, shape in {
        "input_layernorm": (hidden,), "hidden_norm": (hidden,), "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (q, 2 * hidden), "self_attn.k_proj": (kv, 2 * hidden), "self_attn.v_proj": (kv, 2 * hidden),
        "self_attn.o_proj": (hidden, q), "mlp.gate_proj": (intermediate, hidden), "mlp.up_proj": (intermediate, hidden),
        "mlp.down_proj": (hidden, intermediate)}.items()}
    lists = {"d2t": ("I64", draft_vocabulary, array.array("q", [0] * draft_vocabulary).tobytes()),
             "t2d": ("BOOL", target["vocabulary"], bytes(i < draft_vocabulary for i in range(target["vocabulary"])))}
    return write_tensors(folder, shapes, seed, lists)


def write_tensors(folder, shapes, seed, lists={}):
    noise = random.Random(seed)
    header, data = {}, b""
    for name, (dtype, count, piece) in lists.items():
        header[name] = {"dtype": dtype, "shape": [count], "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    for name, shape in shapes.items():
        count = math.prod(shape)
        values = [1.0] * count if len(shape) == 1 else [noise.gauss(0, 0.05) for _ in range(count)]
        piece = array.array("f", values).tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)
    return str(folder)
