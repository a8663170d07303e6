#!/bin/sh
# Compiles one source for several instruction sets. No weak symbol of ours may be in two of the objects: the linker would
# keep one of them, and code for one processor could run on the other.
# usage: isa_symbols.sh SOURCE COMPILER [FLAGS...]
set -eu
source=$1
shift
dir=$(mktemp -d)
trap 'rm -r "$dir"' EXIT
avx2="-mavx2 -mfma"
avx512="$avx2 -mavx512f -mavx512dq"
# shellcheck disable=SC2086  # lists of flags
{
  "$@" -std=c++20 -O2 $avx2 -c "$source" -o "$dir/avx2.o"
  "$@" -std=c++20 -O2 $avx512 -c "$source" -o "$dir/avx512.o"
  "$@" -std=c++20 -O2 $avx512 -mavx512bw -mavx512bf16 -c "$source" -o "$dir/avx512bf16.o"
  "$@" -std=c++20 -O2 $avx512 -mavx512bw -mavx512bf16 -mamx-tile -mamx-bf16 -c "$source" -o "$dir/amxbf16.o"
}
for object in avx2 avx512 avx512bf16 amxbf16; do
  own=$(nm -C "$dir/$object.o" | grep -cE ' [WVu] .*attn::') || true
  if [ "$own" -eq 0 ]; then
    echo "the object for $object holds no weak symbol of attn: the check would see nothing" >&2
    exit 2
  fi
  nm "$dir/$object.o" | awk '$2 ~ /^[WVu]$/ {print $3}' | sort -u >"$dir/$object"
done
sort "$dir/avx2" "$dir/avx512" "$dir/avx512bf16" "$dir/amxbf16" | uniq -d | c++filt >"$dir/shared"
# A symbol is ours by its own name, not because one of our types is a template argument of somebody's function.
grep -E '^(guard variable for |vtable for |typeinfo (name )?for )?([^(<]* )?attn::' "$dir/shared" >"$dir/ours" || true
grep -qE 'attn::' "$dir/shared" && other=$(grep -c 'attn::' "$dir/shared") || other=0
echo "$own weak symbols of attn in the last object; in two objects: $(wc -l <"$dir/shared") in all," \
  "$(wc -l <"$dir/ours") of attn, $other that name attn"
cat "$dir/ours"
[ ! -s "$dir/ours" ]
