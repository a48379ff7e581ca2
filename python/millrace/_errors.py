"""Errors of the library as exceptions: one class for each status code."""

from __future__ import annotations


class Error(Exception):
    """An error of millrace.

    Attributes:
        code: the status code in words, such as ``"invalid-program"``.
        message: what went wrong, in one line.
        location: where: a dict with some of ``file``, ``block``, ``op``, ``op_type``, ``slot``, ``slot_index``,
            ``attr``, ``var`` and ``source`` (the line of Python that created the op).
        hint: what can be done about it; may be empty.
        notes: further facts, one line each.
    """

    code = "error"

    def __init__(self, message: str, location: dict | None = None, hint: str = "", notes: list[str] | None = None,
                 text: str = ""):
        super().__init__(message)
        self.message = message
        self.location = location or {}
        self.hint = hint
        self.notes = notes or []
        self._text = text

    def __str__(self) -> str:
        return self._text.removeprefix("error: ").rstrip("\n") or self.message

    def __reduce__(self):
        return type(self), (self.message, self.location, self.hint, self.notes, self._text)


class UsageError(Error, ValueError):
    """Arguments that do not belong together, or files that exist and were not to be replaced."""

    code = "usage"


class InvalidArgumentError(Error, ValueError):
    """An argument or a field of options has a bad value."""

    code = "invalid-argument"


class InvalidProgramError(Error, ValueError):
    """A program breaks a rule of the format or of an op."""

    code = "invalid-program"


class InvalidDataError(Error, ValueError):
    """Parameters, feeds, checkpoints or text that cannot be read."""

    code = "invalid-data"


class NotFoundError(Error, LookupError):
    """A file or a named thing does not exist."""

    code = "not-found"


class IoError(Error, OSError):
    """The operating system refused to read or write."""

    code = "io"

    # OSError would take two and more arguments for errno and strerror.
    def __new__(cls, message, *args, **kwargs):
        return OSError.__new__(cls, message)


class ExecutionError(Error, RuntimeError):
    """An op failed while a program ran."""

    code = "execution"


class DistributedError(Error, RuntimeError):
    """A peer was lost, or a deadline passed; another try may succeed."""

    code = "distributed"


class ResourceError(Error, MemoryError):
    """Memory, disk or a stated limit is exhausted."""

    code = "resource"


class UnimplementedError(Error, NotImplementedError):
    """A valid request that this build does not support."""

    code = "unimplemented"


class InternalError(Error, RuntimeError):
    """A bug in millrace."""

    code = "internal"


for _cls in (Error, *Error.__subclasses__()):
    _cls.__module__ = "millrace"
_CLASSES = {cls.code: cls for cls in Error.__subclasses__()}


def exception_of(code: str, message: str, location: dict, hint: str, notes: list[str], text: str) -> Error:
    """Called by the extension for every error. ``text`` has all of it in lines."""
    return _CLASSES[code](message, location, hint, notes, text)
