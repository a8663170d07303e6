#!/usr/bin/env python3
"""Sums CTest's results. usage: test_summary.py RESULTS.xml... (files of ctest --output-junit)

Names the tests that failed and those that were skipped, and prints "N passed, N failed, N skipped" as its last line.
Exit code 1 if one failed or a file is missing.
"""
import pathlib
import sys
import xml.etree.ElementTree


def status_of(case):
    """A test that could not be started, say because its program was not built, has failed: only one that skips itself
    is skipped."""
    if case.get("status") == "run":
        return "passed"
    message = case.find("skipped")
    return "skipped" if message is not None and message.get("message", "").startswith("SKIP_") else "failed"


def main(files):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for file in files:
        if not pathlib.Path(file).is_file():
            print(f"failed: no results in {file}")
            counts["failed"] += 1
            continue
        for case in xml.etree.ElementTree.parse(file).getroot().iter("testcase"):
            status = status_of(case)
            counts[status] += 1
            if status != "passed":
                print(f"{status}: {case.get('name')}")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
