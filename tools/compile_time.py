#!/usr/bin/env python3
"""What the library costs a user in compile time, as a multiple of Eigen/Core alone on the same machine, same run.

usage: compile_time.py INCLUDE_DIR COMPILER [FLAGS...]

Each source is compiled five times with -O2, in turn with the others, and the least processor time counts: what else the machine
does can only add to it. Fails if one is over budget.
"""
import pathlib
import resource
import subprocess
import sys
import tempfile

BASE = "Eigen/Core"
MODULE = ('#include "attn/attn.hpp"\n'
          "attn::Matrix<float> run(const attn::MultiHeadAttention<float>& m, const attn::Matrix<float>& x) {\n"
          "  return m.forward(x, attn::Causal{});\n}\n")
UNLIMITED = float("inf")
SOURCES = {  # what is compiled -> its text, and its budget as a multiple of BASE
    BASE: ("#include <Eigen/Core>\n", 1.0),
    "attn/attn.hpp": ('#include "attn/attn.hpp"\n', 1.35),
    "one module, linked with attn::compiled": ("#define ATTN_COMPILED\n" + MODULE, 3.0),
    "one module, kernels included": (MODULE, UNLIMITED),
}
REPEATS = 5


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def seconds_to_compile(command, source):
    start = cpu_seconds()
    subprocess.run([*command, "-c", source, "-o", "/dev/null"], check=True)
    return cpu_seconds() - start


def main(include_dir, compiler):
    command = [*compiler, "-std=c++20", "-O2", f"-I{include_dir}"]
    seconds = {name: [] for name in SOURCES}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(REPEATS):
            for number, (name, (text, _)) in enumerate(SOURCES.items()):
                source = pathlib.Path(folder) / f"{number}.cpp"
                source.write_text(text)
                seconds[name].append(seconds_to_compile(command, source))
    base = min(seconds[BASE])
    over = False
    for name, (_, budget) in SOURCES.items():
        least = min(seconds[name])
        over |= least > budget * base
        print(f"{name:38} {least:6.2f} s  {least / base:5.2f} x {BASE}  ({'no budget' if budget == UNLIMITED else f'budget {budget:.2f}'})"
              + ("  OVER" if least > budget * base else ""))
    return 1 if over else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
