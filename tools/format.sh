#!/bin/sh
# Formats every C++ file of the project with clang-format 14; with --check, changes nothing and fails if one differs.
set -eu
cd "$(dirname "$0")/.."
format=$(command -v clang-format-14 || command -v clang-format) || {
  echo "tools/format.sh: clang-format 14 is missing (Debian, Ubuntu: apt-get install clang-format-14)" >&2
  exit 2
}
case $("$format" --version) in
*"version 14."*) ;;
*)
  echo "tools/format.sh: $("$format" --version) is not version 14, whose output is the standard here" >&2
  exit 2
  ;;
esac
mode=${1:---fix}
case $mode in
--check) action="--dry-run --Werror" ;;
--fix) action=-i ;;
*)
  echo "usage: tools/format.sh [--check]" >&2
  exit 2
  ;;
esac
sources=$(find include tests examples benchmarks -name '*.[hc]pp')
# shellcheck disable=SC2086  # lists of words
"$format" $action $sources
# clang-format keeps the line breaks of comments (it would tear the tables in them), so their length is checked here.
# shellcheck disable=SC2086
if [ "$mode" = --check ] && LC_ALL=C.UTF-8 grep -nE '^ *//.*' $sources | LC_ALL=C.UTF-8 grep -E '^[^:]*:[0-9]*:.{111,}$'; then
  echo "tools/format.sh: the comments above are wider than 110 columns" >&2
  exit 1
fi
