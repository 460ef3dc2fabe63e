#!/usr/bin/env bash
# Reads a draft trained here with SpecForge's own module. Installs torch with its CUDA libraries from PyPI (gigabytes) into the
# per-user cache, once; that is why it isn't part of `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."
folder="${XDG_CACHE_HOME:-$HOME/.cache}/levada/interop"
if [ ! -e "$folder/complete" ]; then
  rm -rf "$folder"
  mkdir -p "$folder/specforge"
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install -r tests/interop/requirements.txt
  "$folder/venv/bin/pip" download -q --no-deps --require-hashes -r tests/interop/requirements-specforge.txt -d "$folder"
  python3 -m zipfile -e "$folder"/specforge-*.whl "$folder/specforge"
  touch "$folder/complete"
fi
ninja -C build/release draft_interop
exec env PYTHONDONTWRITEBYTECODE=1 "$folder/venv/bin/python" -m pytest -q -rs -p no:cacheprovider tests/interop \
  --tool build/release/tests/draft_interop --specforge "$folder/specforge"
