#!/usr/bin/env bash
# Cheap checks that need no build: room boundaries that the include roots can't see, formatting, file lengths.
set -uo pipefail
cd "$(dirname "$0")/.."
bad=0
complain() { echo "lint: $*"; bad=1; }

# What the checks below read; with nothing to read they would all pass.
sources=$(git ls-files '*.h' '*.cc' '*.cu') || complain "git ls-files failed: is this a git checkout?"
[ -n "$sources" ] || complain "git lists no source files: nothing was checked"

# A room's include root shows only the rooms it names; relative includes would get around it.
if grep -rnE '#include "\.\./' src bench tests --include='*.h' --include='*.cc' --include='*.cpp'; then
  complain "relative include climbs out of its room"
fi

# Third parties stay in the rooms that house them: header prefix -> rooms, or files in rooms, that may include it.
third_party() {
  local pattern=$1 allowed=$2 file
  while IFS= read -r file; do
    [[ "$file" =~ ^src/($allowed)(/|$) ]] || complain "$file includes $pattern: only src/($allowed) may"
  done < <(grep -rlE "#include <($pattern)" src --include='*.h' --include='*.cc' --include='*.cu')
}
third_party 'ATen/|torch/|c10/' 'nn|model|train'
third_party 'boost/asio|boost/beast' 'http'
third_party 'cuda|cublas|flashinfer/|cute/|cutlass/' '[a-z]+/cuda'
third_party 'xgrammar/|dlpack/' 'grammar'
third_party 'yaml-cpp/' 'recipe'
third_party 'prometheus/' 'base'
third_party 'spdlog/' 'base'
third_party 'unicode/' 'text'
third_party 'xxhash' 'base'
third_party 'simdjson' 'files|text|serve|registry'
third_party 'nlohmann/' 'consumer|producer|model|recipe|reply|serve|store|train|registry|up|(files|text)/.*_test\.cc'
third_party 'sqlite3\.h|libpq-fe\.h' 'registry'
third_party 'dlfcn' 'device|nn|store/ucx_module\.cc'
third_party 'uc[pst]/' 'store/ucx'
third_party 'cuda' '[a-z]+/cuda'

# The clock is injected everywhere above base.
if grep -rnE '(steady_clock|system_clock|high_resolution_clock)::now' src --include='*.h' --include='*.cc' |
  grep -vE '^src/(base|http|kernels)/|_test\.cc:'; then
  complain "reads the time directly: take a Clock"
fi
if grep -rnE '\bstd::time\(' src --include='*.h' --include='*.cc' | grep -vE '^src/(cli|http)/|_test\.cc:'; then
  complain "asks for the date: only cli (start time) and http (Date header) do"
fi

if grep -rnE '\b(TODO|FIXME|XXX)\b' src bench tests scripts --include='*.h' --include='*.cc' --include='*.py'; then
  complain "a TODO stands in for work"
fi

while read -r lines file; do
  [ "$lines" -le 600 ] || complain "$file has $lines lines (limit 600)"
done < <(grep -E '^(src/|bench/.*\.cc$)' <<<"$sources" | xargs wc -l | awk '$2 != "total" {print $1, $2}')

if command -v clang-format >/dev/null; then
  xargs clang-format --dry-run -Werror <<<"$sources" 2>&1 | head -20
  [ "${PIPESTATUS[0]}" -eq 0 ] || complain "clang-format differs (run clang-format -i)"
else
  complain "clang-format is not installed, formatting not checked (scripts/setup.sh installs it)"
fi
[ "$bad" -eq 0 ] && echo "lint: clean"
exit "$bad"
