#!/bin/sh
# Runs the conformance program over a folder of outside cases; exit code 77, which CTest reports as skipped, if
# the folder is not there. usage: run.sh DIR COMMAND...
set -eu
dir=$1
shift
if [ ! -f "$dir/manifest.json" ]; then
  echo "skipped: there are no outside cases in $dir"
  exit 77
fi
exec "$@" "$dir"
