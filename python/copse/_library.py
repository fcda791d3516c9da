"""libcopse by ctypes: where it is, its functions' types, and errors as exceptions.

ctypes lets go of the GIL for the length of each call.
"""
from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from ctypes import (CFUNCTYPE, POINTER, byref, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint,
                    c_void_p)
from fractions import Fraction
from typing import Any, List, Optional, Type, TypeVar

_NATIVE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_native")


class Error(Exception):
    """What libcopse refuses, or what fails: its text in one line.

    status: the number of copse_status in copse/copse.h, such as 3; name: that in words, such as
    "bad input".
    """

    def __init__(self, text: str, status: int, name: str) -> None:
        super().__init__(text)
        self.status = status
        self.name = name

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.status, self.name)


class Refuted(Error):
    """A check ran to its end and failed: the text names the first defect."""


class Invalid(Error, ValueError):
    """An argument makes no sense."""


class BadInput(Error, ValueError):
    """The content of a file is wrong: the text names the place."""


class FileError(Error, OSError):
    """A file can't be opened, read or written."""

    def __str__(self) -> str:
        return str(self.args[0])


class Infeasible(Error):
    """The problem has no solution: the text names a rank that can't be reached."""


class Overflow(Error, OverflowError):
    """Exact arithmetic would leave 64 bits."""


class OutOfMemory(Error, MemoryError):
    """Memory or another resource ran out."""


class Unsupported(Error, NotImplementedError):
    """Valid, and not covered by this version."""


_CLASSES = {1: Refuted, 2: Invalid, 3: BadInput, 4: FileError, 5: Infeasible, 6: Overflow,
            7: OutOfMemory, 8: Unsupported}
for _class in [Error, *_CLASSES.values()]:
    _class.__module__ = "copse"  # as users name them


class LinkLoad(ctypes.Structure):
    """copse_link_load."""

    _fields_ = [("src", c_char_p), ("dst", c_char_p), ("load_num", c_int64), ("load_den", c_int64),
                ("time_num", c_int64), ("time_den", c_int64)]


class FaultAt(ctypes.Structure):
    """copse_fault_at."""

    _fields_ = [("what", c_char_p), ("left_num", c_int64), ("left_den", c_int64)]


#: A function that is called with progress: context, phase, done, total.
PROGRESS = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_int64, c_int64)


class Request(ctypes.Structure):
    """copse_request."""

    _fields_ = [("size", ctypes.c_size_t), ("collective", c_int), ("root", c_int), ("k", c_int64),
                ("tolerance_num", c_int64), ("tolerance_den", c_int64),
                ("objective_bytes", c_double), ("alpha_us", c_double),
                ("progress", PROGRESS), ("progress_ctx", c_void_p),
                ("demand", POINTER(c_int64)), ("no_forward", c_int), ("on_routes", c_int),
                ("in_network", c_int)]


_HANDLE, _OUT, _TEXT = c_void_p, POINTER(c_void_p), POINTER(c_void_p)
_STATUS = c_int
# name: (types of arguments, what it returns)
_FUNCTIONS = {
    "copse_status_string": ([c_int], c_char_p),
    "copse_version": ([], c_char_p),
    "copse_last_error": ([], c_char_p),
    "copse_string_free": ([c_void_p], None),
    "copse_topology_read": ([c_char_p, c_char_p, _OUT], _STATUS),
    "copse_topology_named": ([c_char_p, c_char_p, c_char_p, _OUT], _STATUS),
    "copse_topology_names": ([c_char_p, _TEXT], _STATUS),
    "copse_topology_generate": ([c_char_p, _OUT], _STATUS),
    "copse_topology_ranks": ([_HANDLE], c_int),
    "copse_topology_json": ([_HANDLE, _TEXT], _STATUS),
    "copse_topology_change": ([_HANDLE, POINTER(FaultAt), c_int, c_char_p, c_int, _OUT], _STATUS),
    "copse_solve_request": ([_HANDLE, POINTER(Request), _OUT], _STATUS),
    "copse_schedule_read": ([c_char_p, _OUT], _STATUS),
    "copse_schedule_write": ([_HANDLE, c_char_p], _STATUS),
    "copse_schedule_json": ([_HANDLE, c_int, _TEXT], _STATUS),
    "copse_schedule_verify": ([_HANDLE, _HANDLE, POINTER(c_int)], _STATUS),
    "copse_schedule_link_loads": ([_HANDLE, _HANDLE, POINTER(LinkLoad), c_int64, POINTER(c_int64)],
                                  _STATUS),
    "copse_schedule_time": ([_HANDLE, POINTER(c_int64), POINTER(c_int64)], None),
    "copse_lower": ([_HANDLE, c_int, _OUT], _STATUS),
    "copse_plan_load": ([c_char_p, _OUT], _STATUS),
    "copse_plan_write": ([_HANDLE, c_char_p], _STATUS),
    "copse_plan_check": ([_HANDLE], _STATUS),
    "copse_plan_predict": ([_HANDLE, _HANDLE, POINTER(c_double), c_int, POINTER(c_double)], _STATUS),
}


ALL_GATHER = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t)


class Bootstrap(ctypes.Structure):
    """copse_bootstrap."""

    _fields_ = [("all_gather", ALL_GATHER), ("context", c_void_p)]


class Wire(ctypes.Structure):
    """copse_wire: libcopse-ucx fills in all of its fields."""

    _fields_ = [
        ("context", c_void_p), ("n_ranks", c_int), ("rank", c_int), ("most_tag", c_uint),
        ("send", CFUNCTYPE(c_int, c_void_p, c_int, c_uint, c_void_p, c_size_t, POINTER(c_void_p))),
        ("next", CFUNCTYPE(c_int, c_void_p, POINTER(c_int), POINTER(c_uint), POINTER(c_size_t),
                           POINTER(c_void_p))),
        ("receive", CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t, POINTER(c_void_p))),
        ("test", CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(c_int))),
        ("why", CFUNCTYPE(c_char_p, c_void_p)),
        ("end", CFUNCTYPE(None, c_void_p, c_int)),
        ("wait", CFUNCTYPE(None, c_void_p, c_uint)),
        ("flush", CFUNCTYPE(c_int, c_void_p, POINTER(c_int)))]


def _load() -> ctypes.CDLL:
    own = os.environ.get("COPSE_LIBRARY")
    beside = os.path.join(_NATIVE, "lib", "libcopse.so.0")
    path = own or (beside if os.path.exists(beside) else "libcopse.so.0")
    try:
        library = ctypes.CDLL(path)
        for name, (arguments, result) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes = arguments
            function.restype = result
        for name in ("topology", "schedule", "plan"):
            free = getattr(library, "copse_%s_free" % name)
            free.argtypes, free.restype = [c_void_p], None
    except (OSError, AttributeError) as why:
        raise ImportError("copse: %s: %s; build libcopse (make) and name it in COPSE_LIBRARY, or "
                          "install what libcopse needs: libcjson1 libxml2 libgmp10 libmd0 zlib1g "
                          "libglpk40" % (path, why)) from None
    return library


LIBRARY = _load()


def call(name: str, *arguments: Any) -> None:
    """Calls a function that returns a copse_status; raises its error."""
    status = getattr(LIBRARY, name)(*arguments)
    if status:
        words = LIBRARY.copse_status_string(status).decode()
        text = LIBRARY.copse_last_error().decode("utf-8", "replace")
        raise _CLASSES.get(status, Error)(text or words, status, words)


def encode(path: Any) -> bytes:
    """A path, or another text, as the bytes of a C string."""
    name = os.fsencode(path)
    if b"\0" in name:
        raise Invalid("a path or name holds a NUL character", 2, "invalid argument")
    return name


_Made = TypeVar("_Made", bound="Owner")


class Owner:
    """A handle of libcopse, freed with its object. Immutable: threads may share it."""

    _kind = ""
    _handle: Optional[c_void_p]

    def __init__(self) -> None:
        raise TypeError("%s objects are made by the functions of copse" % type(self).__name__)

    @classmethod
    def _made_by(cls: Type[_Made], name: str, *arguments: Any) -> _Made:
        handle = c_void_p()
        call(name, *arguments, byref(handle))
        made = cls.__new__(cls)
        made._handle = handle
        return made

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle and LIBRARY is not None:
            getattr(LIBRARY, "copse_%s_free" % self._kind)(handle)
            self._handle = None


def text_of(name: str, *arguments: Any) -> str:
    """The text that a function makes in its last argument."""
    made = c_void_p()
    call(name, *arguments, byref(made))
    try:
        return ctypes.string_at(made).decode("utf-8", "surrogateescape")
    finally:
        LIBRARY.copse_string_free(made)


def fraction(value: Any) -> Fraction:
    """A number of copse's JSON, a decimal or "p/q", exactly."""
    return Fraction(value)


def catalogue() -> str:
    """The folder of the catalogue: COPSE_TOPOLOGIES, or the wheel's own."""
    return os.environ.get("COPSE_TOPOLOGIES") or os.path.join(_NATIVE, "share", "copse",
                                                              "topologies")


def command() -> str:
    """The program: COPSE_BIN, the wheel's own, or what the PATH has."""
    own = os.environ.get("COPSE_BIN") and os.path.abspath(os.environ["COPSE_BIN"])
    beside = os.path.join(_NATIVE, "bin", "copse")
    return own or (beside if os.path.exists(beside) else "copse")


#: The number of copse_status by the program's exit status.
_EXITS = {1: 1, 2: 2, 3: 5}


def run(arguments: List[str], given: str, folder: str) -> None:
    """Runs the program in a folder, with `given` as its standard input; raises what it refuses."""
    try:
        done = subprocess.run([command()] + arguments, cwd=folder, input=given.encode("utf-8", "surrogateescape"),
                              check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except OSError as why:
        raise FileError("%s: %s" % (command(), why.strerror), 4, "file error") from None
    if done.returncode:
        status = _EXITS.get(done.returncode, 9)
        text = done.stderr.decode("utf-8", "replace").strip().split("\n")[-1]
        words = LIBRARY.copse_status_string(status).decode()
        raise _CLASSES.get(status, Error)(text[text.startswith("copse: ") and 7:] or words, status,
                                          words)


def drawing(arguments: List[str], **files: str) -> Optional[str]:
    """What the program draws; a word "{name}" is the path of the file of that name and text. None
    where it can't."""
    with tempfile.TemporaryDirectory(prefix="copse-") as folder:
        paths = {name: os.path.join(folder, name) for name in files}
        try:
            for name, text in files.items():
                with open(paths[name], "wb") as file:
                    file.write(text.encode("utf-8", "surrogateescape"))
            words = [word.format(**paths) for word in arguments]
            done = subprocess.run([command()] + words + ["--draw", "-"], check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        except OSError:
            return None
    return done.stdout.decode() if done.returncode == 0 and done.stdout else None
