"""A checkpoint written by levada, and SpecForge's module to read it with."""
import subprocess

import pytest


def pytest_addoption(parser):
    parser.addoption("--tool", help="the draft_interop executable")
    parser.addoption("--specforge", default=None, help="the unpacked wheel of specforge 0.2.0")


@pytest.fixture(scope="session")
def exported(request, tmp_path_factory):
    """Folder with draft/ (config.json, model.safetensors) and what levada computes with it."""
    folder = tmp_path_factory.mktemp("interop")
    subprocess.run([request.config.getoption("--tool"), str(folder)], check=True)
    return folder


@pytest.fixture(scope="session")
def specforge(request):
    # CPU wheels of torch are not on PyPI and its CUDA libraries take gigabytes: `make interop` installs them, CI doesn't.
    pytest.importorskip("torch", exc_type=ImportError, reason="needs an importable torch: run `make interop`")
    pytest.importorskip("transformers", reason="needs transformers: run `make interop`")
    if request.config.getoption("--specforge") is None:
        pytest.skip("needs the wheel of specforge 0.2.0: run `make interop`")
    from specforge_draft import load_module
    return load_module(request.config.getoption("--specforge"))
