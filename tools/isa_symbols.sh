#!/bin/sh
# Compiles one source for two instruction sets. No weak symbol of ours may be in both objects: the linker would keep
# one of them, and code for one processor could run on the other.
# usage: isa_symbols.sh SOURCE COMPILER [FLAGS...]
set -eu
source=$1
shift
dir=$(mktemp -d)
trap 'rm -r "$dir"' EXIT
"$@" -std=c++20 -O2 -mavx2 -mfma -c "$source" -o "$dir/first.o"
"$@" -std=c++20 -O2 -mavx2 -mfma -mavx512f -mavx512dq -c "$source" -o "$dir/second.o"
for object in first second; do
  nm "$dir/$object.o" | awk '$2 ~ /^[WVu]$/ {print $3}' | sort -u >"$dir/$object"
done
comm -12 "$dir/first" "$dir/second" | c++filt >"$dir/shared"
# A symbol is ours by its own name, not because one of our types is a template argument of somebody's function.
grep -E '^(guard variable for |vtable for |typeinfo (name )?for )?([^(<]* )?attn::' "$dir/shared" >"$dir/ours" || true
grep -qE 'attn::' "$dir/shared" && other=$(grep -c 'attn::' "$dir/shared") || other=0
own=$(nm -C "$dir/first.o" | grep -cE ' [WVu] .*attn::') || true
if [ "$own" -eq 0 ]; then
  echo "the first object holds no weak symbol of attn: the check would see nothing" >&2
  exit 2
fi
echo "$own weak symbols of attn in the first object; shared by both objects: $(wc -l <"$dir/shared") in all," \
  "$(wc -l <"$dir/ours") of attn, $other that name attn"
cat "$dir/ours"
[ ! -s "$dir/ours" ]
