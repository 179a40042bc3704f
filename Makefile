# The front door. `make run` ends in a served model, `make test` in a tested one; each installs what it needs by itself.
#   make run      install packages, build, fetch the default model, serve on 127.0.0.1:8080   (ARGS="-np 32" adds flags)
#   make test     everything that CI runs, closing with "N passed, N failed"
#   make build    build/cohort and the library only
#   make model    fetch the default model (253 MB) into $COHORT_HOME or ~/.cache/cohort
#   make bench    cohort's speed beside the machine's roofs, and beside llama.cpp's where that is built   (MODELS="default q4km-1b q8-1b")
#   make bench-kernels   each kernel alone beside its roof; make bench-server: whole servers under load; make plot: docs/performance.svg
#   make bench-latency   what a long prompt costs those who are being answered, and the other way round
#   make bench-cache     what prompts cost that were read before: again, after a restart, many at once
#   make bench-start     start to first token, and peak memory with 16 rows of 4096 tokens
#   make bench-streams   memory of an open stream that waits or runs, with 1,000 of them
#   make bench-constrained   what free rows lose by constrained neighbours
#   make check    static checks: formatting, file sizes, symbols, cppcheck
#   make peer-check   tokenizer pairs, perplexity and speed beside llama.cpp, which must be built (not in CI)
#   make eval-check   lm-evaluation-harness on a small local task: its scores equal those of cohort score (installs 800 MB; not in CI)
#   make simulate SEED=1 REQUESTS=1000000
#   make install  PREFIX=/usr/local
#   make clean
SHELL := /bin/bash
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
ARGS ?=
SEED ?= 1
REQUESTS ?= 1000000
MODELS ?= default
BENCH_ARGS ?=

.PHONY: run test build bench bench-programs bench-kernels bench-server bench-latency bench-cache bench-start bench-streams bench-constrained plot check peer-check eval-check install clean deps model venv simulate

build: deps
	@cmake --preset release >build.log.tmp 2>&1 || { cat build.log.tmp; rm -f build.log.tmp; exit 1; }; rm -f build.log.tmp
	@cmake --build build --target cohort -- -j$(JOBS)

deps:
	@scripts/deps.sh

model:
	@python3 scripts/fetch_model.py

venv: deps
	@scripts/venv.sh

run: build model
	@exec build/cohort serve $(ARGS)

test: model venv
	@scripts/deps.sh test
	@python3 scripts/test.py

check: deps
	@scripts/check.sh

bench-programs: build model
	@cmake --build build --target benches -- -j$(JOBS) >/dev/null

bench: bench-programs
	@python3 bench/bench.py --models $(MODELS) $(BENCH_ARGS)

bench-kernels: bench-programs
	@build/bench/bench_roof
	@build/bench/bench_matmul
	@build/bench/bench_vector
	@build/bench/bench_exec "$$(python3 scripts/fetch_model.py --path)"
	@build/bench/bench_sched

bench-server: bench-programs
	@python3 bench/server.py $(BENCH_ARGS)

bench-latency: bench-programs
	@python3 bench/latency.py $(BENCH_ARGS)

bench-cache: bench-programs
	@python3 bench/cache.py $(BENCH_ARGS)

bench-start: bench-programs
	@python3 bench/start.py $(BENCH_ARGS)

bench-streams: bench-programs
	@python3 bench/streams.py $(BENCH_ARGS)

bench-constrained: bench-programs
	@python3 bench/constrained.py $(BENCH_ARGS)

plot:
	@python3 bench/plot.py

peer-check: build model venv
	@python3 bench/peer_check.py

eval-check: build model
	@python3 bench/eval_check.py

simulate: deps
	@cmake --preset release >/dev/null && cmake --build build --target test_sim -- -j$(JOBS)
	@build/tests/sim/test_sim --seed $(SEED) --requests $(REQUESTS)

install: build
	@cmake --install build --prefix $(PREFIX)

clean:
	rm -rf build build-asan build-tsan build-clang build-fuzz build-coverage build-aarch64 .venv
