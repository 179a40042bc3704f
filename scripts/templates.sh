#!/usr/bin/env bash
# Puts the chat templates that the tests render into ${COHORT_HOME:-~/.cache/cohort}/templates, and the vocabularies of real models beside them: those
# that come with llama.cpp's sources, from the source package of llama-cpp-python, pinned by version and checksum. Does nothing if they are there.
# Prints the templates' folder.
set -euo pipefail
version=0.3.36
sum=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
home=${COHORT_HOME:-$HOME/.cache/cohort}
folder=$home/templates
vocabularies=$home/vocabularies
if [[ -d $vocabularies && -f $folder/.version && $(<"$folder/.version") == "$version" ]]; then
  echo "$folder"
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m pip download -q --no-deps --no-binary llama-cpp-python -d "$work" "llama-cpp-python==$version" >&2
archive=$(echo "$work"/llama_cpp_python-*.tar.gz)
echo "$sum  $archive" | sha256sum -c --quiet - >&2
tar -xzf "$archive" -C "$work" --wildcards '*/vendor/llama.cpp/models/templates/*' '*/vendor/llama.cpp/models/ggml-vocab-*.gguf'
mkdir -p "$home"
rm -rf "$folder" "$vocabularies"
mkdir "$vocabularies"
mv "$work"/llama_cpp_python-*/vendor/llama.cpp/models/ggml-vocab-*.gguf "$vocabularies"
mv "$work"/llama_cpp_python-*/vendor/llama.cpp/models/templates "$folder"
echo "$version" >"$folder/.version"
echo "$folder"
