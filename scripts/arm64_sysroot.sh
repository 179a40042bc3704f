#!/usr/bin/env bash
# The arm64 libraries that a cross build links, unpacked from Debian's packages into a folder of their own: the machine's package database does
# not learn of the architecture, and nothing here needs root. Does nothing if the folder is complete.
# usage: arm64_sysroot.sh FOLDER
set -euo pipefail
sysroot=${1:?usage: arm64_sysroot.sh FOLDER}
packages=(libcmocka-dev libcmocka0 libjansson-dev libjansson4 libpcre2-dev libpcre2-8-0 libutf8proc-dev libutf8proc2
  libevent-dev libevent-2.1-7 libevent-core-2.1-7 libevent-extra-2.1-7 libevent-pthreads-2.1-7 libevent-openssl-2.1-7
  libsqlite3-dev libsqlite3-0 libxxhash-dev libxxhash0)

stamp=$sysroot/packages
[[ $(cat "$stamp" 2>/dev/null) == "${packages[*]}" ]] && exit 0
rm -rf "$sysroot"
mkdir -p "$sysroot"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,cache/archives/partial,debs}
chmod -R go+rwX "$work"
options=(-q -o Dir::State::Lists="$work/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$work/cache"
  -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Acquire::Languages=none)
if ! { apt-get "${options[@]}" update && cd "$work/debs" && apt-get "${options[@]}" download "${packages[@]}"; } >"$work/log" 2>&1; then
  tail -20 "$work/log" >&2
  exit 1
fi
cd - >/dev/null
for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$sysroot"; done
echo "${packages[*]}" >"$stamp"
