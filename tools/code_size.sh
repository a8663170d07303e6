#!/bin/sh
# Fails if the code of a program (text and read-only data, as `size` counts them) is larger than a number of bytes.
# usage: code_size.sh SOURCE BYTES COMPILER [FLAGS...]
set -eu
source=$1 limit=$2
shift 2
if ! command -v size >/dev/null; then
  echo "skipped: no size (Debian, Ubuntu: apt-get install binutils)"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$@" -O2 -DNDEBUG "$source" -o "$folder/program"
bytes=$(size "$folder/program" | awk 'NR == 2 { print $1 }')
echo "$source: $bytes bytes of code, at most $limit"
[ "$bytes" -le "$limit" ]
