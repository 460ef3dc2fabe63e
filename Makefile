# levada: `make run` serves a real model on this machine; `make test` proves it. `make help` lists the rest.
# Every target installs what it needs first (Debian 12; root or sudo; see scripts/setup.sh) and is quick when run again.
.DEFAULT_GOAL := help
.PHONY: help setup build run test bench lint interop cuda clean

help:
	@echo "make run      set up, build, serve SmolLM2 on the CPU at http://127.0.0.1:30000 and train three drafts on it"
	@echo "make build    set up and build build/release/levada"
	@echo "make test     set up, build, and run every test (release, ASan+UBSan, TSan, Python clients)"
	@echo "make bench    run the benches and print their JSON"
	@echo "make lint     check formatting, room boundaries and file lengths"
	@echo "make interop  read a draft trained here with SpecForge's module (downloads gigabytes once)"
	@echo "make cuda     compile the CUDA module for sm_80, sm_90a and sm_100 (nightly; needs nvcc, no GPU)"
	@echo "make clean    remove build/ (downloads stay in the per-user cache)"

setup:
	@scripts/setup.sh

build: setup
	@scripts/build.sh release

run: build
	@build/release/levada up recipes/quickstart.yaml

test: setup
	@scripts/test.sh

bench: build
	@scripts/bench.sh

lint: setup
	@scripts/lint.sh

interop: build
	@scripts/interop.sh

cuda: setup
	@cmake --preset release -B build/cuda -DLEVADA_CUDA_ARCHITECTURES="80;90a;100a" >/dev/null
	@ninja -C build/cuda levada_cuda

clean:
	rm -rf build
