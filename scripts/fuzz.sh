#!/usr/bin/env bash
# Long fuzzing: builds entries of tests/fuzz with clang, libFuzzer, ASan and UBSan (no torch room is needed), and gives each its
# share of the time, one process at a time, on a corpus that grows in build/fuzz/corpus/NAME. What ends the process lies in
# build/fuzz/found/NAME-*. CI runs the same entries on a fixed row of inputs and needs neither clang nor this script.
# Needs clang-14 and libclang-rt-14-dev (Debian), and the grammar engine of a release build, which clang does not compile: what
# the engine itself does is not measured, its crashes are seen.
# usage: scripts/fuzz.sh SECONDS [NAME...]     0 seconds: only build
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
[ $# -gt 0 ] || set -- request http_request chat_template tokenizer_json grammar gguf safetensors
cmake -S . -B build/fuzz/cmake -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="-O1 -gline-tables-only" \
  -DCMAKE_CXX_FLAGS_DEBUG="-O1 -gline-tables-only" -DLEVADA_TORCH=OFF -DLEVADA_LIBFUZZER=ON \
  -DLEVADA_XGRAMMAR_LIBRARY="$PWD/build/release/src/grammar/liblevada_xgrammar.a" -DLEVADA_SANITIZE=address,undefined,fuzzer-no-link \
  -DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14 >/dev/null
nice -n 10 ninja -C build/fuzz/cmake "${@/#/fuzz_}"
mkdir -p build/fuzz/found
status=0
for name in "$@"; do
  [ "$seconds" -gt 0 ] || break
  corpus=build/fuzz/corpus/$name
  mkdir -p "$corpus"
  find tests/fuzz/seeds -path "tests/fuzz/seeds/$name*" -type f ! -name '*.lines' -exec cp {} "$corpus" \;
  [ ! -e "tests/fuzz/seeds/$name.lines" ] || split -l 1 "tests/fuzz/seeds/$name.lines" "$corpus/line-"
  "build/fuzz/cmake/tests/fuzz_$name" "$corpus" -max_len=4096 -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
    -max_total_time=$((seconds / $#)) -artifact_prefix="build/fuzz/found/$name-" >"build/fuzz/$name.log" 2>&1 || status=1
  echo "$name: $(grep -a 'cov:' "build/fuzz/$name.log" | tail -1)" \
    "$(grep -aE 'number_of_executed_units|^SUMMARY' "build/fuzz/$name.log" | tr '\n' ' ')"
done
exit $status
