#!/usr/bin/env bash
# Long fuzzing with libFuzzer: builds the named entries of tests/fuzz with clang, AddressSanitizer and coverage, and runs each
# for its share of the time on a corpus that grows in build/fuzz/. (CI runs the same entries on a fixed row of inputs: ctest -L
# fuzz.) Needs clang-14 and libclang-rt-14-dev (Debian).
# usage: scripts/fuzz.sh SECONDS [NAME...]     names: request tokenizer_json chat_template grammar gguf safetensors http_request
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
[ $# -gt 0 ] || set -- request tokenizer_json chat_template grammar gguf safetensors http_request
# Rooms whose code is instrumented; everything else comes from the release build as it is.
cmake -S . -B build/fuzz/cmake -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DLEVADA_TORCH=OFF -DLEVADA_LIBFUZZER=ON \
  -DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14 >/dev/null
targets=()
for name in "$@"; do targets+=("fuzz_$name"); done
ninja -C build/fuzz/cmake "${targets[@]}"
status=0
for name in "$@"; do
  corpus=build/fuzz/$name
  mkdir -p "$corpus"
  for seed in tests/fuzz/seeds/"$name" tests/fuzz/seeds/"$name".txt; do [ -e "$seed" ] && cp -r "$seed"/. "$corpus" 2>/dev/null || cp "$seed" "$corpus" 2>/dev/null || true; done
  [ -e "tests/fuzz/seeds/$name.lines" ] && split -l 1 "tests/fuzz/seeds/$name.lines" "$corpus/line-"
  "build/fuzz/cmake/tests/fuzz_$name" "$corpus" -max_len=4096 -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
    -max_total_time=$((seconds / $#)) -artifact_prefix="$corpus-" >"build/fuzz/$name.log" 2>&1 || status=1
  echo "$name: $(grep -E 'stat::number_of_executed_units|cov:' "build/fuzz/$name.log" | tail -2 | tr '\n' ' ')" \
    "$(grep -cE '^SUMMARY|ERROR' "build/fuzz/$name.log" || true) findings"
done
exit $status
