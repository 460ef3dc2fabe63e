#!/usr/bin/env bash
# Builds and runs every suite, one after the other, and closes with the minutes of each and one line "N passed, N failed".
# A failing suite does not hide the ones after it.
set -uo pipefail
cd "$(dirname "$0")/.."

passed=0
failed=0
report=()
launcher=()  # what ctest is started through

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
  "${launcher[@]}" ctest --test-dir "build/$preset" --output-on-failure --no-tests=error "$@" 2>&1 | tee "$log"
  local code=${PIPESTATUS[0]} total=1 bad=1  # no summary line: the suite itself is the one that failed
  local summary='([0-9]+) tests? failed out of ([0-9]+)'
  if [[ "$(grep -E "$summary" "$log" | tail -1)" =~ $summary ]]; then
    bad=${BASH_REMATCH[1]}
    total=${BASH_REMATCH[2]}
  fi
  if [ "$code" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
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
suite "ASan+UBSan" asan -LE python
# g++ 12's TSan knows no address layout with more than 28 random bits (vm.mmap_rnd_bits): run without randomisation.
if setarch -R true 2>/dev/null; then launcher=(setarch -R); fi
suite "TSan" tsan -LE python

echo
echo "[test] suites (minutes:seconds)"
printf '  %s\n' "${report[@]}"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
