#!/usr/bin/env python3
"""Counts the instructions of the work in instruction_counts.cpp and fails if one has become more expensive.

    instruction_counts.py PROGRAM [--update]

The bounds in instruction_bounds.json stand under the compiler and the Eigen that the program was built with;
for a build without bounds the counts are printed and the exit code is 77 (skipped). --update writes the bounds
of this build anew, HEADROOM above the counts: for a change that is worth its price, or that lowers it.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys

BOUNDS = pathlib.Path(__file__).with_name("instruction_bounds.json")
HEADROOM = 1.03  # other patch releases of a compiler move the counts by a percent or so
SKIPPED = 77


def count(program, work):
    """Instructions executed inside counted_region()."""
    command = ["valgrind", "--tool=callgrind", "--toggle-collect=counted_region*", "--callgrind-out-file=/dev/null",
               program, work]
    run = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode != 0 or not found or int(found[1]) == 0:
        sys.exit(f"instruction_counts.py: {work} could not be counted:\n{run.stderr}")
    return int(found[1])


def main():
    arguments = [a for a in sys.argv[1:] if a != "--update"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    if not shutil.which("valgrind"):
        print("instruction_counts.py: skipped, valgrind is missing (Debian, Ubuntu: apt-get install valgrind)")
        return SKIPPED
    program = arguments[0]
    build, *names = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    all_bounds = json.loads(BOUNDS.read_text()) if BOUNDS.exists() else {}
    bounds = all_bounds.get(build, {})
    counts = {name: count(program, name) for name in names}
    print(f"{build}\n{'work':16}{'instructions':>14}{'bound':>14}")
    for name, instructions in counts.items():
        print(f"{name:16}{instructions:14,}{bounds.get(name, 0):14,}")
    if "--update" in sys.argv:
        all_bounds[build] = {name: round(HEADROOM * instructions) for name, instructions in counts.items()}
        BOUNDS.write_text(json.dumps(all_bounds, indent=2, sort_keys=True) + "\n")
        print(f"wrote {BOUNDS}")
        return 0
    if not bounds:
        print(f"instruction_counts.py: skipped, no bounds for {build}")
        return SKIPPED
    beyond = [name for name, instructions in counts.items() if instructions > bounds.get(name, 0)]
    if beyond:
        print(f"instruction_counts.py: more instructions than the bound allows: {', '.join(beyond)}")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
