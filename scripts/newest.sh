#!/bin/sh
# The suite with the newest release of every package, in an environment of its own: what a new release breaks.
set -eu
"${PYTHON:-python3}" -m venv --clear .venv-newest
bin=.venv-newest/bin
"$bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev]'
"$bin/python" -m pip freeze --exclude-editable > .venv-newest/set.txt
echo "newer than constraints.txt:"
sed 's/+cpu$//' .venv-newest/set.txt | grep -vixFf constraints.txt || echo "  nothing"
status=0
OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 "$bin/python" -m pytest -q -n 2 --dist worksteal -p no:cacheprovider \
  -m "not timed and not torture" || status=$?
"$bin/mypy" && "$bin/ruff" check . || status=1
exit "$status"
