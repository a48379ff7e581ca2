"""Models of other frameworks, both ways: ONNX, and PIR programs of PaddlePaddle 3.

Each function runs the tool ``migrate`` of this package, so that the library does not depend on that of ONNX. What has
no counterpart is refused as :class:`millrace.UnimplementedError` with block, op and reason, and nothing is written.
"""

from __future__ import annotations

import json
import os
import subprocess

from . import _errors

# Exit codes of the tools (framework/base/exit_code.h); 3 is bad input of any kind.
_CLASSES = {2: _errors.UsageError, 3: _errors.InvalidDataError, 4: _errors.ExecutionError, 5: _errors.DistributedError,
            6: _errors.ResourceError, 7: _errors.UnimplementedError}


def _run(args: list[str]) -> str:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "migrate")
    try:
        done = subprocess.run([program, *args], capture_output=True, text=True, check=False)
    except OSError as error:
        raise _errors.NotFoundError(f"cannot start {program}: {error.strerror}") from error
    if done.returncode == 0:
        return done.stdout
    lines = done.stderr.strip().splitlines() or [f"migrate ended with {done.returncode}"]
    extra = {"hint": "", "note": []}
    for line in lines[1:]:
        word, _, text = line.strip().partition(": ")
        if word == "note":
            extra["note"].append(text)
        elif word == "hint":
            extra["hint"] = text
    kind = _CLASSES.get(done.returncode, _errors.InternalError)
    raise kind(lines[0].removeprefix("error: "), None, extra["hint"], extra["note"], done.stderr.strip())


def _flags(params_file, input_dims, replace) -> list[str]:
    flags = ["--params-file", params_file] if params_file else []
    for name, dims in (input_dims or {}).items():
        flags += ["--input-dims", f"{name}={','.join(str(int(dim)) for dim in dims)}"]
    return flags + (["--force"] if replace else [])


def report(folder: str | os.PathLike, *, opset: int = 17, input_dims: dict | None = None) -> dict:
    """Looks at every program below a folder: what it is, which release wrote it, whether it runs here, and whether it
    can be converted.

    :param opset: operator set of ONNX that conversions are tried for
    :param input_dims: dims of inputs instead of the declared ones, by name; -1 is unknown until run time
    :returns: the report of ``migrate --json``
    """
    return json.loads(_run(["--json", "--opset", str(opset), os.fspath(folder), *_flags(None, input_dims, False)]))


def to_onnx(model: str | os.PathLike, output: str | os.PathLike, *, opset: int = 17, params_file: str | None = None,
            input_dims: dict | None = None, replace: bool = False) -> None:
    """Writes a model folder, or a PIR program, as an ONNX file.

    :param opset: operator set, 17 to 21
    :param params_file: name of the combined parameter file beside the program; found by its name if not given
    :param input_dims: as for :func:`report`
    :param replace: an existing file is replaced
    """
    _run(["--to", "onnx", "--opset", str(opset), os.fspath(model), "-o", os.fspath(output),
          *_flags(params_file, input_dims, replace)])


def to_pir(model: str | os.PathLike, prefix: str | os.PathLike, *, fetch: list[str] | None = None,
           params_file: str | None = None, input_dims: dict | None = None, replace: bool = False) -> None:
    """Writes a model folder, a program file or an ONNX file as a PIR program: PREFIX.json and PREFIX.pdiparams.

    :param fetch: vars that the program returns; by default those of its fetch ops, else its losses
    :param params_file, input_dims, replace: as for :func:`to_onnx`
    """
    fetches = [flag for name in fetch or [] for flag in ("--fetch", name)]
    _run(["--to", "pir", os.fspath(model), "-o", os.fspath(prefix), *fetches, *_flags(params_file, input_dims, replace)])


def to_program(model: str | os.PathLike, folder: str | os.PathLike, *, params_file: str | None = None,
               input_dims: dict | None = None, replace: bool = False) -> None:
    """Writes an ONNX file or a PIR program as ``__model__`` and ``__params__``, which :class:`millrace.Session` opens.

    :param params_file, input_dims, replace: as for :func:`to_onnx`
    """
    _run(["--to", "program", os.fspath(model), "-o", os.fspath(folder), *_flags(params_file, input_dims, replace)])


__all__ = ["report", "to_onnx", "to_pir", "to_program"]
