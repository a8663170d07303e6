#!/bin/sh
# Compiles one source for AVX2 and looks at the code of each of its functions named packed_*: the loop in it must have
# become vector code, which multiplies and adds 256-bit registers.
# usage: packed_code.sh SOURCE COMPILER [FLAGS...]
set -eu
source=$1
shift
dir=$(mktemp -d)
trap 'rm -r "$dir"' EXIT
"$@" -std=c++20 -O2 -mavx2 -mfma -c "$source" -o "$dir/object.o"
objdump --disassemble --no-show-raw-insn --demangle "$dir/object.o" >"$dir/code"
awk '
  /^[0-9a-f]+ </ { name = ""; if (match($0, /packed_[a-z_]+/)) { name = substr($0, RSTART, RLENGTH); packed[name] = 0 } }
  name != "" && /vf[n]?m(add|sub)[0-9]*p[sd] .*%ymm/ { ++packed[name] }
  END {
    for (name in packed) {
      ++functions
      bad = packed[name] < 6
      failed += bad
      printf "%s: %d packed multiply-adds%s\n", name, packed[name], bad ? ", which is no vector loop" : ""
    }
    if (functions == 0) print "no function packed_*: the check would see nothing"
    exit functions == 0 || failed > 0
  }' "$dir/code"
