#!/bin/sh
# Builds and runs all tests. On Debian and Ubuntu it installs what is missing, elsewhere it names it.
# usage: tests/run.sh [arguments of cmake...]   for example -DCMAKE_CXX_COMPILER=clang++
# Settings: BUILD_DIR (default build/tests), JOBS (default: number of processors).
# The compile-time budget is left out, since it takes minutes under valgrind: ctest --test-dir build/tests -L budget.
set -eu
cd "$(dirname "$0")/.."

echo "== Checking for a compiler, CMake and the libraries"
tools/ensure_packages.sh g++ cmake ninja-build pkg-config python3 libeigen3-dev nlohmann-json3-dev libcli11-dev \
  libutf8proc-dev libgtest-dev libbenchmark-dev

build_dir=${BUILD_DIR:-build/tests}
jobs=${JOBS:-$(getconf _NPROCESSORS_ONLN)}
echo "== Configuring in $build_dir"
cmake -G Ninja -S . -B "$build_dir" "$@"
echo "== Building with $jobs jobs"
cmake --build "$build_dir" --parallel "$jobs"
echo "== Laying out the operator cases of the onnx package"
python3 tools/fetch_onnx_cases.py || echo "Without them conformance.onnx_package is reported as skipped."
echo "== Testing"
results=$(cd "$build_dir" && pwd)/results.xml
rm -f "$results"
ctest --test-dir "$build_dir" --label-exclude budget --parallel "$jobs" --output-on-failure \
  --output-junit "$results" || true
echo "== Summary"
python3 tools/test_summary.py "$results"
