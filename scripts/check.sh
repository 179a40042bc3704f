#!/usr/bin/env bash
# Static checks: formatting, file sizes, exported symbols, the layers, and cppcheck. Prints each finding; exits 1 if there is one.
set -uo pipefail
cd "$(dirname "$0")/.."
findings=0
say() { echo "check: $*" >&2; findings=$((findings + 1)); }

sources=$(find src include tests fuzz bench examples -name '*.c' -o -name '*.h' -o -name '*.cpp' -o -name '*.cc')
# shellcheck disable=SC2086
clang-format --dry-run -Werror $sources || say "clang-format -i would change files"

for file in $sources; do
  lines=$(wc -l <"$file")
  ((lines <= 800)) || say "$file has $lines lines: above 800"
done
grep -nE 'TODO|FIXME|\bXXX\b' $sources && say "unfinished remarks"
grep -rnE '\b(strcpy|strcat|sprintf|gets)\(' src --include='*.c' | grep -vE 'snprintf' && say "calls without a bound"

# Public symbols are cohort_*; what a kernel object takes from outside is never libm's transcendental functions (law 1).
if [[ -d build ]]; then
  for archive in $(find build -maxdepth 1 -name 'libbackend.a' -o -maxdepth 1 -name 'libsample.a' -o -maxdepth 1 -name 'libbase.a' -o -maxdepth 1 -name 'libmodel.a'); do
    nm -u "$archive" 2>/dev/null | grep -wE 'expf?|exp2f?|logf?|log2f?|sinf?|cosf?|powf?|tanhf?' && say "$archive uses libm where the bits matter"
  done
fi
cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr --suppress=missingIncludeSystem --error-exitcode=1 \
  --suppress=invalidPointerCast --suppress=unknownMacro --suppress=internalAstError -D__x86_64__ -I include -I src src || say "cppcheck"
((findings == 0)) || exit 1
echo "check: nothing found"
