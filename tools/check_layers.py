#!/usr/bin/env python3
"""Fails if a header includes what its layer may not see, if headers include each other in a cycle, if a header outside
io and models includes more than Eigen/Core and the cheap part of the standard library, or if attn.hpp lacks a header.

usage: check_layers.py INCLUDE_DIR        the folder that holds attn/
       check_layers.py --self-test INCLUDE_DIR   plants wrong includes in a copy and fails unless each is reported
"""
import pathlib
import re
import shutil
import sys
import tempfile

# Layer -> the layers that it may include besides itself. docs/design.md says what each is for.
ALLOWED = {
    "core": set(),
    "masks": {"core"},
    "kernels": {"core", "masks"},
    "ops": {"core", "masks", "kernels"},
    "interop": {"core"},
    "io": {"core"},
    "modules": {"core", "masks", "ops"},
    "models": {"core", "masks", "ops", "modules", "io"},
    "train": {"core", "ops", "modules", "io"},
    "distributed": {"core", "ops", "modules"},
    "analysis": {"core", "masks", "ops", "modules", "models", "io"},
    "viz": {"core", "analysis"},
}
# Headers beside the layers: the version is everybody's; the umbrella and the forward declarations may see all.
SHARED = {"version.hpp"}
UMBRELLAS = {"attn.hpp", "fwd.hpp"}

# Layers that may use other libraries. The rest compiles with Eigen/Core and the standard library alone ...
WITH_LIBRARIES = {"io", "models", "interop", "distributed"}
# ... without the parts of either that cost every user compile time, except where a header is about them.
EXPENSIVE = {"functional", "iostream", "memory_resource", "regex", "thread"}
ALSO = {"core/thread_pool.hpp": {"thread"}, "kernels/packet.hpp": {"immintrin.h"}}
# What attn.hpp holds: every header of these layers but those that include something expensive.
UMBRELLA_LAYERS = {"core", "masks", "ops", "modules"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)


def read_includes(include_dir):
    """Header relative to attn/ -> everything it includes, as written."""
    root = pathlib.Path(include_dir) / "attn"
    return {h.relative_to(root).as_posix(): INCLUDE.findall(h.read_text()) for h in sorted(root.rglob("*.hpp"))}


def own(includes):
    """The headers of ours among them, relative to attn/."""
    return [i.removeprefix("attn/") for i in includes if i.startswith("attn/")]


def layer_errors(graph):
    for header, includes in graph.items():
        layer = header.split("/")[0] if "/" in header else None
        if layer is None and header not in SHARED | UMBRELLAS:
            yield f"{header}: belongs to no layer"
        if layer is not None and layer not in ALLOWED:
            yield f"{header}: there is no layer '{layer}'"
            continue
        for target in includes:
            other = target.split("/")[0] if "/" in target else None
            if target not in graph:
                yield f"{header}: there is no header attn/{target}"
            elif layer is None or target in SHARED:
                continue
            elif other != layer and other not in ALLOWED[layer]:
                yield f"{header}: layer '{layer}' may not include attn/{target}"


def cycle_errors(graph):
    finished, path = set(), []

    def visit(header):
        if header in path:
            yield "cycle: " + " -> ".join(path[path.index(header):] + [header])
        elif header not in finished:
            path.append(header)
            for target in graph.get(header, []):
                yield from visit(target)
            path.pop()
            finished.add(header)

    for header in graph:
        yield from visit(header)


def dependency_errors(includes_of):
    for header, includes in includes_of.items():
        if header.split("/")[0] in WITH_LIBRARIES:
            continue
        for target in includes:
            if target.startswith("attn/") or target in {"Eigen/Core"} | ALSO.get(header, set()):
                continue
            if "/" in target or target.endswith((".h", ".hpp")):
                yield f"{header}: may not include {target}, only Eigen/Core and the standard library"
            elif target in EXPENSIVE:
                yield f"{header}: <{target}> costs every user compile time"


def umbrella_errors(includes_of):
    held = own(includes_of.get("attn.hpp", []))
    for header, includes in includes_of.items():
        if header.split("/")[0] in UMBRELLA_LAYERS and not EXPENSIVE & set(includes) and header not in held:
            yield f"attn.hpp: lacks attn/{header}"


def errors_of(include_dir):
    includes_of = read_includes(include_dir)
    graph = {header: own(includes) for header, includes in includes_of.items()}
    errors = [*layer_errors(graph), *cycle_errors(graph), *dependency_errors(includes_of), *umbrella_errors(includes_of)]
    return errors, len(graph)


def self_test(include_dir):
    """Each planted fault: the header it goes into, the line, and what the report must say."""
    faults = [
        ("core/types.hpp", '#include "attn/masks/mask.hpp"', "layer 'core' may not include attn/masks/mask.hpp"),
        ("core/types.hpp", '#  include <attn/masks/mask.hpp>', "cycle: "),
        ("masks/causal.hpp", '#include "attn/attn.hpp"', "layer 'masks' may not include attn/attn.hpp"),
        ("masks/causal.hpp", '#include "attn/core/no_such.hpp"', "there is no header attn/core/no_such.hpp"),
        ("masks/causal.hpp", "#include <Eigen/Dense>", "may not include Eigen/Dense"),
        ("masks/causal.hpp", "#include <regex>", "<regex> costs every user compile time"),
        ("masks/new.hpp", "#pragma once", "attn.hpp: lacks attn/masks/new.hpp"),
        ("extras/new.hpp", "#pragma once", "there is no layer 'extras'"),
        ("stray.hpp", "#pragma once", "belongs to no layer"),
    ]
    missed = []
    for header, line, expected in faults:
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(pathlib.Path(include_dir) / "attn", pathlib.Path(copy) / "attn")
            target = pathlib.Path(copy) / "attn" / header
            target.parent.mkdir(exist_ok=True)
            with target.open("a") as file:
                file.write(line + "\n")
            if not any(expected in error for error in errors_of(copy)[0]):
                missed.append(f"not reported: '{line}' in {header}")
    return missed, f"{len(faults)} planted faults, each reported"


def main(arguments):
    if arguments[:1] == ["--self-test"]:
        errors, good = self_test(arguments[1])
    else:
        errors, headers = errors_of(arguments[0])
        good = f"{headers} headers: layers and dependencies hold, no cycle, attn.hpp is complete"
    print("\n".join(errors) or good)
    return 1 if errors else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
