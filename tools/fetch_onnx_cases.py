#!/usr/bin/env python3
"""Lays out ONNX's own operator cases in a folder (default .cache/onnx-cases), for the conformance program.

    python3 tools/fetch_onnx_cases.py [DIR]

The PyPI package onnx (Apache-2.0) generates them: it is installed with pip into a temporary folder and removed again.
DIR gets a manifest.json (operator, attributes, and role, type and file of each tensor, per case) and a folder per case
with a .npy file per tensor; bfloat16 is stored as uint16 bits. What is already there and complete is kept. Needs
Python 3.10 and its pip. Exit code: 0 when the folder is complete, 1 with a message otherwise, within 5 minutes.
"""
import argparse
import importlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

VERSION = "1.23.2"
OPERATORS = ["Attention", "Gelu", "Gemm", "LayerNormalization", "LogSoftmax", "MeanVarianceNormalization",
             "RMSNormalization", "RotaryEmbedding", "Softmax", "SwiGLU", "Swish",
             "TensorScatter"]


def is_complete(out):
    try:
        manifest = json.loads((out / "manifest.json").read_text())
    except (OSError, ValueError):
        return False
    return manifest.get("onnx") == VERSION and manifest.get("operators") == OPERATORS


def install(folder):
    """Fails soon where there is no package index."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input",
               "--root-user-action", "ignore", "--retries", "1", "--timeout", "10", "--target", folder,
               f"onnx=={VERSION}"]
    print("running", " ".join(command), flush=True)
    try:
        code = subprocess.run(command, check=False, timeout=300).returncode
    except subprocess.TimeoutExpired:
        sys.exit(f"fetch_onnx_cases: pip did not install onnx {VERSION} within 5 minutes")
    if code != 0:
        sys.exit(f"fetch_onnx_cases: pip could not install onnx {VERSION} (its message is above)")


def attribute_value(onnx, attribute):
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    return list(value) if attribute.type >= onnx.AttributeProto.FLOATS else value


def write_tensors(onnx, numpy, folder, kind, names, formal, values):
    """Writes the tensors that a case has, and returns their entries; an empty name is an optional one left out."""
    present = [(index, name) for index, name in enumerate(names) if name]
    entries = []
    for (index, _), value in zip(present, values):
        if isinstance(value, onnx.TensorProto):
            value = onnx.numpy_helper.to_array(value)
        value = numpy.asarray(value, order="C")
        role = formal[index].name
        dtype, file = str(value.dtype), f"{kind}_{index}_{role}.npy"
        numpy.save(folder / file, value.view(numpy.uint16) if dtype == "bfloat16" else value)
        entries.append({"role": role, "dtype": dtype, "shape": list(value.shape), "file": file})
    return entries


def write_case(onnx, numpy, out, case):
    node = case.model.graph.node[0]
    opset = next(entry.version for entry in case.model.opset_import if entry.domain == node.domain)
    schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    inputs, outputs = case.data_sets[0]
    (out / case.name).mkdir()
    return {
        "name": case.name, "op": node.op_type, "opset": opset, "rtol": case.rtol, "atol": case.atol,
        "attributes": {a.name: attribute_value(onnx, a) for a in node.attribute},
        "inputs": write_tensors(onnx, numpy, out / case.name, "in", node.input, schema.inputs, inputs),
        "outputs": write_tensors(onnx, numpy, out / case.name, "out", node.output, schema.outputs, outputs),
    }


def generate(package, out):
    sys.path.insert(0, package)
    numpy = importlib.import_module("numpy")
    onnx = importlib.import_module("onnx")
    loader = importlib.import_module("onnx.backend.test.loader")
    with warnings.catch_warnings():  # of the other operators' cases
        warnings.simplefilter("ignore")
        cases = loader.load_model_tests(kind="node")
    # A case in which the operator is expanded into others has more nodes, or other ones.
    chosen = [case for case in cases
              if len(case.model.graph.node) == 1 and case.model.graph.node[0].op_type in OPERATORS]
    entries = [write_case(onnx, numpy, out, case) for case in sorted(chosen, key=lambda case: case.name)]
    manifest = {"onnx": onnx.__version__, "numpy": numpy.__version__, "operators": OPERATORS, "cases": entries}
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return len(entries)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("out", nargs="?", type=pathlib.Path, metavar="DIR",
                         default=pathlib.Path(__file__).resolve().parent.parent / ".cache" / "onnx-cases")
    out = options.parse_args().out
    if is_complete(out):
        print(f"{out}: the cases of onnx {VERSION} are complete")
        return
    part = out.with_name(out.name + ".part")
    with tempfile.TemporaryDirectory(prefix="onnx-") as package:
        install(package)
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        count = generate(package, part)
    shutil.rmtree(out, ignore_errors=True)
    part.rename(out)
    print(f"{out}: {count} cases of onnx {VERSION}")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"fetch_onnx_cases: {error}")
