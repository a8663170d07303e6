#!/usr/bin/env python3
"""What the library costs a user in compile time, as a multiple of Eigen/Core alone.

usage: compile_time.py INCLUDE_DIR COMPILER [FLAGS...]

Counts the instructions that the compiler executes at -O2 (valgrind's cachegrind): the same on a busy machine, where seconds vary
by a third. Fails if a source is over its budget; without valgrind the exit code is 77 (skipped).
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BASE = "Eigen/Core"
SOURCES = {  # what is compiled -> its text, and its budget as a multiple of BASE
    BASE: ("#include <Eigen/Core>\n", 1.0),
    "attn/attn.hpp": ('#include "attn/attn.hpp"\n', 1.35),
    "one module, linked with attn::compiled": (
        "#define ATTN_COMPILED\n"
        '#include "attn/attn.hpp"\n'
        "attn::Matrix<float> run(const attn::MultiHeadAttention<float>& m, const attn::Matrix<float>& x) {\n"
        "  return m.forward(x, attn::Causal{});\n}\n", 3.0),
}
SKIPPED = 77


def instructions_to_compile(command, source):
    """Of the compiler and all programs that it starts."""
    counted = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--trace-children=yes", "--cachegrind-out-file=/dev/null"]
    run = subprocess.run([*counted, *command, "-c", source, "-o", os.devnull], capture_output=True, text=True)
    counts = re.findall(r"I +refs: +([\d,]+)", run.stderr)
    if run.returncode != 0 or not counts:
        sys.exit(f"compile_time.py: {source} could not be compiled and counted:\n{run.stderr}")
    return sum(int(count.replace(",", "")) for count in counts)


def main(include_dir, compiler):
    if not shutil.which("valgrind"):
        print("compile_time.py: skipped, valgrind is missing (Debian, Ubuntu: apt-get install valgrind)")
        return SKIPPED
    command = [*compiler, "-std=c++20", "-O2", f"-I{include_dir}"]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        sources = [pathlib.Path(folder) / f"{number}.cpp" for number in range(len(SOURCES))]
        for source, (text, _) in zip(sources, SOURCES.values()):
            source.write_text(text)
        counts = dict(zip(SOURCES, pool.map(lambda source: instructions_to_compile(command, source), sources)))
    over = False
    for name, (_, budget) in SOURCES.items():
        ratio = counts[name] / counts[BASE]
        over |= ratio > budget
        print(f"{name:38} {counts[name] / 1e9:6.2f} G instructions  {ratio:5.2f} x {BASE}  (budget {budget:.2f})"
              + ("  OVER" if ratio > budget else ""))
    return 1 if over else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
