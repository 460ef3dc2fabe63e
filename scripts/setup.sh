#!/usr/bin/env bash
# Installs everything levada's build and tests need, pinned, from Debian and PyPI only.
# Idempotent: a second run takes a second. Python packages land in a per-user cache folder named by the hash of
# their requirement files, so that several clones share one download; `.deps` in the clone links to it.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\033[1m[setup]\033[0m %s\n' "$*"; }
die() { printf '[setup] error: %s\n' "$*" >&2; exit 1; }

sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || die "not root and no sudo: run as root or install sudo"
  sudo=(sudo)
fi

wanted=$(sed 's/#.*//' scripts/apt-packages.txt | xargs -n1)
missing=()
for package in $wanted; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  say "Debian packages: installing ${missing[*]}"
  "${sudo[@]}" apt-get update -q
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
else
  say "Debian packages: all present"
fi

# Changes ("", "-2", "-3", …) when what is unpacked below changes: no clone takes a cache that was filled otherwise.
revision=""
key=$(cat scripts/requirements-*.txt | sha256sum | cut -c1-16)
home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6 || true)}
caches="${XDG_CACHE_HOME:-${home:+$home/.cache}}"
[ -n "$caches" ] || die "no home folder: set HOME or XDG_CACHE_HOME"
cache="$caches/levada/deps-$key$revision"
mkdir -p "$caches/levada"
# One clone fills a cache, the others wait for it. The lock goes with this process, however it ends.
exec 9>"$cache.lock"
if ! flock -n 9; then
  say "Python packages: waiting for another setup.sh that fills $cache"
  flock 9
fi
if [ ! -e "$cache/complete" ]; then
  say "Python packages: filling $cache (about 1 GB to download, once)"
  rm -rf "$cache"
  mkdir -p "$cache"
  python3 -m venv "$cache/venv"
  pip="$cache/venv/bin/pip"
  say "  libtorch, CUDA runtime stubs and the SmolLM2 model"
  "$pip" install --no-deps --progress-bar on -r scripts/requirements-build.txt
  say "  test clients (openai, pytest, requests)"
  "$pip" install -q -r scripts/requirements-test.txt 2>&1 | grep -v -e '^torch .* is not installed' -e 'dependency resolver' || true
  "$cache/venv/bin/python" -c 'import openai, pytest, requests'
  say "  source archives: the Jinja engine, the grammar engine, FlashInfer's headers"
  "$pip" download -q --no-deps --no-binary llama-cpp-python,xgrammar --require-hashes \
    -r scripts/requirements-source.txt -d "$cache"
  mkdir "$cache/llama.cpp"
  tar -xzf "$cache"/llama_cpp_python-*.tar.gz -C "$cache/llama.cpp" --strip-components=3 \
    --wildcards '*/vendor/llama.cpp/common/*' '*/vendor/llama.cpp/LICENSE' '*/vendor/llama.cpp/vendor/nlohmann/*'
  mkdir "$cache/xgrammar"
  tar -xzf "$cache"/xgrammar-*.tar.gz -C "$cache/xgrammar" --strip-components=1 \
    --wildcards --no-wildcards-match-slash '*/cpp' '*/include' '*/LICENSE' '*/NOTICE' '*/3rdparty/picojson' \
    '*/3rdparty/dlpack/include'
  python3 - "$cache"/flashinfer_python-*.whl "$cache/flashinfer" <<'PY'
import sys, zipfile
kept = ("include/", "cutlass/include/", "cutlass/tools/util/include/", "cutlass/LICENSE", "cccl/")
prefix = "flashinfer/data/"
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for entry in wheel.infolist():
        inside = entry.filename.removeprefix(prefix)
        if entry.filename.startswith(prefix) and inside.startswith(kept) or "LICENSE" in entry.filename:
            entry.filename = inside
            wheel.extract(entry, sys.argv[2])
PY
  rm "$cache"/llama_cpp_python-*.tar.gz "$cache"/xgrammar-*.tar.gz "$cache"/flashinfer_python-*.whl
  (cd "$cache" && ln -s venv/lib/python3.*/site-packages site-packages)
  touch "$cache/complete"
else
  say "Python packages: all present in $cache"
fi
# Build folders watch `complete`: a link that moves to an older cache must still make them configure again.
if [ "$(readlink .deps || true)" != "$cache" ]; then
  touch "$cache/complete"
  ln -sfn "$cache" .deps
fi
say "done"
