#!/usr/bin/env python3
"""What the library costs a user in compile time, as a multiple of Eigen/Core alone on the same machine, same run.

usage: compile_time.py INCLUDE_DIR COMPILER [FLAGS...]

Each source is compiled three times with -O2, in turn with the others, and its median counts. Fails if one is over budget.
"""
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

BASE = "Eigen/Core"
SOURCES = {  # what is compiled -> its text, and its budget as a multiple of BASE
    BASE: ("#include <Eigen/Core>\n", 1.0),
    "attn/attn.hpp": ('#include "attn/attn.hpp"\n', 1.35),
    "one module used": ('#include "attn/attn.hpp"\n'
                        "attn::Matrix<float> run(const attn::MultiHeadAttention<float>& m, const attn::Matrix<float>& x) {\n"
                        "  return m.forward(x, attn::Causal{});\n}\n", 3.0),
}
REPEATS = 3


def seconds_to_compile(command, source):
    start = time.perf_counter()
    subprocess.run([*command, "-c", source, "-o", "/dev/null"], check=True)
    return time.perf_counter() - start


def main(include_dir, compiler):
    command = [*compiler, "-std=c++20", "-O2", f"-I{include_dir}"]
    seconds = {name: [] for name in SOURCES}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(REPEATS):
            for number, (name, (text, _)) in enumerate(SOURCES.items()):
                source = pathlib.Path(folder) / f"{number}.cpp"
                source.write_text(text)
                seconds[name].append(seconds_to_compile(command, source))
    base = statistics.median(seconds[BASE])
    over = False
    for name, (_, budget) in SOURCES.items():
        median = statistics.median(seconds[name])
        over |= median > budget * base
        print(f"{name:20} {median:6.2f} s  {median / base:5.2f} x {BASE}  (budget {budget:.2f})"
              + ("  OVER" if median > budget * base else ""))
    return 1 if over else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
