#!/usr/bin/env bash
# Configures and builds one preset (release, debug, asan, tsan); prints ninja's progress and the minutes taken.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: scripts/build.sh PRESET}
start=$SECONDS
if [ ! -e "build/$preset/build.ninja" ]; then
  echo "[build] configuring $preset"
  cmake --preset "$preset" >"/tmp/levada-configure.$$" 2>&1 || { cat "/tmp/levada-configure.$$"; exit 1; }
  rm -f "/tmp/levada-configure.$$"
fi
cmake --build --preset "$preset"
printf '[build] %s took %d min %02d s\n' "$preset" $(((SECONDS - start) / 60)) $(((SECONDS - start) % 60))
