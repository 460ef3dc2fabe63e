"""Drafts for tests: untrained ones of any shape, written as SpecForge exports them. What they propose is noise, so almost all
of it is rejected; the answers must not show it."""
import array
import json
import math
import os
import random
import shutil

from conftest import ROOT

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


def write_eagle(folder, seed=0, target=TINY, layer_ids=(0, 1), draft_vocabulary=192, values={}, **changes):
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
    return write_tensors(folder, shapes, seed, lists, values)


def write_circle(target_folder, draft_folder):
    """Tokens stand on a circle and the next one is one further: the tiny llama says so by its head alone, and an EAGLE-3 draft turns
    its state by one token a step, half by the token's angle, half by the state's. Its attention sees its own row alone if positions
    are right. So every guess is right, unless a token, a state, a position or a slot is wrong."""
    tiny, hidden, tokens = os.path.join("tests", "vectors", "tiny", "llama"), TINY["hidden"], TINY["vocabulary"]
    step = 2 * math.pi / tokens
    os.makedirs(target_folder, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(os.path.join(ROOT, tiny, name), target_folder)
    with open(os.path.join(ROOT, tiny, "config.json")) as file:
        config = json.load(file) | {"tie_word_embeddings": False}
    with open(os.path.join(target_folder, "config.json"), "w") as file:
        json.dump(config, file)

    def angles(shift, constant):
        rows = []
        for token in range(tokens):
            angle = step * (token + shift)
            rows += [math.cos(angle), math.sin(angle), constant] + [0.0] * (hidden - 3)
        return rows

    shapes = {"model.embed_tokens.weight": (tokens, hidden), "lm_head.weight": (tokens, hidden), "model.norm.weight": (hidden,)}
    for i in range(TINY["target_layers"]):
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in {
            "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,), "self_attn.q_proj": (72, hidden),
            "self_attn.k_proj": (24, hidden), "self_attn.v_proj": (24, hidden), "self_attn.o_proj": (hidden, 72),
            "mlp.gate_proj": (160, hidden), "mlp.up_proj": (160, hidden), "mlp.down_proj": (hidden, 160)}.items()}
    write_tensors(target_folder, shapes, None, values={"model.embed_tokens.weight": angles(0, 1), "lm_head.weight": angles(-1, 0)})

    def sparse(rows, columns, entries):
        values = [0.0] * (rows * columns)
        for (row, column), value in entries.items():
            values[row * columns + column] = value
        return values

    cos, sin = math.cos(step), math.sin(step)
    turn = {(0, 0): cos, (0, 1): -sin, (1, 0): sin, (1, 1): cos}
    one_more = turn | {(0, 0): cos - 1, (1, 1): cos - 1}
    sharp = {(8 * head + i, 2): 40 / 6 for head in range(9) for i in range(4)}  # of the normed constant, 6
    write_eagle(draft_folder, None, draft_vocabulary=tokens, values={
        "fc.weight": sparse(hidden, 2 * hidden, turn | {(2, 2): 1.0}), "lm_head.weight": angles(0, 0),
        "midlayer.self_attn.q_proj.weight": sparse(72, 2 * hidden, sharp),
        "midlayer.self_attn.k_proj.weight": sparse(24, 2 * hidden, {at: value for at, value in sharp.items() if at[0] < 24}),
        "midlayer.self_attn.v_proj.weight": sparse(24, 2 * hidden, {(i, i + half): 1 / 12 for i in (0, 1) for half in (0, hidden)}),
        "midlayer.self_attn.o_proj.weight": sparse(hidden, 72, one_more)})
    return str(target_folder), str(draft_folder)


def write_tensors(folder, shapes, seed, lists={}, values={}):
    """Matrices are noise, or without a seed zeros; vectors are ones."""
    noise, given = random.Random(seed), values
    header, data = {}, b""
    for name, (dtype, count, piece) in lists.items():
        header[name] = {"dtype": dtype, "shape": [count], "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    for name, shape in shapes.items():
        count = math.prod(shape)
        if name in given:
            values = given[name]
        elif len(shape) == 1:
            values = [1.0] * count
        else:
            values = [0.0] * count if seed is None else [noise.gauss(0, 0.05) for _ in range(count)]
        piece = array.array("f", values).tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)
    return str(folder)
