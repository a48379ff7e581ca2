#!/usr/bin/env python3
"""Opens files that `checkpoint` writes with the public safetensors library, and vice versa.

    safetensors_files.py --bin DIR

Data files of a checkpoint and converted files must open there with the same names, shapes and values; a file written by
the library must convert to npz with the same values. Exit status: 0 all equal, 1 some not, 77 no library.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file
except ImportError:
    print("no safetensors library")
    sys.exit(77)

TYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default=os.environ.get("MILLRACE_BIN_DIR", "build/dev/tools"))
    tool = os.path.join(parser.parse_args().bin, "checkpoint")
    passed, failed = 0, 0

    def check(holds, what):
        nonlocal passed, failed
        passed, failed = passed + bool(holds), failed + (not holds)
        print(f"{'ok  ' if holds else 'FAIL'} {what}")

    def same(a, b):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()

    random = np.random.default_rng(5)
    arrays = {f"t/{t}": (random.random((3, 5)) * 100).astype(t) for t in TYPES}
    arrays.update({"scalar": np.array(3.5, np.float32), "empty": np.zeros((0, 4), np.float32),
                   "odd": np.arange(7, dtype=np.uint8), "wide": np.arange(40000, dtype=np.float32).reshape(200, 200)})
    complex128 = np.array([[1 + 2j, 3 - 4j]], np.complex128)
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        run = lambda *words: subprocess.run([tool, *words, "-q"], check=True)
        np.savez(at("z.npz"), z=complex128, **{"a.0": np.zeros(2, np.float32), "a.length": np.array(2)})
        run("convert", at("z.npz"), "--to", "safetensors", "-o", at("z.safetensors"))
        z = load_file(at("z.safetensors"))
        check(set(z) == {"z", "a[0]"} and same(z["z"], complex128.view(np.float64).reshape(1, 2, 2)),
              "complex128 opens as float64 with one axis more, an array as its elements")
        np.savez(at("in.npz"), **arrays)
        run("convert", at("in.npz"), "--to", "safetensors", "-o", at("out.safetensors"))
        read = load_file(at("out.safetensors"))
        check(set(read) == set(arrays), "a converted file has the same names")
        for name, array in arrays.items():
            check(name in read and same(read[name], array), f"{name} reads the same")
        save_file(arrays, at("theirs.safetensors"), metadata={"note": "x"})
        run("convert", at("theirs.safetensors"), "--to", "npz", "-o", at("back.npz"))
        back = np.load(at("back.npz"))
        for name, array in arrays.items():
            check(name in back.files and same(back[name], array), f"{name} comes back from a file of the library")
        check(subprocess.run([tool, "verify", at("theirs.safetensors"), "-q"]).returncode == 0, "verify takes it")
        run("convert", at("in.npz"), "--to", "checkpoint", "-o", at("c"))
        run("reshard", at("c"), "--ranks", "3", "--cut-whole", "-o", at("c3"))
        parts = {}
        with open(at("c3/manifest.json"), encoding="utf-8") as f:
            manifest = json.load(f)
        for file in manifest["files"]:
            with safe_open(at(os.path.join("c3", file["name"])), "np") as opened:
                parts.update({key: opened.get_tensor(key) for key in opened.keys()})
        wide = np.concatenate([parts[f"wide#{offset}_0"] for offset in (0, 67, 134)])
        check(same(wide, arrays["wide"]), "data files of a checkpoint of three ranks open")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
