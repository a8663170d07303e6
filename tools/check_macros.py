#!/usr/bin/env python3
"""Fails if a header of the library defines a macro whose name does not start with ATTN_.

usage: check_macros.py INCLUDE_DIR COMPILER [FLAGS...]

Reads what the preprocessor makes of a file that includes every header: its definitions, each with the file that made it.
"""
import pathlib
import re
import subprocess
import sys

LINE_MARKER = re.compile(r'^# \d+ "([^"]*)"')
DEFINITION = re.compile(r"^#define (\w+)")


def stray_macros(include_dir, compiler_command):
    root = pathlib.Path(include_dir).resolve()
    headers = sorted(root.glob("attn/**/*.hpp"))
    source = "".join(f'#include "{header.relative_to(root).as_posix()}"\n' for header in headers)
    command = [*compiler_command, "-std=c++20", f"-I{root}", "-x", "c++", "-E", "-dD", "-"]
    text = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    file, seen, stray = None, 0, set()
    for line in text.splitlines():
        if marker := LINE_MARKER.match(line):
            file = pathlib.Path(marker[1])
        elif (definition := DEFINITION.match(line)) and file is not None and file.is_relative_to(root):
            seen += 1
            if not definition[1].startswith("ATTN_"):
                stray.add(f"{file.relative_to(root)}: {definition[1]}")
    return sorted(stray), seen


def main(include_dir, compiler_command):
    stray, seen = stray_macros(include_dir, compiler_command)
    if seen == 0:
        sys.exit("no macro of ours was seen at all: the compiler's output is not what this script reads")
    print("\n".join(stray) or f"{seen} definitions, all of them ATTN_")
    return 1 if stray else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
