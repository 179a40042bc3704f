#!/usr/bin/env bash
# Installs the Debian packages that building, testing and serving need, and nothing if they are all there.
# COHORT_NO_INSTALL=1 only says what is missing.
# usage: deps.sh [test]     test: also what cross-compiling for ARM and emulating it takes
set -euo pipefail

packages=(build-essential clang clang-format cmake ninja-build pkg-config python3 python3-venv python3-pip cppcheck
  libclang-rt-14-dev libevent-dev libjansson-dev libpcre2-dev libutf8proc-dev libsqlite3-dev libxxhash-dev libcmocka-dev libsimde-dev)
if [[ ${1:-} == test && $(uname -m) == x86_64 ]]; then
  packages+=(gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)
fi

missing=()
for package in "${packages[@]}"; do
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0

command -v apt-get >/dev/null || { echo "deps: needs apt-get, or these packages by hand: ${missing[*]}" >&2; exit 1; }
if [[ ${COHORT_NO_INSTALL:-0} == 1 ]]; then
  echo "deps: missing packages: ${missing[*]}" >&2
  exit 1
fi
as_root=()
((EUID == 0)) || as_root=(sudo)
echo "deps: installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if ! { "${as_root[@]}" apt-get update -qq && "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -20 "$log" >&2
  exit 1
fi
