"""What a server that can't start says: one line on stderr that names the fault and its remedy, exit code 2."""
import json
import os
import shutil
import subprocess

import pytest

from conftest import ROOT, free_port

TINY = os.path.join(ROOT, "tests/vectors/tiny/llama")


@pytest.fixture
def refused(request):
    """Starts a server that must refuse, and gives its one line."""
    binary = request.config.getoption("--binary")

    def run(*flags):
        done = subprocess.run([binary, "serve", "--port", str(free_port()), "--log-level", "error", *flags],
                              capture_output=True, timeout=120, cwd=ROOT)
        assert done.returncode == 2, done
        lines = done.stderr.decode().splitlines()
        assert len(lines) == 1 and lines[0].startswith("levada: "), lines
        return lines[0]

    return run


@pytest.fixture
def model(tmp_path):
    """A copy of the tiny llama, and a way to change one of its JSON files."""
    folder = tmp_path / "model"
    shutil.copytree(TINY, folder)

    def change(name, edit):
        content = json.loads((folder / name).read_text())
        edit(content)
        (folder / name).write_text(json.dumps(content))
        return str(folder)

    change.folder = folder
    return change


@pytest.mark.parametrize("flag", ["--api-key", "--admin-api-key"])
def test_an_empty_key_does_not_open_the_server(refused, flag):
    line = refused(flag, "")
    assert flag in line and "leave it out" in line


def test_a_key_no_client_could_send_is_refused_and_not_repeated(refused):
    line = refused("--api-key", "two words")
    assert "api_key" in line and "two words" not in line


def test_a_context_without_room_for_an_answer_says_which_are_possible(refused):
    line = refused("--model", TINY, "--context-length", "1")
    assert "context_length" in line and "from 2 to" in line and "got 1" in line


def test_a_configs_fault_reads_file_field_value_limit(refused, model):
    folder = model("config.json", lambda c: c.update(max_position_embeddings=10**12))
    assert f"{folder}/config.json: max_position_embeddings: 1000000000000 is not between 1 and 16777216" in refused(
        "--model", folder)


def test_a_tokenizers_fault_is_found_before_the_weights_are_read(refused, model):
    folder = model("tokenizer.json", lambda t: t["model"]["merges"].append("q\0\n zz"))
    (model.folder / "model.safetensors").write_bytes(b"no weights")
    line = refused("--model", folder)
    assert "tokenizer.json: merges[" in line and "'q\\x00\\x0a' is not in the vocabulary" in line
