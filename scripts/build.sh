#!/usr/bin/env bash
# Configures and builds one preset (release, debug, asan, tsan); prints ninja's progress and the minutes taken.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: scripts/build.sh PRESET}
start=$SECONDS
if [ ! -e "build/$preset/build.ninja" ]; then
  echo "[build] configuring $preset"
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  cmake --preset "$preset" >"$log" 2>&1 || { cat "$log"; exit 1; }
fi
cmake --build --preset "$preset"
printf '[build] %s took %d min %02d s\n' "$preset" $(((SECONDS - start) / 60)) $(((SECONDS - start) % 60))
