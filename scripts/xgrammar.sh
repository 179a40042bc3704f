#!/usr/bin/env bash
# XGrammar as a static library, built once for every build folder of this machine: into
# ${COHORT_HOME:-~/.cache/cohort}/xgrammar-VERSION/TRIPLE-RECIPE, as libxgrammar.a and include/. Prints that folder, and does nothing if it is
# there. The source is the sdist of the Python package, pinned by its hash, with xgrammar.patch. It takes some minutes of two cores.
# usage: xgrammar.sh [C++ COMPILER]      c++ if left out; aarch64-linux-gnu-g++ builds for that machine
set -euo pipefail
version=0.2.9
sha256=87b466bca2475e29bb0323abc62c6c33cbcbcff47e5fb800a3e2099ac9620b90
recipe=8 # count up when the patch or the flags change
cxx=${1:-c++}
flags=(-std=c++17 -O2 -g0 -fPIC -fvisibility=hidden -DXGRAMMAR_ENABLE_CPPTRACE=0 -DXGRAMMAR_ENABLE_INTERNAL_CHECK=0 -DXGRAMMAR_LOG_CUSTOMIZE=1)
patch=$(cd "$(dirname "$0")" && pwd)/xgrammar.patch

fail() { echo "xgrammar: $*" >&2; exit 1; }
triple=$("$cxx" -dumpmachine) || fail "$cxx does not say for which machine it compiles"
triple=${triple/-pc-/-} # clang's name of what gcc calls x86_64-linux-gnu
triple=${triple/-unknown-/-}
top=${COHORT_HOME:-$HOME/.cache/cohort}/xgrammar-$version
target=$top/$triple-$recipe
if [[ -e $target/libxgrammar.a ]]; then
  echo "$target"
  exit 0
fi

mkdir -p "$top"
exec 9>"$top/lock"
flock 9 # whoever comes second finds it built
if [[ -e $target/libxgrammar.a ]]; then
  echo "$target"
  exit 0
fi
echo "xgrammar: building $version for $triple into $target (once; some minutes)" >&2
work=$(mktemp -d "$top/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
archive=$top/xgrammar-$version.tar.gz
if ! echo "$sha256  $archive" | sha256sum --check --status 2>/dev/null; then
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary xgrammar --dest "$work" "xgrammar==$version" >"$work/log" 2>&1 || {
    tail -5 "$work/log" >&2
    fail "cannot fetch xgrammar $version with pip; put xgrammar-$version.tar.gz into $top by hand, or build where there is a network"
  }
  echo "$sha256  $work/xgrammar-$version.tar.gz" | sha256sum --check --status || fail "the archive of xgrammar $version has another SHA-256 than $sha256"
  mv "$work/xgrammar-$version.tar.gz" "$archive"
fi
tar -C "$work" -xzf "$archive"
source=$work/xgrammar-$version
patch --quiet --directory "$source" -p1 <"$patch" || fail "xgrammar.patch does not fit"

mkdir -p "$work/objects" "$work/done/include"
compile() { # FILE: one object, named by its path so that no two are alike
  local name=${1#"$source"/cpp/}
  "$cxx" "${flags[@]}" -I"$source/include" -isystem "$source/3rdparty/picojson" -isystem "$source/3rdparty/dlpack/include" \
    -c "$1" -o "$work/objects/${name//\//_}.o"
}
running=0
for file in "$source"/cpp/*.cc "$source"/cpp/support/*.cc "$source"/cpp/converter_ext/*.cc; do
  compile "$file" &
  running=$((running + 1))
  if ((running >= $(nproc))); then
    wait -n || fail "$cxx cannot compile it"
    running=$((running - 1))
  fi
done
while ((running > 0)); do
  wait -n || fail "$cxx cannot compile it"
  running=$((running - 1))
done
"$("$cxx" -print-prog-name=ar)" rcs "$work/done/libxgrammar.a" "$work"/objects/*.o
cp -r "$source/include/xgrammar" "$source/3rdparty/dlpack/include/dlpack" "$work/done/include/"
cp "$source/LICENSE" "$source/NOTICE" "$work/done/"
mv -T "$work/done" "$target"
echo "$target"
