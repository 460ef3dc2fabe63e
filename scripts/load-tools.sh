#!/usr/bin/env bash
# The tools that users of such servers already have, unmodified from PyPI, against `levada serve` on this machine:
#   sglang     python -m sglang.bench_serving, its three backends on two datasets, SmolLM2 on the CPU
#   locust     the general load tool: every dialect, streams and whole answers, SmolLM2 on the CPU
#   openapi    schemathesis over /openapi.json, a tiny model, fixed seed: no 5xx, no answer the document doesn't allow
# usage: scripts/load-tools.sh [sglang|locust|openapi]...     (all; BINARY=… for another build)
# The first two are installed into the per-user cache once (sglang about 5 GB: it imports torch, whose wheel from PyPI looks for
# the libraries of a CUDA toolkit, though no GPU is used), so no test suite needs them. The third is a test's, too.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=${BINARY:-build/release/levada}
folder="${XDG_CACHE_HOME:-$HOME/.cache}/levada/load-tools"
results=build/load-tools
mkdir -p "$results"

install() {  # NAME: a venv of its own for tests/load/requirements-NAME.txt, which lists every package: --no-deps
  local venv="$folder/$1" wanted="tests/load/requirements-$1.txt"
  if ! cmp -s "$wanted" "$venv/complete"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --no-deps -r "$wanted"
    cp "$wanted" "$venv/complete"
  fi
}

server=
stop() { [ -z "$server" ] || { kill "$server" 2>/dev/null; wait "$server" || true; server=; }; }
trap stop EXIT
start() {  # FLAG…: sets url
  local port
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  url=http://127.0.0.1:$port
  "$binary" serve --port "$port" --log-level warning "$@" >"$results/server.log" 2>&1 &
  server=$!
  for _ in $(seq 600); do
    curl -sf "$url/health" >/dev/null && return
    kill -0 "$server" || { cat "$results/server.log"; exit 1; }
    sleep 0.2
  done
  echo "no answer from $url"; exit 1
}

run_sglang() {
  install sglang
  start --model smollm2
  local backend dataset out
  for backend in sglang sglang-oai sglang-oai-chat; do
    for dataset in random-ids generated-shared-prefix; do
      out="$results/sglang-$backend-$dataset"
      rm -f "$out.jsonl"
      HF_HUB_OFFLINE=1 "$folder/sglang/bin/python" -W ignore -m sglang.bench_serving --backend "$backend" --base-url "$url" \
        --dataset-name "$dataset" --num-prompts 12 --random-input-len 64 --random-output-len 16 --random-range-ratio 0.5 \
        --gsp-num-groups 3 --gsp-prompts-per-group 4 --gsp-system-prompt-len 96 --gsp-question-len 16 --gsp-output-len 16 \
        --max-concurrency 4 --flush-cache --seed 1 --output-file "$out.jsonl" >"$out.log" 2>&1 ||
        { tail -20 "$out.log"; exit 1; }
      python3 - "$out" "$backend" "$dataset" <<'PY'
import json, re, sys
line = json.loads(open(sys.argv[1] + ".jsonl").read().splitlines()[-1])
counted = re.search(r"#Output tokens: (\d+)", open(sys.argv[1] + ".log").read())  # of random-ids; the other asks 12 times 16
assert line["completed"] == 12, line["completed"]
assert line["total_output_tokens"] == (int(counted[1]) if counted else 12 * 16), line["total_output_tokens"]
assert 0 < line["median_itl_ms"] <= line["median_e2e_latency_ms"] and 0 < line["median_ttft_ms"] <= line["p99_e2e_latency_ms"]
print(f"{sys.argv[2]:16} {sys.argv[3]:24} {line['completed']} requests, {line['output_throughput']:.1f} tok/s, "
      f"ttft p50 {line['median_ttft_ms']:.0f} ms, itl p50 {line['median_itl_ms']:.1f} ms")
PY
    done
  done
  stop
}

run_locust() {
  install locust
  start --model smollm2
  "$folder/locust/bin/locust" -f tests/load/locustfile.py --host "$url" --headless --users 8 --spawn-rate 8 --run-time 30s \
    --only-summary --exit-code-on-error 1
  stop
}

run_openapi() {
  start --model tests/vectors/tiny/llama --context-length 64 --chat-template tests/load/plain.jinja
  .deps/venv/bin/schemathesis run "$url/openapi.json" --phases examples,coverage,fuzzing --seed 20261130 \
    --max-examples "${EXAMPLES:-60}" --request-timeout 30 --generation-database none \
    --checks not_a_server_error,content_type_conformance,response_schema_conformance
  curl -sf "$url/debug/audit" >/dev/null
  stop
}

[ $# -gt 0 ] || set -- sglang locust openapi
for tool in "$@"; do
  case $tool in
    sglang | locust | openapi) "run_$tool" ;;
    *) echo "unknown: $tool (known: sglang, locust, openapi)"; exit 2 ;;
  esac
done
