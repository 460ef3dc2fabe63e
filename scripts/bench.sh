#!/usr/bin/env bash
# Runs every bench of the built binary and prints one JSON object per line.
set -euo pipefail
cd "$(dirname "$0")/.."
for name in radix sched decode http; do
  build/release/levada bench "$name" --json
done
