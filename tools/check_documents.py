#!/usr/bin/env python3
"""Checks the documents against the project: code compiles, programs end well, linked files exist.

usage: check_documents.py PROJECT_DIR COMPILER [FLAGS...]

In README.md, CONTRIBUTING.md and docs/*.md, each block marked cpp that has an #include is compiled: as it stands, or
else its lines after the last #include as the body of a function. A block with a main() is also run and must return 0,
except where the machine cannot run what the compiler makes. Blocks without an #include are fragments and only counted.
Every relative link must lead to a file.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

CODE = re.compile(r"^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANY_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)  # a lambda in it looks like a link
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def sources_of(document, line, code):
    """The ways in which a block may be meant."""
    place = f'#line {line} "{document}"\n'
    yield place + code
    split = code.index("\n", code.rindex("#include")) + 1
    yield place + code[:split] + f"void document() {{\n#line {line + code[:split].count(chr(10))}\n" + code[split:] + "}\n"


def run_program(document, line, code, compiler):
    """What is wrong with a block that is a whole program; empty if nothing is."""
    with tempfile.TemporaryDirectory() as directory:
        program = f"{directory}/program"
        source = next(sources_of(document, line, code))
        build = subprocess.run([*compiler, "-x", "c++", "-", "-o", program], input=source, capture_output=True, text=True)
        if build.returncode != 0:
            return build.stderr
        try:
            run = subprocess.run([program], capture_output=True, text=True)
        except OSError:  # built for another machine
            return ""
        return f"{document}:{line}: the program returns {run.returncode}" if run.returncode != 0 else ""


def check_code(document, text, compiler):
    errors, compiled, fragments = [], 0, 0
    command = [*compiler, "-x", "c++", "-fsyntax-only", "-"]
    for block in CODE.finditer(text):
        if "#include" not in block[1]:
            fragments += 1
            continue
        compiled += 1
        line = text[:block.start()].count("\n") + 2
        if "int main(" in block[1]:
            errors += filter(None, [run_program(document, line, block[1], compiler)])
            continue
        for source in sources_of(document, line, block[1]):
            run = subprocess.run(command, input=source, capture_output=True, text=True)
            if run.returncode == 0:
                break
        else:
            errors.append(run.stderr)
    return errors, compiled, fragments


def main(project, compiler):
    root = pathlib.Path(project)
    documents = [d for d in (root / "README.md", root / "CONTRIBUTING.md", *sorted(root.glob("docs/*.md"))) if d.exists()]
    errors, compiled, fragments = [], 0, 0
    for document in documents:
        text = document.read_text()
        found, blocks, pieces = check_code(document.resolve(), text, compiler)
        errors += found
        compiled += blocks
        fragments += pieces
        errors += [f"{document.relative_to(root)}: there is no {link}" for link in LINK.findall(ANY_CODE.sub("", text))
                   if not (document.parent / link).exists()]
    print("\n".join(errors) or f"{len(documents)} documents: {compiled} blocks of code compile, {fragments} are fragments")
    return 1 if errors else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
