"""A draft that levada trained loads strictly in SpecForge 0.2.0 and computes the same."""
import json

import pytest


def read(folder, name):
    import torch
    shape = json.load(open(folder / "probe.json"))[name]
    kind = torch.int64 if name in ("tokens", "anchors") else torch.float32
    return torch.frombuffer(bytearray((folder / name).read_bytes()), dtype=kind).view(shape)


def test_loads_strictly_with_the_same_geometry(exported, specforge):
    from specforge_draft import load_draft
    draft = load_draft(specforge, exported / "draft")
    assert draft.target_layer_ids == [1, 3, 5]
    assert (draft.block_size, draft.mask_token_id) == (4, 96)
    assert list(draft.layer_types) == ["sliding_attention", "full_attention"]


def test_gives_the_same_logits(exported, specforge):
    import torch
    from specforge_draft import load_draft, run_block
    draft = load_draft(specforge, exported / "draft")
    features, embedding, head = (read(exported, name) for name in ("features", "embedding", "head"))
    tokens, anchors, ours = (read(exported, name) for name in ("tokens", "anchors", "logits"))
    for row, anchor in enumerate(anchors.tolist()):
        theirs = run_block(draft, features, embedding, tokens, anchor) @ head.T
        assert torch.allclose(ours[row], theirs, atol=2e-5), (anchor, (ours[row] - theirs).abs().max())


def test_a_changed_weight_would_be_seen(exported, specforge):
    import torch
    from specforge_draft import load_draft, run_block
    draft = load_draft(specforge, exported / "draft")
    with torch.no_grad():
        draft.layers[0].self_attn.k_norm.weight.mul_(1.01)
    anchor = int(read(exported, "anchors")[0])
    theirs = run_block(draft, read(exported, "features"), read(exported, "embedding"), read(exported, "tokens"), anchor)
    assert (read(exported, "logits")[0] - theirs @ read(exported, "head").T).abs().max() > 1e-4


@pytest.mark.parametrize("missing", ["fc.weight", "layers.1.self_attn.q_norm.weight"])
def test_strict_means_strict(exported, specforge, tmp_path, missing):
    import shutil
    from safetensors.torch import load_file, save_file
    from specforge_draft import load_draft
    shutil.copytree(exported / "draft", tmp_path / "draft")
    state = load_file(tmp_path / "draft/model.safetensors")
    del state[missing]
    save_file(state, tmp_path / "draft/model.safetensors")
    with pytest.raises(RuntimeError, match="Missing key"):
        load_draft(specforge, tmp_path / "draft")
