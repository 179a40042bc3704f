#!/usr/bin/env bash
# Makes .venv with the Python packages of the API tests, pinned in tests/api/requirements.txt. Does nothing if it is up to date.
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=.venv/requirements.installed
cmp -s tests/api/requirements.txt "$stamp" 2>/dev/null && exit 0
echo "venv: installing the API tests' Python packages" >&2
python3 -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check -r tests/api/requirements.txt
cp tests/api/requirements.txt "$stamp"
