#!/usr/bin/env bash
# Builds and runs every suite, one after the other, and closes with the minutes of each and one line "N passed, N failed".
# A failing suite does not hide the ones after it.
set -uo pipefail
cd "$(dirname "$0")/.."

passed=0
failed=0
report=()

# suite NAME PRESET [ctest arguments…]
suite() {
  local name=$1 preset=$2 start=$SECONDS log
  shift 2
  echo "[test] $name: building $preset"
  if ! scripts/build.sh "$preset"; then
    failed=$((failed + 1))
    report+=("$name: build of $preset failed")
    return
  fi
  local built=$((SECONDS - start))
  log=$(mktemp)
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error "$@" 2>&1 | tee "$log"
  local total bad
  total=$(grep -oE 'out of [0-9]+' "$log" | tail -1 | grep -oE '[0-9]+' || echo 0)
  bad=$(grep -oE '[0-9]+ tests? failed out of' "$log" | tail -1 | grep -oE '^[0-9]+' || echo 1)
  rm -f "$log"
  passed=$((passed + total - bad))
  failed=$((failed + bad))
  local ran=$((SECONDS - start - built))
  report+=("$(printf '%-22s build %2d:%02d  tests %2d:%02d  %s of %s passed' "$name" $((built / 60)) $((built % 60)) \
    $((ran / 60)) $((ran % 60)) $((total - bad)) "$total")")
}

echo "[test] lint"
if scripts/lint.sh; then passed=$((passed + 1)); else failed=$((failed + 1)); report+=("lint failed"); fi
suite "release" release
suite "ASan+UBSan" asan -LE "python|slow_under_sanitizers"
suite "TSan" tsan -LE "python|slow_under_sanitizers"

echo
echo "[test] suites (minutes:seconds)"
printf '  %s\n' "${report[@]}"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
