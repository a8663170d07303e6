#!/usr/bin/env python3
"""Checks that a mistake does not compile, and that the compiler's message names the requirement it breaks.

usage: must_not_compile.py SOURCE COMPILER [FLAGS...]

The source must compile as it is, and not with ATTN_TEST_MISTAKE defined, or with the flags of its line
"// mistake: FLAGS"; then the output must match the regular expression of each of its lines "// must say: EXPRESSION".
"""
import pathlib
import re
import subprocess
import sys


def compile_with(command, source, *more):
    run = subprocess.run([*command, *more, "-fsyntax-only", source], capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr


def main(source, command):
    text = pathlib.Path(source).read_text()
    expressions = re.findall(r"^// must say: (.*)$", text, re.MULTILINE)
    mistake = re.search(r"^// mistake: (.*)$", text, re.MULTILINE)
    flags = mistake[1].split() if mistake else ["-DATTN_TEST_MISTAKE"]
    if not expressions:
        return f"{source} does not state what the compiler must say"
    code, output = compile_with(command, source)
    if code != 0:
        return f"the right form does not compile:\n{output}"
    code, output = compile_with(command, source, *flags)
    if code == 0:
        return "the mistake compiles"
    missing = [e for e in expressions if not re.search(e, output)]
    if missing:
        return f"the message does not say {missing}:\n{output}"
    print(f"rejected in {len(output.splitlines())} lines, which say {expressions}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
