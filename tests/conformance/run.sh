#!/bin/sh
# Runs the conformance program over a folder of outside cases; exit code 77, which CTest reports as skipped, if the
# folder is not there. usage: run.sh PROGRAM DIR
set -eu
if [ ! -f "$2/manifest.json" ]; then
  echo "skipped: there are no outside cases in $2"
  exit 77
fi
exec "$1" "$2"
