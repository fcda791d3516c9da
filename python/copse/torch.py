"""copse as a backend of torch.distributed, for tensors on CPUs.

    import copse.torch
    torch.distributed.init_process_group("copse")      # or "cpu:copse,cuda:copse"

Each group has a communicator of copse (copse/comm.h) over UCX, found through the group's store. All
collectives of c10d run plans that `copse plans` has solved and proved for the group's ranks:

    what                              how
    -------------------------------   ---------------------------------------------------------
    all_reduce, all_gather,           the plan of that name; in place where copse does
    reduce_scatter, broadcast,
    reduce, all_to_all
    gather, scatter, uneven           an all-to-all of uneven blocks, over the same plan; the sizes
    all_to_all                        of uneven ones are gathered before
    bitwise reductions, types that    gathered by a plan and folded here, in the order of ranks
    copse does not add; sparse
    send, recv                        messages of a wire of their own (copse/wire.h)

The order of every reduction is the plan's: the same bits in every run. Tensors on GPUs go through
the host's memory.

Environment. COPSE_TOPOLOGY: a file, a name of the catalogue or a synthetic line, whose ranks are the
world's; a sub-group's plans are for its ranks alone, the others forward. Without it: all ranks of a
host at one switch, hosts joined by links of the speed that messages between them have. It is measured
once and kept. COPSE_SAME_BITS=1: plans as if all ranks were on one host, so that results have the same
bits on any number of hosts (a COPSE_TOPOLOGY gives that too: what it names decides, not where ranks
are). COPSE_GROUPS: a file of groups that run at the same time, as `copse solve --groups` takes it, with
numbers of ranks; with COPSE_TOPOLOGY. Their plans for long messages are then solved together.
COPSE_CACHE: a folder for plans (default ~/.cache/copse), kept by topology, ranks and version, and for
speeds, by the hosts' names. All ranks must have the same settings.

Errors are torch.distributed.DistBackendError with copse's text, which names the rank that is dead or
calls something else, within the group's timeout. Afterwards the group can only be destroyed.
"""
from __future__ import annotations

import atexit
import ctypes
import hashlib
import json
import os
import queue
import re
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import weakref
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_size_t, c_uint, c_void_p
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work as _BaseWork
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from . import _library, version

_ERROR = getattr(dist, "DistBackendError", RuntimeError)

# ---- the C API ---------------------------------------------------------------------------------

_P, _N = c_void_p, c_size_t
_COMM_FUNCTIONS = {
    "copse_comm_init_wire": [POINTER(_P), POINTER(_library.Wire), c_double],
    "copse_comm_destroy": [_P],
    "copse_comm_abort": [_P],
    "copse_comm_set_timeout": [_P, c_double],
    "copse_comm_load_plans": [_P, c_char_p, POINTER(c_int)],
    "copse_all_reduce": [_P, _P, _N, c_int, c_int, _P, _P],
    "copse_all_gather": [_P, _P, _N, c_int, _P, _P],
    "copse_reduce_scatter": [_P, _P, _N, c_int, c_int, _P, _P],
    "copse_broadcast": [_P, _P, _N, c_int, c_int, _P, _P],
    "copse_reduce": [_P, _P, _N, c_int, c_int, c_int, _P, _P],
    "copse_all_to_all": [_P, _P, _N, c_int, _P, _P],
    "copse_all_to_all_v": [_P, _P, _N, _P, c_int, _P, _P],
}


def _load_wire() -> ctypes.CDLL:
    os.environ.setdefault("UCX_LOG_LEVEL", "fatal")  # of dead peers copse tells
    os.environ.setdefault("UCX_HANDLE_ERRORS", "none")
    folder = os.path.dirname(_library.LIBRARY._name)
    beside = os.path.join(folder, "libcopse-ucx.so")
    path = beside + ".0" if os.path.exists(beside + ".0") else beside
    try:
        wire = ctypes.CDLL(path if os.path.exists(path) else "libcopse-ucx.so.0")
    except OSError as why:
        raise ImportError("copse.torch: %s; build copse where libucx-dev is installed" % why) from None
    for name, types in _COMM_FUNCTIONS.items():
        function = getattr(_library.LIBRARY, name)
        function.argtypes, function.restype = types, c_int
    wire.copse_wire_new_ucx.argtypes = [c_int, c_int, POINTER(_library.Bootstrap), POINTER(_library.Wire)]
    wire.copse_wire_new_ucx.restype = c_int
    return wire


_UCX = _load_wire()

#: copse_type by dtype; the others can be moved, and sums are made here.
_TYPES = {torch.int8: 0, torch.uint8: 1, torch.int32: 2, torch.uint32: 3, torch.int64: 4,
          torch.uint64: 5, torch.float16: 6, torch.float32: 7, torch.float64: 8, torch.bfloat16: 9,
          torch.bool: 1, torch.float8_e4m3fn: 10, torch.float8_e5m2: 11}
_BYTE = 0
#: Of each copse_type its bytes; and the one that other types of these bytes are moved as.
_WIDTHS = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
_MOVED_AS = {2: 6, 4: 3, 8: 5}
_Op = dist.ReduceOp.RedOpType
_OPS = {_Op.SUM: 0, _Op.PRODUCT: 1, _Op.MAX: 2, _Op.MIN: 3, _Op.AVG: 4}
#: Of truth values: or, and.
_BOOL_OPS = {_Op.SUM: 2, _Op.BOR: 2, _Op.MAX: 2, _Op.PRODUCT: 3, _Op.BAND: 3, _Op.MIN: 3}
_FOLDS: Dict[Any, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    _Op.SUM: torch.Tensor.add_, _Op.PRODUCT: torch.Tensor.mul_, _Op.AVG: torch.Tensor.add_,
    _Op.MAX: lambda a, b: torch.maximum(a, b, out=a),
    _Op.MIN: lambda a, b: torch.minimum(a, b, out=a), _Op.BAND: torch.Tensor.bitwise_and_,
    _Op.BOR: torch.Tensor.bitwise_or_, _Op.BXOR: torch.Tensor.bitwise_xor_}


#: Values of copse_status after which a communicator is broken.
_REFUTED, _DEVICE, _TIMEOUT, _ABORTED = 1, 10, 11, 12


def _failure(text: str, status: int) -> Exception:
    error: Exception = _ERROR(text)
    error.copse_status = status  # type: ignore[attr-defined]
    return error


def _kind(op: Any) -> Any:
    """The RedOpType of a ReduceOp, in all versions of PyTorch."""
    return op if isinstance(op, _Op) else _Op(getattr(op, "op", op))


# ---- plans -------------------------------------------------------------------------------------

_COLLECTIVES = ("allreduce", "allgather", "reduce_scatter", "alltoall")
#: All workers of a rank share a thread.
_WORKERS = ("-w", "4", "-I", "1")


#: Bytes of a message that measures a link, and how many follow each other.
_PROBE, _TRAIN = 1 << 20, 5
#: Such trains follow until so many in a row have improved no link's best by 5 %, or there were so many.
_STEADY, _MOST_PROBES = 3, 25
#: How often a message of a byte goes to and fro.
_PINGS = 100
#: Hosts whose speeds differ by less count as equal: busy hosts measure no better.
_ALIKE = 1.25
#: GB/s of a host's network link and between its ranks, and microseconds that a message takes to others,
#: by host, as measured in this process's groups.
_SPEEDS: Dict[str, List[float]] = {}


def _cache() -> str:
    return os.environ.get("COPSE_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "copse")


class _Speeds:
    """The speeds of a group's hosts: measured once, then kept in the cache by the hosts' names."""

    def __init__(self, group: "ProcessGroupCopse", hosts: List[str]) -> None:
        self._group = group
        self._hosts = hosts  # by rank
        self._names = list(dict.fromkeys(hosts))
        key = hashlib.sha256("\n".join(self._names).encode()).hexdigest()
        self._path = os.path.join(_cache(), "speeds", key + ".json")

    def get(self) -> List[List[float]]:
        """Of each host, in the order of their first ranks. The same at all ranks: rank 0's."""
        said = self._group.exchange(json.dumps(self._known()) if self._group.rank() == 0 else "")[0]
        known = json.loads(said)
        if known is None:
            known = self._measure()
            if self._group.rank() == 0:
                self._keep(known)
        _SPEEDS.update(zip(self._names, known))
        return known

    def _known(self) -> Optional[List[List[float]]]:
        if all(name in _SPEEDS for name in self._names):
            return [_SPEEDS[name] for name in self._names]
        try:
            with open(self._path) as text:
                kept = json.load(text)["GB/s outside, GB/s inside, us"]
            known = [[float(x) for x in kept[name]] for name in self._names]
            return known if all(len(k) == 3 and min(k) > 0 for k in known) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _keep(self, known: List[List[float]]) -> None:
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(self._path),
                                             delete=False) as text:
                json.dump({"GB/s outside, GB/s inside, us": dict(zip(self._names, known))}, text)
            os.replace(text.name, self._path)
        except OSError:
            pass  # the next job measures again

    def _measure(self) -> List[List[float]]:
        """Hosts at distance 1, 2, 4, ... send to each other at once, and then neighbours in a host."""
        ranks = [[r for r, h in enumerate(self._hosts) if h == name] for name in self._names]
        n = len(ranks)
        inward, outward = [0.0] * n, [0.0] * n
        us = self._way(ranks[0][0], ranks[-1][0])
        shift = 1
        while shift < n:
            pairs = {ranks[h][0]: ranks[(h + shift) % n][0] for h in range(n)}
            rates = self._rates(pairs)
            for h in range(n):
                inward[h] = max(inward[h], rates[ranks[h][0]])
                outward[h] = max(outward[h], rates[pairs[ranks[h][0]]])
            shift *= 2
        pairs = {r: here[(i + 1) % len(here)] for here in ranks for i, r in enumerate(here)
                 if len(here) > 1}
        rates = self._rates(pairs)
        outside, inside = [], []
        for here, *ways in zip(ranks, inward, outward):
            # a switch forwards what it gets, so one number is for both ways; the link of a rank that
            # is alone on its host is never the narrowest
            outside.append(min(ways))
            inside.append(min(rates[r] for r in here) if len(here) > 1 else 10 * max(ways))
        return [[float("%.2g" % o), float("%.2g" % i), us]
                for o, i in zip(_alike(outside), _alike(inside))]

    def _way(self, first: int, last: int) -> float:
        """Microseconds that a byte takes from one rank to another. Collective."""
        group, me = self._group, self._group.rank()
        trips = [0.0]
        if me in (first, last):
            wire = group._messages  # its thread has not begun yet
            assert wire is not None
            other = first + last - me
            trips = []
            for _ in range(_PINGS):
                begun = time.monotonic()
                if me == first:
                    wire.pass_byte(other)
                wire.catch_byte(other)
                if me == last:
                    wire.pass_byte(other)
                trips.append(time.monotonic() - begun)
        return float(group.exchange("%.2g" % (min(trips) / 2 * 1e6))[first])

    def _rates(self, to: Dict[int, int]) -> List[float]:
        """GB/s that each rank receives at, where rank r sends to to[r]: the best of some. Collective.

        The clock begins before the sender is asked to begin. So a busy core makes a rate too low, and
        nothing makes it too high.
        """
        group, me = self._group, self._group.rank()
        source = next((r for r, t in to.items() if t == me), None)
        out, into = torch.zeros(_PROBE, dtype=torch.uint8), torch.empty(_PROBE, dtype=torch.uint8)
        rates, best, steady = [0.0] * group.size(), 0.0, 0
        for _ in range(_MOST_PROBES):
            before = rates  # all begin together, and stop together
            rates = [float(x) for x in group.exchange("%.6g" % best)]
            grown = any(new > 1.05 * old for new, old in zip(rates, before))
            steady = 0 if grown else steady + 1
            if steady == _STEADY:
                break
            asked = [group.recv([into[:1]], to[me])] if me in to else []
            coming = [group.recv([into], source) for _ in range(_TRAIN)] if source is not None else []
            begun = time.monotonic()
            works = [group.send([out[:1]], source)] if source is not None else []
            for ask in asked:
                ask.wait()
                works += [group.send([out], to[me]) for _ in range(_TRAIN)]
            for work in coming:
                work.wait()
            if coming:
                best = max(best, _TRAIN * _PROBE / (time.monotonic() - begun) / 1e9)
            for work in works:
                work.wait()
        return rates


def _alike(speeds: List[float]) -> List[float]:
    """With the median of those that are within _ALIKE of their slowest in place of each."""
    order = sorted(range(len(speeds)), key=lambda i: speeds[i])
    found = list(speeds)
    while order:
        same = [i for i in order if speeds[i] <= _ALIKE * speeds[order[0]]]
        for i in same:
            found[i] = statistics.median(speeds[j] for j in same)
        order = order[len(same):]
    return found


def _found_topology(hosts: List[str], speeds: List[List[float]]) -> str:
    """Topology JSON of ranks at their hosts, with GB/s of each host's link and inside it."""
    names = list(dict.fromkeys(hosts))
    nodes: List[str] = ['{"id": "%d", "type": "gpu", "rank": %d}' % (r, r) for r in range(len(hosts))]
    links: List[str] = []
    line = '{"src": "%s", "dst": "%s", "bandwidth": %.6g}'
    for h, (name, (outside, inside, _)) in enumerate(zip(names, speeds)):
        nodes.append('{"id": "host%d", "type": "switch"}' % h)
        links += [line % (r, "host%d" % h, inside) for r, n in enumerate(hosts) if n == name]
        if len(names) > 1:
            links.append(line % ("host%d" % h, "network", outside))
    if len(names) > 1:
        nodes.append('{"id": "network", "type": "switch"}')
    return ('{"format": "copse-topology/1", "name": "%d ranks on %d hosts", "nodes": [%s], '
            '"links": [%s]}' % (len(hosts), len(names), ", ".join(nodes), ", ".join(links)))


def _groups_together() -> List[Tuple[str, List[int]]]:
    """Collective ("" for any) and sorted ranks of each line of COPSE_GROUPS, as new_group sorts them."""
    path, found = os.environ.get("COPSE_GROUPS"), []
    if not path:
        return []
    with open(path) as text:
        for number, line in enumerate(text, 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            try:
                ends = [[int(e) for e in part.split("-")] for part in words[-1].split(",")]
                ranks = [r for e in ends for r in range(e[0], e[-1] + 1)]
            except ValueError:
                raise _ERROR("copse: %s:%d: '%s' is no list of ranks, such as 0-3,8" % (
                    path, number, words[-1])) from None
            rooted = ":" in words[0]  # by its place in the list
            found.append((" ".join(words[:-1]), ranks if rooted else sorted(ranks)))
    return found


def _text_of(groups: List[Tuple[str, List[int]]]) -> str:
    return "".join("%s %s\n" % (what, ",".join(str(r) for r in ranks)) for what, ranks in groups)


class _Plans:
    """The folders of plans for a group, made by one rank of each host and kept."""

    def __init__(self, group: "ProcessGroupCopse", members: List[int]) -> None:
        self._group = group
        hosts = group.exchange(socket.gethostname())
        self._leader = hosts.index(hosts[group.rank()])
        given = os.environ.get("COPSE_TOPOLOGY")
        alike = os.environ.get("COPSE_SAME_BITS", "0") not in ("", "0")
        text = "" if given is None else self._read(given)
        self._members = members or list(range(group.size()))
        self._groups = _groups_together()
        self._agree(COPSE_TOPOLOGY=text, COPSE_SAME_BITS=str(alike), COPSE_GROUPS=str(self._groups))
        if all(ranks != self._members for _, ranks in self._groups):
            self._groups = []
        if self._groups and given is None:
            raise _ERROR("copse: COPSE_GROUPS needs COPSE_TOPOLOGY, the machine that the groups share")
        self._ranks: List[str] = []
        self._costs: List[str] = []
        if given is not None:
            self._text = text
            if members and members != list(range(dist.get_world_size())):
                self._ranks = ["--ranks", ",".join(str(r) for r in members)]
        elif alike or len(set(hosts)) == 1:
            self._text = _found_topology([""] * len(hosts), [[10.0, 10.0, 0.0]])
        else:
            speeds = _Speeds(group, hosts).get()
            self._text = _found_topology(hosts, speeds)
            # A hop of a plan has a message and an answer. All workers of a rank share a thread: a hop's
            # half for each message keeps their number low.
            us = max(us for _, _, us in speeds)
            self._costs = ["--alpha", "%.6g" % (2 * us), "--message", "%.6g" % us]

    def _agree(self, **settings: str) -> None:
        """Plans must be the same at all ranks: so must be what they are made from."""
        mine = {k: hashlib.sha256(v.encode()).hexdigest() for k, v in settings.items()}
        said = [json.loads(text) for text in self._group.exchange(json.dumps(mine))]
        for r, other in enumerate(said):
            for what, digest in other.items():
                if digest != said[0][what]:
                    raise _ERROR("copse: %s of rank %d is not that of rank 0" % (what, r))

    @staticmethod
    def _read(given: str) -> str:
        from . import Topology
        if os.path.exists(given):
            return Topology.read(given).json()
        made = Topology.synthetic(given) if ":" in given else Topology.catalogue(given)
        return made.json()

    def folder(self, *what: str) -> str:
        """The folder for `copse plans WHAT`; all ranks ask alike."""
        key = "\n".join((version(), self._text, *self._ranks, *self._costs, _text_of(self._groups), *what))
        name = hashlib.sha256(key.encode()).hexdigest()
        path = os.path.join(_cache(), "plans", name)
        group = self._group
        store, said = group.store, "plans/%s/%d" % (name, self._leader)
        if group.rank() != self._leader:
            try:
                why = bytes(store.get(said)).decode()
            except Exception as error:
                raise _failure("copse: no plans of %s from rank %d within the group's timeout: %s" % (
                    " ".join(what), self._leader, str(error).split("\n")[0]), _TIMEOUT) from None
        else:
            why = "" if os.path.isdir(path) else self._make(path, what)
            store.set(said, why or "ok")
        if why not in ("", "ok"):
            raise _ERROR("copse: no plans: %s" % why)
        return path

    def _make(self, path: str, what: Tuple[str, ...]) -> str:
        """Why not, or nothing."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        scratch = tempfile.mkdtemp(dir=os.path.dirname(path), prefix="new.")
        made = os.path.join(scratch, "plans")
        try:
            self._copse("plans", "-", *_WORKERS, "-o", made, *self._ranks, *self._costs, *what)
            if self._groups:
                self._join(made, scratch)
            try:
                os.rename(made, path)
            except OSError:
                if not os.path.isdir(path):  # else another job was faster
                    raise
            return ""
        except (OSError, _ERROR) as why:
            return str(why)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _copse(self, *arguments: str) -> None:
        done = subprocess.run([_library.command(), *arguments], input=self._text.encode(),
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            raise _ERROR(done.stderr.decode("utf-8", "replace").strip().split("\n")[-1])

    def _join(self, made: str, scratch: str) -> None:
        """In place of each plan for the longest messages that for this group beside the others."""
        index = os.path.join(made, "index.json")
        with open(index) as text:
            longest = [r for r in json.load(text)["ranges"] if r["max_bytes"] is None]
        for plan in longest:
            collective = plan["collective"]
            at = [i for i, (what, ranks) in enumerate(self._groups)
                  if what in ("", collective) and ranks == self._members]
            if collective not in _COLLECTIVES or not at:
                continue
            folder = os.path.join(scratch, collective)
            group = os.path.join(folder, "group-%d.json" % at[0])
            groups = os.path.join(scratch, "groups")
            with open(groups, "w") as text:
                text.write(_text_of(self._groups))
            self._copse("solve", "-", "-c", collective, "--groups", groups, "-o", folder)
            joint = os.path.join(made, plan["plan"])
            self._copse("lower", group, "--to", "plan", *_WORKERS, "--min-bytes",
                        str(plan["min_bytes"]), "-o", joint)
            self._copse("check", joint)
            os.replace(group, os.path.join(made, plan["schedule"]))
        os.remove(index)  # it tells of other plans


# ---- work --------------------------------------------------------------------------------------


class _Work(_BaseWork):
    """What a call returns: done when its future is."""

    def __init__(self, result: List[torch.Tensor], what: str, timeout: float) -> None:
        super().__init__()
        self._result = result
        self._what = what
        self._timeout = timeout
        self._done = threading.Event()
        self._error: Optional[BaseException] = None
        self._future: Optional[torch.futures.Future] = None
        self._lock = threading.Lock()
        self._source = -1

    def _finish(self, error: Optional[BaseException] = None) -> None:
        with self._lock:
            self._error = error
            self._done.set()
            first = self._future
        if first is not None:
            first[0].set_result(self._result)

    def is_completed(self) -> bool:
        return self._done.is_set()

    def is_success(self) -> bool:
        return self._done.is_set() and self._error is None

    def exception(self) -> Optional[BaseException]:
        return self._error

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        seconds = timeout.total_seconds() if timeout else 0
        if not self._done.wait(seconds if seconds > 0 else None):
            raise _ERROR("copse: %s has not ended within %g s" % (self._what, seconds))
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> List[torch.Tensor]:
        self.wait()
        return self._result

    def source_rank(self) -> int:
        return self._source

    _source_rank = source_rank

    def _value(self, _: Any) -> List[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return self._result

    def get_future(self) -> torch.futures.Future:
        with self._lock:
            if self._future is None:
                first: torch.futures.Future = torch.futures.Future()
                self._future = (first, first.then(self._value))
                done = self._done.is_set()
            else:
                done = False
            made = self._future
        if done:
            made[0].set_result(self._result)
        return made[1]


# ---- send and recv ------------------------------------------------------------------------------


#: Steps without a message before a thread sleeps until UCX wakes it up, and for how long at most: a call
#: of this process doesn't wake it.
_SPINS, _WAIT_MICROSECONDS = 5, 500


class _Messages:
    """Messages between two ranks over a wire of their own, moved by a thread while there are any."""

    def __init__(self, wire: _library.Wire, timeout: float) -> None:
        self._wire = wire
        self._timeout = timeout
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._new: List[Tuple[bool, int, int, torch.Tensor, _Work]] = []
        self._thread: Optional[threading.Thread] = None
        self._ends = False
        self._sent: List[Tuple[c_void_p, float, int, torch.Tensor, _Work]] = []
        self._wanted: List[Tuple[int, int, float, torch.Tensor, _Work]] = []
        self._coming: List[Tuple[c_void_p, float, int, torch.Tensor, _Work]] = []
        self._here: List[Tuple[int, int, int, c_void_p]] = []

    def post(self, sends: bool, rank: int, tag: int, tensor: torch.Tensor, work: _Work) -> None:
        with self._lock:
            self._new.append((sends, rank, tag, tensor, work))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="copse messages", daemon=True)
                self._thread.start()
        self._wake.set()

    def end(self) -> None:
        with self._lock:
            self._ends = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(5)
            if self._thread.is_alive():
                return
        self._wire.end(self._wire.context, int(not (self._sent or self._coming or self._here)))

    def _run(self) -> None:
        idle = 0
        while True:
            busy = self._sent or self._wanted or self._coming
            if not busy:
                self._wake.wait()
            self._wake.clear()
            with self._lock:
                new, self._new = self._new, []
                if self._ends and not new:
                    return
            try:
                moved = self._start(new) + self._collect() + self._test()
                self._expire()
            except Exception as why:  # the wire is of no use any more
                self._fail_all(why, new)
                moved = 1
            idle = 0 if moved else idle + 1
            if idle > _SPINS:
                self._wire.wait(self._wire.context, _WAIT_MICROSECONDS)

    def pass_byte(self, rank: int) -> None:
        """Sends a byte, from the calling thread; as the other half only before anything was posted."""
        byte, request = torch.zeros(1, dtype=torch.uint8), c_void_p()
        self._check(self._wire.send(self._wire.context, rank, 0, byte.data_ptr(), 1, byref(request)))
        self._wait_for(request, rank)

    def catch_byte(self, source: int) -> None:
        byte, request = torch.zeros(1, dtype=torch.uint8), c_void_p()
        rank, tag, n, message = c_int(), c_uint(), c_size_t(), c_void_p()
        end = time.monotonic() + self._timeout
        while not message.value:
            self._check(self._wire.next(self._wire.context, byref(rank), byref(tag), byref(n),
                                        byref(message)))
            self._within(end, source)
            self._rest(message)
        self._check(self._wire.receive(self._wire.context, message, byte.data_ptr(), 1,
                                       byref(request)))
        self._wait_for(request, source)

    def _wait_for(self, request: c_void_p, rank: int) -> None:
        done, end = c_int(), time.monotonic() + self._timeout
        while not done.value:
            self._check(self._wire.test(self._wire.context, request, byref(done)))
            self._within(end, rank)
            self._rest(done)

    def _rest(self, found: Any) -> None:
        if not found.value:
            self._wire.wait(self._wire.context, _WAIT_MICROSECONDS)

    def _within(self, end: float, rank: int) -> None:
        if time.monotonic() > end:
            raise _failure("copse: rank %d does not answer while links are measured" % rank, _TIMEOUT)

    def _check(self, status: int) -> None:
        if status:
            raise _ERROR("copse: %s" % self._wire.why(self._wire.context).decode("utf-8", "replace"))

    def _start(self, new: List[Tuple[bool, int, int, torch.Tensor, _Work]]) -> int:
        for sends, rank, tag, tensor, work in new:
            if not sends:
                self._wanted.append((rank, tag, time.monotonic(), tensor, work))
                continue
            request = c_void_p()
            self._check(self._wire.send(self._wire.context, rank, tag, tensor.data_ptr(),
                                        tensor.numel() * tensor.element_size(), byref(request)))
            self._sent.append((request, time.monotonic(), rank, tensor, work))
        return len(new)

    def _collect(self) -> int:
        rank, tag, n, message = c_int(), c_uint(), c_size_t(), c_void_p()
        found = 0
        while True:
            self._check(self._wire.next(self._wire.context, byref(rank), byref(tag), byref(n),
                                        byref(message)))
            if not message.value:
                break
            self._here.append((rank.value, tag.value, n.value, c_void_p(message.value)))
            found += 1
        return found + self._match()

    def _match(self) -> int:
        left, matched = [], 0
        for wanted in self._wanted:
            rank, tag, _, tensor, work = wanted
            at = next((i for i, m in enumerate(self._here)
                       if m[1] == tag and rank in (-1, m[0])), None)
            if at is None:
                left.append(wanted)
                continue
            source, _, n, message = self._here.pop(at)
            matched += 1
            room = tensor.numel() * tensor.element_size()
            own = tensor if n == room else torch.empty(max(n, 1), dtype=torch.uint8)
            request = c_void_p()
            self._check(self._wire.receive(self._wire.context, message, own.data_ptr(), n,
                                           byref(request)))
            work._source = source
            if n != room:
                work._what = ("rank %d has sent %d bytes with tag %d, and recv has a tensor of %d" %
                              (source, n, tag, room))
            self._coming.append((request, time.monotonic(), source, own, work))
        self._wanted = left
        return matched

    def _test(self) -> int:
        moved = 0
        for name in ("_sent", "_coming"):
            left = []
            for entry in getattr(self, name):
                done = c_int()
                self._check(self._wire.test(self._wire.context, entry[0], byref(done)))
                if not done.value:
                    left.append(entry)
                    continue
                moved += 1
                wrong = entry[4]._what.startswith("rank ")
                entry[4]._finish(_ERROR("copse: " + entry[4]._what) if wrong else None)
            setattr(self, name, left)
        return moved

    def _expire(self) -> None:
        now = time.monotonic()
        text = ("copse: rank %d does not answer %s within the group's timeout of %g s: dead, stopped, "
                "or elsewhere")
        for entry in [w for w in self._wanted if now - w[2] > self._timeout]:
            self._wanted.remove(entry)
            who = text % (entry[0], "recv", self._timeout)
            if entry[0] < 0:
                who = ("copse: no rank has sent with tag %d within the group's timeout of %g s" %
                       (entry[1], self._timeout))
            entry[4]._finish(_ERROR(who))
        for sent in self._sent:
            if now - sent[1] > self._timeout and not sent[4].is_completed():
                sent[4]._finish(_ERROR(text % (sent[2], "send", self._timeout)))

    def _fail_all(self, why: BaseException, new: List[Any]) -> None:
        for entry in [*self._sent, *self._wanted, *self._coming, *new]:
            if not entry[4].is_completed():
                entry[4]._finish(why)
        self._sent, self._wanted, self._coming = [], [], []


# ---- the process group ---------------------------------------------------------------------------

_GROUPS: "weakref.WeakSet[ProcessGroupCopse]" = weakref.WeakSet()


def _bytes(t: torch.Tensor) -> int:
    return t.numel() * t.element_size()


def _moved(t: torch.Tensor) -> Tuple[int, int]:
    """Elements and copse_type for a call that only moves t: calls of ranks with other types are refused."""
    kind = _TYPES.get(t.dtype, _MOVED_AS.get(t.element_size(), _BYTE))
    return _bytes(t) // _WIDTHS[kind], kind


def _dense(t: torch.Tensor) -> torch.Tensor:
    """On the CPU and contiguous: t itself where it is."""
    t = t.detach()
    if t.is_complex() and t.is_conj():
        t = t.resolve_conj()
    return (t if t.device.type == "cpu" else t.cpu()).contiguous()


def _real(op: Any, t: torch.Tensor) -> torch.Tensor:
    """The same memory, of a complex tensor as pairs of real numbers where op does not mix them."""
    return torch.view_as_real(t) if t.is_complex() and op in (_Op.SUM, _Op.AVG) else t


def _room(t: torch.Tensor, *sources: torch.Tensor) -> torch.Tensor:
    """Memory for t's new value, to be _put there: t's own where nothing is read from it meanwhile."""
    t = t.detach()
    apart = all(t.untyped_storage().data_ptr() != s.untyped_storage().data_ptr() for s in sources)
    plain = apart and t.device.type == "cpu" and t.is_contiguous()
    return t if plain else torch.empty(t.shape, dtype=t.dtype)


def _put(to: torch.Tensor, value: torch.Tensor) -> None:
    """Unless it is the same memory."""
    to = to.detach()
    if to.device != value.device or to.data_ptr() != value.data_ptr() or not to.is_contiguous():
        to.copy_(value.view(to.shape))


def _need(right: bool, text: str) -> None:
    if not right:
        raise ValueError("copse: " + text)


class ProcessGroupCopse(dist.ProcessGroup):
    """One group of torch.distributed. Its methods are c10d's."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta,
                 members: Optional[List[int]] = None) -> None:
        super().__init__(rank, size)
        self.store = store
        self._me, self._n = rank, size
        self._seconds = timeout.total_seconds()
        self._limit = timeout
        self._exchanges = 0
        self._calls = self._monitored = 0
        self._lock = threading.RLock()  # of the communicator
        self._queue: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._pending = 0
        self._count_lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._comm = c_void_p()
        self._messages: Optional[_Messages] = None
        self._rooted: set = set()
        self._broken: Optional[BaseException] = None
        self._batch: Optional[List[_Work]] = None
        self._desc = self._named = ""
        if size > 1:
            self._open(members or [])
        _GROUPS.add(self)

    # -- opening and closing

    def exchange(self, text: str) -> List[str]:
        """Every rank's text, by the store. Collective."""
        key = "exchange/%d/" % self._exchanges
        self._exchanges += 1
        said = []
        for r in range(self._n):
            try:
                if r == 0:
                    self.store.set(key + str(self._me), text)
                said.append(bytes(self.store.get(key + str(r))).decode("latin-1"))
            except Exception as why:
                raise _failure("copse: rank %d does not answer while a group of %d ranks is made: %s" % (
                    r, self._n, str(why).split("\n")[0]), _TIMEOUT) from None
        return said

    def _new_wire(self) -> _library.Wire:
        failure: List[BaseException] = []

        def all_gather(_: Any, mine: int, everything: int, n: int) -> int:
            try:
                parts = self.exchange(ctypes.string_at(mine, n).hex())
                joined = b"".join(bytes.fromhex(p) for p in parts)
                ctypes.memmove(everything, joined, len(joined))
                return 0
            except Exception as why:  # must not pass through C
                failure.append(why)
                return 10

        wire = _library.Wire()
        callback = _library.ALL_GATHER(all_gather)
        status = _UCX.copse_wire_new_ucx(self._n, self._me, byref(_library.Bootstrap(callback, None)),
                                         byref(wire))
        if failure:
            raise failure[0]
        if status:
            raise _ERROR("copse: %s" % wire.why(wire.context).decode("utf-8", "replace"))
        return wire

    def _open(self, members: List[int]) -> None:
        wire = self._new_wire()
        self._call("copse_comm_init_wire", byref(self._comm), byref(wire), self._seconds)
        self._messages = _Messages(self._new_wire(), self._seconds)
        self._plans = _Plans(self, members)
        self._load(*(w for c in _COLLECTIVES for w in ("-c", c)))
        self._load("-c", "alltoall", "--no-low-latency")  # uneven blocks go in chunks alone

    def _load(self, *what: str) -> None:
        n = c_int()
        folder = self._plans.folder(*what)
        self._call("copse_comm_load_plans", self._comm, os.fsencode(folder), byref(n))

    def shutdown(self) -> None:
        self._wait_idle(5)
        with self._lock:
            comm, self._comm = self._comm, c_void_p()
            messages, self._messages = self._messages, None
        if messages is not None:
            messages.end()
        if comm:
            _library.LIBRARY.copse_comm_destroy(comm)
        if self._thread is not None:
            self._queue.put(None)

    def abort(self) -> None:
        if self._comm:
            _library.LIBRARY.copse_comm_abort(self._comm)
        self.shutdown()

    def _wait_idle(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self._pending and time.monotonic() < end:
            time.sleep(0.001)

    # -- what c10d asks of a group

    def getBackendName(self) -> str:
        return "copse"

    name = getBackendName

    def rank(self) -> int:
        return self._me

    def size(self) -> int:
        return self._n

    getRank, getSize = rank, size

    def _get_backend(self, device: Any) -> "ProcessGroupCopse":
        return self

    get_backend = _get_backend
    supports_splitting = supports_coalescing = False

    @property
    def _device_types(self) -> List[torch.device]:
        # PyTorch's flight recorder can't look at a group without a backend below it: it asks before
        # the group has a name in the world
        known = self in dist.distributed_c10d._world.pg_names
        return [torch.device("cpu"), torch.device("cuda")] if known else []

    supports_time_estimate = False

    @property
    def _timeout(self) -> timedelta:
        return self._limit

    def _get_backend_name(self) -> str:
        return "copse"

    def _get_sequence_number_for_group(self) -> int:
        return self._calls

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._limit, self._seconds = timeout, timeout.total_seconds()
        if self._comm:
            self._call("copse_comm_set_timeout", self._comm, self._seconds)
        if self._messages is not None:
            self._messages._timeout = self._seconds

    setTimeout = set_timeout = _set_default_timeout

    def get_group_store(self) -> Any:
        return self.store

    def _set_group_name(self, name: str) -> None:
        self._named = name
        super()._set_group_name(name)

    @property
    def group_name(self) -> str:
        return self._named

    def getGroupName(self) -> str:
        return self._named

    def _set_group_desc(self, desc: str) -> None:
        self._desc = desc
        super()._set_group_desc(desc)

    @property
    def group_desc(self) -> str:
        return self._desc

    def getGroupDesc(self) -> str:
        return self._desc

    def _start_coalescing(self, device: Any) -> None:
        self._batch = []

    def _end_coalescing(self, device: Any) -> _Work:
        batch, self._batch = self._batch or [], None

        def wait_for_all() -> None:
            for work in batch:
                work.wait()
        return self._submit("coalesced calls", wait_for_all, [], None)

    # -- calls, one after the other

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(_library.LIBRARY, name)(*arguments)
        if status:
            words = _library.LIBRARY.copse_status_string(status).decode()
            text = _library.LIBRARY.copse_last_error().decode("utf-8", "replace")
            late = "; the group's timeout is over" if status == _TIMEOUT else ""
            raise _failure("copse: %s%s" % (text or words, late), status)

    def _submit(self, what: str, run: Callable[[], None], result: List[torch.Tensor],
                opts: Any) -> _Work:
        """Runs it now where the caller waits for it, or else in the group's thread."""
        work = _Work(result, what, self._seconds)
        with self._count_lock:
            now = threading.current_thread() is self._thread or (
                self._pending == 0 and not getattr(opts, "asyncOp", True))
            self._pending += 1
            self._calls += 1
            if not now and self._thread is None:
                self._thread = threading.Thread(target=_serve, args=(self._queue,),
                                                name="copse", daemon=True)
                self._thread.start()
        if self._batch is not None:
            self._batch.append(work)
        if now:
            self._run(work, run)
        else:
            self._queue.put((self, work, run))
        return work

    def _run(self, work: _Work, run: Callable[[], None]) -> None:
        error: Optional[BaseException] = None
        try:
            with self._lock, torch.no_grad():
                if self._broken is not None:
                    raise self._broken
                if self._n > 1 and not self._comm:
                    raise _ERROR("copse: %s on a group that was destroyed" % work._what)
                run()
        except Exception as why:
            error = self._explain(why, work._what)
        with self._count_lock:
            self._pending -= 1
        work._finish(error)

    def _explain(self, why: BaseException, what: str) -> BaseException:
        """Adds what the others call, where that is known, after a failure that breaks the group."""
        status = getattr(why, "copse_status", 0)
        if status not in (_REFUTED, _DEVICE, _TIMEOUT, _ABORTED) or why is self._broken:
            return why
        text = str(why)
        try:
            self.store.set("failed/%d" % self._me, "%d: %s" % (self._calls, what))
            said: Dict[int, str] = {}
            end = time.monotonic() + 2
            while len(said) < self._n and time.monotonic() < end:
                for r in range(self._n):
                    if r not in said and self.store.check(["failed/%d" % r]):
                        said[r] = bytes(self.store.get("failed/%d" % r)).decode()
                time.sleep(0.02)
            silent = [str(r) for r in range(self._n) if r not in said]
            named = re.search(r"rank (\d+) does not answer", text)
            if silent and (int(named[1]) in said if named else "no rank answers" in text):
                # UCX: a rank that is killed while it writes to another's shared memory leaves that one
                # without any message; of two others it blames the one that there is
                text = ("copse: rank %s does not answer, by messages or in the store, within the group's "
                        "timeout of %g s: dead, stopped, or not in the same call" %
                        (", ".join(silent), self._seconds))
            if len(set(said.values())) > 1:
                text += "; calls that differ: " + ", ".join(
                    "rank %d in call %s" % (r, said[r]) for r in sorted(said))
        except Exception:  # the store may have died with its rank
            pass
        self._broken = _ERROR("%s (in %s)" % (text, what))
        return self._broken

    # -- plans on memory. All have the lock.

    def _all_gather(self, mine: torch.Tensor, everything: torch.Tensor) -> None:
        if self._n == 1:
            everything.view(-1).copy_(mine.reshape(-1))
        elif _bytes(mine):
            self._call("copse_all_gather", mine.data_ptr(), everything.data_ptr(), *_moved(mine),
                       self._comm, None)

    def _gathered(self, mine: torch.Tensor) -> torch.Tensor:
        """[n, *shape]"""
        everything = torch.empty((self._n, *mine.shape), dtype=mine.dtype)
        self._all_gather(mine, everything)
        return everything

    def _alike(self, what: str) -> None:
        """Refuses a call that is not every rank's, where no call of libcopse would tell."""
        if self._n == 1:
            return
        mine = int.from_bytes(hashlib.sha256(what.encode()).digest()[:8], "little", signed=True)
        said = self._gathered(torch.tensor(mine)).tolist()
        odd = next((r for r, s in enumerate(said) if s != said[0]), None)
        if odd is not None:
            raise _failure("copse: rank %d does not call what rank 0 calls" % odd, _REFUTED)

    def _all_to_all_v(self, sends: List[torch.Tensor], receives: List[torch.Tensor],
                      counts: torch.Tensor, kind: int = _BYTE) -> None:
        """counts: bytes [n, n], from row to column, the same at all ranks. kind: copse_type."""
        most = int(counts.max())
        if self._n == 1 or most == 0:
            for there, here in zip(receives, sends):
                there.view(-1).copy_(here.reshape(-1))
            return
        # pages of blocks that nothing is in are never touched
        out = torch.empty(self._n * most, dtype=torch.uint8)
        into = torch.empty(self._n * most, dtype=torch.uint8)
        for r, t in enumerate(sends):
            if _bytes(t):
                out[r * most:r * most + _bytes(t)].copy_(t.reshape(-1).view(torch.uint8))
        counts = (counts // _WIDTHS[kind]).contiguous()
        self._call("copse_all_to_all_v", out.data_ptr(), into.data_ptr(), most // _WIDTHS[kind],
                   counts.data_ptr(), kind, self._comm, None)
        for r, t in enumerate(receives):
            if _bytes(t):
                t.view(-1).view(torch.uint8).copy_(into[r * most:r * most + _bytes(t)])

    def _fold(self, op: Any, parts: Any) -> torch.Tensor:
        """Reduces here, in the order of ranks."""
        total = parts[0].clone()
        for part in parts[1:]:
            _FOLDS[op](total, part)
        if op == _Op.AVG:
            total = torch.div(total, self._n, rounding_mode=None if total.is_floating_point() or
                              total.is_complex() else "trunc")
        return total

    @staticmethod
    def _native(op: Any, t: torch.Tensor) -> Optional[int]:
        """copse's number of a reduction that it has for this type."""
        if t.dtype not in _TYPES:
            return None
        return (_BOOL_OPS if t.dtype == torch.bool else _OPS).get(op)

    def _check_op(self, op: Any, t: torch.Tensor) -> None:
        _need(op in _FOLDS, "%s is not supported" % (op,))
        bitwise = op in (_Op.BAND, _Op.BOR, _Op.BXOR)
        if bitwise and (t.is_floating_point() or t.is_complex()):
            raise RuntimeError("copse: cannot use %s with non-integral dtype %s" % (op, t.dtype))

    def _reduce_all(self, t: torch.Tensor, op: Any) -> None:
        """In place."""
        if t.numel() == 0 or self._n == 1:
            return
        t = _real(op, t)
        native = self._native(op, t)
        if native is None:
            self._alike(_said(op, t.reshape(-1)))
            t.copy_(self._fold(op, self._gathered(t)))
            return
        self._call("copse_all_reduce", t.data_ptr(), t.data_ptr(), t.numel(), _TYPES[t.dtype],
                   native, self._comm, None)

    def _scatter_reduced(self, whole: torch.Tensor, mine: torch.Tensor, op: Any) -> None:
        """whole: n parts like mine, one after the other."""
        if mine.numel() == 0:
            return
        whole, mine = _real(op, whole), _real(op, mine)
        native = self._native(op, mine)
        if self._n == 1:
            mine.view(-1).copy_(whole.reshape(-1))
        elif native is None:
            self._alike(_said(op, mine.reshape(-1)))
            parts = torch.empty((self._n, *mine.shape), dtype=mine.dtype)
            self._call("copse_all_to_all", whole.data_ptr(), parts.data_ptr(), *_moved(mine),
                       self._comm, None)
            mine.copy_(self._fold(op, parts))
        else:
            self._call("copse_reduce_scatter", whole.data_ptr(), mine.data_ptr(), mine.numel(),
                       _TYPES[mine.dtype], native, self._comm, None)

    def _plans_of_root(self, collective: str, root: int) -> None:
        if (collective, root) not in self._rooted:
            self._alike("%s %d" % (collective, root))
            self._load("-c", collective, "-r", str(root))
            self._rooted.add((collective, root))

    def _reduce_sparse(self, t: torch.Tensor) -> torch.Tensor:
        """The sum, coalesced: indices and values of all ranks, gathered."""
        t = t.detach().coalesce()
        sizes = self._gathered(torch.tensor([t._nnz()]))
        most = int(sizes.max())
        indices = torch.zeros((t.sparse_dim(), most), dtype=torch.int64)
        indices[:, :t._nnz()] = t.indices()
        values = torch.zeros((most, *t.values().shape[1:]), dtype=t.dtype)
        values[:t._nnz()] = t.values()
        both = zip(sizes.view(-1).tolist(), self._gathered(indices), self._gathered(values))
        parts = [(i[:, :n], v[:n]) for n, i, v in both]
        return torch.sparse_coo_tensor(torch.cat([i for i, _ in parts], 1),
                                       torch.cat([v for _, v in parts]), t.shape).coalesce()

    # -- c10d's collectives

    def allreduce(self, tensors: List[torch.Tensor], opts: Any = None,
                  timeout: Any = None) -> _Work:
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        if not hasattr(opts, "reduceOp"):
            made = dist.AllreduceOptions()
            made.reduceOp = opts if opts is not None else dist.ReduceOp.SUM
            opts = made
        op = _kind(opts.reduceOp)
        _need(len(tensors) == 1, "all_reduce takes one tensor a rank")
        t = tensors[0]
        self._check_op(op, t)
        if t.is_sparse:
            _need(op == _Op.SUM, "sparse tensors are summed only")

            def run_sparse() -> None:
                t.copy_(self._reduce_sparse(t))  # of a detached one the number of values would stay
            return self._submit(_said("all_reduce", op, t), run_sparse, [t], opts)

        def run() -> None:
            here = _dense(t)
            self._reduce_all(here, op)
            _put(t, here)
        return self._submit(_said("all_reduce", op, t), run, [t], opts)

    def allreduce_coalesced(self, tensors: List[torch.Tensor], opts: Any = None) -> _Work:
        opts = opts or dist.AllreduceCoalescedOptions()
        op = _kind(opts.reduceOp)
        _need(len(tensors) > 0, "all_reduce_coalesced needs tensors")
        for t in tensors:
            self._check_op(op, t)

        def run() -> None:
            for same in {t.dtype: [u for u in tensors if u.dtype == t.dtype]
                         for t in tensors}.values():
                here = [_dense(t) for t in same]
                flat = _flatten_dense_tensors(here)
                self._reduce_all(flat, op)
                for t, value in zip(same, _unflatten_dense_tensors(flat, here)):
                    _put(t, value)
        return self._submit(_said("all_reduce_coalesced", op, *tensors), run, list(tensors), opts)

    def broadcast(self, tensors: List[torch.Tensor], opts: Any = None, timeout: Any = None) -> _Work:
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        root = opts if isinstance(opts, int) else (opts.rootRank if opts else 0)
        _need(len(tensors) == 1, "broadcast takes one tensor a rank")
        _need(0 <= root < self._n, "broadcast: invalid root rank %d" % root)
        t = tensors[0]

        def run() -> None:
            if self._n == 1 or t.numel() == 0:
                return
            here = _dense(t)
            self._plans_of_root("broadcast", root)
            self._call("copse_broadcast", here.data_ptr(), here.data_ptr(), *_moved(here), root,
                       self._comm, None)
            _put(t, here)
        return self._submit(_said("broadcast", root, t), run, [t], opts)

    def reduce(self, tensors: List[torch.Tensor], opts: Any = None, *more: Any) -> _Work:
        opts = opts or dist.ReduceOptions()
        op, root = _kind(opts.reduceOp), opts.rootRank
        _need(len(tensors) == 1, "reduce takes one tensor a rank")
        _need(0 <= root < self._n, "reduce: invalid root rank %d" % root)
        t = tensors[0]
        self._check_op(op, t)

        def run() -> None:
            whole = _dense(t)
            here = _real(op, whole)
            native = self._native(op, here)
            if self._n == 1 or here.numel() == 0:
                return
            if native is None:
                self._alike(_said(op, here.reshape(-1)))
                parts = [torch.empty_like(here) for _ in range(self._n)]
                self._to_root(here, parts, root)
                if self._me == root:
                    _put(t, self._fold(op, parts))
                return
            self._plans_of_root("reduce", root)
            mine = here.data_ptr() if self._me == root else None
            self._call("copse_reduce", here.data_ptr(), mine, here.numel(), _TYPES[here.dtype],
                       native, root, self._comm, None)
            if self._me == root:
                _put(t, whole)
        return self._submit(_said("reduce", op, root, t), run, [t], opts)

    def allgather(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor],
                  opts: Any = None) -> _Work:
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]  # type: ignore[list-item]
        _need(len(inputs) == 1 and len(outputs) == 1, "all_gather takes one tensor a rank")
        mine, parts = inputs[0], outputs[0]
        _need(len(parts) == self._n, "all_gather: %d outputs for %d ranks" % (len(parts), self._n))
        for p in parts:
            _need(p.dtype == mine.dtype and p.numel() == mine.numel(),
                  "all_gather: invalid tensor: outputs are like the input")

        def run() -> None:
            everything = self._gathered(_dense(mine))
            for p, value in zip(parts, everything):
                _put(p, value)
        return self._submit(_said("all_gather", mine), run, list(parts), opts)

    def allgather_coalesced(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor],
                            opts: Any = None) -> _Work:
        _need(len(outputs) == self._n, "all_gather_coalesced: outputs for another number of ranks")

        def run() -> None:
            for i, mine in enumerate(inputs):
                for p, value in zip(outputs, self._gathered(_dense(mine))):
                    _put(p[i], value)
        return self._submit(_said("all_gather_coalesced", *inputs), run,
                            [t for p in outputs for t in p], opts)

    def _into(self, output: torch.Tensor, mine: torch.Tensor) -> None:
        inside = _dense(output)
        self._all_gather(_dense(mine), inside)
        _put(output, inside)

    def all_gather_single(self, output: torch.Tensor, mine: torch.Tensor,
                          opts: Any = None) -> _Work:
        _need(output.dtype == mine.dtype and output.numel() == self._n * mine.numel(),
              "all_gather_into_tensor: the output is the size of the input times the %d ranks" %
              self._n)
        return self._submit(_said("all_gather_into_tensor", mine),
                            lambda: self._into(output, mine), [output], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor],
                                    opts: Any = None) -> _Work:
        def run() -> None:
            for output, mine in zip(outputs, inputs):
                self._into(output, mine)
        return self._submit(_said("all_gather_into_tensor_coalesced", *inputs), run, list(outputs),
                            opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _to_root(self, mine: torch.Tensor, parts: List[torch.Tensor], root: int) -> None:
        """parts: at the root."""
        n = self._n
        counts = torch.zeros((n, n), dtype=torch.int64)
        counts[:, root] = _bytes(mine)
        nothing = torch.empty(0, dtype=torch.uint8)
        self._all_to_all_v([mine if r == root else nothing for r in range(n)],
                           parts if self._me == root else [nothing] * n, counts, _moved(mine)[1])

    def gather(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor],
               opts: Any = None) -> _Work:
        opts = opts or dist.GatherOptions()
        root, mine = opts.rootRank, inputs[0]
        parts = outputs[0] if self._me == root and outputs else []
        _need(0 <= root < self._n, "gather: invalid root rank %d" % root)
        _need(len(inputs) == 1, "gather takes one tensor a rank")
        _need(self._me != root or len(parts) == self._n, "gather: a list of %d outputs for %d ranks" %
              (len(parts), self._n))
        for p in parts:
            _need(p.dtype == mine.dtype and p.numel() == mine.numel(),
                  "gather: invalid tensor: outputs are like the input")

        def run() -> None:
            here = [_room(p, mine) for p in parts]
            self._to_root(_dense(mine), here, root)
            for p, value in zip(parts, here):
                _put(p, value)
        return self._submit(_said("gather", root, mine), run, list(parts), opts)

    def scatter(self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]],
                opts: Any = None) -> _Work:
        opts = opts or dist.ScatterOptions()
        root, mine = opts.rootRank, outputs[0]
        parts = inputs[0] if self._me == root and inputs else []
        _need(0 <= root < self._n, "scatter: invalid root rank %d" % root)
        _need(len(outputs) == 1, "scatter takes one tensor a rank")
        _need(self._me != root or len(parts) == self._n, "scatter: a list of %d inputs for %d ranks" %
              (len(parts), self._n))
        for p in parts:
            _need(p.dtype == mine.dtype and p.numel() == mine.numel(),
                  "scatter: invalid tensor: inputs are like the output")

        def run() -> None:
            n = self._n
            counts = torch.zeros((n, n), dtype=torch.int64)
            counts[root, :] = _bytes(mine)
            nothing = torch.empty(0, dtype=torch.uint8)
            here = _room(mine, *parts)
            self._all_to_all_v([_dense(p) for p in parts] or [nothing] * n,
                               [here if r == root else nothing for r in range(n)], counts,
                               _moved(mine)[1])
            _put(mine, here)
        return self._submit(_said("scatter", root, mine), run, [mine], opts)

    def reduce_scatter(self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]],
                       opts: Any = None) -> _Work:
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]  # type: ignore[list-item]
        opts = opts or dist.ReduceScatterOptions()
        op = _kind(opts.reduceOp)
        mine, parts = outputs[0], inputs[0]
        self._check_op(op, mine)
        _need(len(parts) == self._n, "reduce_scatter: %d inputs for %d ranks" % (len(parts), self._n))
        sizes = [p.numel() for p in parts]
        _need(sizes[self._me] == mine.numel() and all(p.dtype == mine.dtype for p in parts),
              "reduce_scatter: invalid tensor: inputs are of the output's type, this rank's of its size")
        even = min(sizes) == max(sizes)

        def run() -> None:
            if even:
                here = _room(mine)
                self._scatter_reduced(torch.cat([_dense(p).view(-1) for p in parts]), here, op)
            else:  # filled up to the largest
                self._alike("reduce_scatter %s" % sizes)
                whole = torch.zeros((self._n, max(sizes)), dtype=mine.dtype)
                for row, p in zip(whole, parts):
                    row[:p.numel()] = _dense(p).view(-1)
                filled = torch.empty(max(sizes), dtype=mine.dtype)
                self._scatter_reduced(whole, filled, op)
                here = filled[:mine.numel()]
            _put(mine, here)
        what = _said("reduce_scatter", op, mine if even else "of %s" % sizes)
        return self._submit(what, run, [mine], opts)

    def _scatter_single(self, output: torch.Tensor, whole: torch.Tensor, op: Any) -> None:
        here = _room(output, whole)
        self._scatter_reduced(_dense(whole), here, op)
        _put(output, here)

    def reduce_scatter_single(self, output: torch.Tensor, whole: torch.Tensor,
                              opts: Any = None) -> _Work:
        op = _kind((opts or dist.ReduceScatterOptions()).reduceOp)
        self._check_op(op, output)
        _need(output.dtype == whole.dtype and whole.numel() == self._n * output.numel(),
              "reduce_scatter_tensor: the input is the size of the output times the %d ranks" %
              self._n)
        return self._submit(_said("reduce_scatter_tensor", op, output),
                            lambda: self._scatter_single(output, whole, op), [output], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: List[torch.Tensor],
                                        inputs: List[torch.Tensor], opts: Any = None) -> _Work:
        op = _kind((opts or dist.ReduceScatterOptions()).reduceOp)

        def run() -> None:
            for output, whole in zip(outputs, inputs):
                self._scatter_single(output, whole, op)
        return self._submit(_said("reduce_scatter_tensor_coalesced", op, *outputs), run,
                            list(outputs), opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def all_to_all_single(self, output: torch.Tensor, whole: torch.Tensor,
                          output_sizes: Optional[List[int]], input_sizes: Optional[List[int]],
                          opts: Any = None) -> _Work:
        n = self._n
        _need(output.dtype == whole.dtype, "all_to_all_single: tensors of different types")
        for sizes, t in ((output_sizes, output), (input_sizes, whole)):
            rows = t.shape[0] if t.dim() else 1
            if sizes:
                _need(len(sizes) == n and sum(sizes) == rows,
                      "all_to_all_single: split sizes do not add up to the %d rows" % rows)
            else:
                _need(rows % n == 0, "all_to_all_single: %d rows are not divisible by %d ranks" %
                      (rows, n))

        def run() -> None:
            source, into = _dense(whole), _room(output, whole)
            if output_sizes or input_sizes:
                self._exchange_uneven(
                    list(source.split(input_sizes or source.shape[0] // n)),
                    list(into.split(output_sizes or into.shape[0] // n)))
            elif n == 1:
                into.copy_(source)
            elif source.numel():
                number, kind = _moved(source)
                self._call("copse_all_to_all", source.data_ptr(), into.data_ptr(), number // n,
                           kind, self._comm, None)
            _put(output, into)
        split = ["split"] if output_sizes or input_sizes else []  # sizes may differ, as shapes may
        return self._submit(_said("all_to_all_single", whole, *split), run, [output], opts)

    alltoall_base = all_to_all_single

    def _exchange_uneven(self, sends: List[torch.Tensor], receives: List[torch.Tensor]) -> None:
        both = self._gathered(torch.tensor([[_bytes(t) for t in sends],
                                            [_bytes(t) for t in receives]], dtype=torch.int64))
        counts, expected = both[:, 0], both[:, 1].t()  # from row to column
        if not torch.equal(counts, expected):  # the same at all ranks, and nobody waits for another
            r, to = (counts != expected).nonzero()[0].tolist()
            raise _failure("copse: all_to_all: rank %d sends %d bytes to rank %d, which expects %d" %
                           (r, counts[r, to], to, expected[r, to]), 0)
        kinds = {_moved(t)[1] for t in [*sends, *receives]}
        self._all_to_all_v(sends, receives, counts, kinds.pop() if len(kinds) == 1 else _BYTE)

    def alltoall(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor],
                 opts: Any = None) -> _Work:
        _need(len(outputs) == self._n and len(inputs) == self._n,
              "all_to_all: lists of other lengths than the %d ranks" % self._n)

        def run() -> None:
            here = [_room(t, *inputs) for t in outputs]
            self._exchange_uneven([_dense(t) for t in inputs], here)
            for t, value in zip(outputs, here):
                _put(t, value)
        return self._submit(_said("all_to_all", *inputs), run, list(outputs), opts)

    def barrier(self, opts: Any = None) -> _Work:
        return self._submit("barrier", lambda: self._reduce_all(torch.ones(1), _Op.SUM), [], opts)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Over the store. Names, at rank 0, who does not come: the first, or all."""
        limit = self._limit if timeout is None else timedelta(seconds=timeout) if isinstance(
            timeout, (int, float)) else timeout
        end = time.monotonic() + limit.total_seconds()
        self._monitored += 1
        key = "monitored/%d/" % self._monitored
        milliseconds = 1000 * limit.total_seconds()
        if self._me != 0:
            self.store.set(key + str(self._me), "")
            try:  # rank 0 says it when its own time is over
                self.store.wait([key + "all"], limit + timedelta(seconds=1))
            except Exception:
                raise RuntimeError("Rank %d timed out in monitoredBarrier after %d ms" %
                                   (self._me, milliseconds)) from None
            if bytes(self.store.get(key + "all")) != b"ok":
                raise RuntimeError("Rank %d successfully reached monitoredBarrier, but received errors "
                                   "while waiting for send/recv from rank 0" % self._me)
            return
        missing: List[str] = []
        for r in range(1, self._n):
            try:
                left = max(end - time.monotonic(), 0.001)
                self.store.wait([key + str(r)], timedelta(seconds=left))
            except Exception:
                missing.append(str(r))
                if not wait_all_ranks:
                    break
        self.store.set(key + "all", "failed" if missing else "ok")
        if missing and not limit:
            raise RuntimeError("Rank 0 timed out in monitoredBarrier after 0 ms")
        if missing:
            raise RuntimeError("[Rank 0]: Rank%s %s failed to pass monitoredBarrier in %d ms" % (
                "s" if len(missing) > 1 else "", ", ".join(missing), milliseconds))

    # -- send and recv

    def send(self, tensors: List[torch.Tensor], to: int, tag: int = 0) -> _Work:
        _need(len(tensors) == 1, "send takes one tensor")
        _need(0 <= to < self._n and to != self._me, "send: invalid rank %d" % to)
        here = _dense(tensors[0])
        work = _Work(list(tensors), "send", self._seconds)
        return self._post(True, to, tag, here, work)

    def recv(self, tensors: List[torch.Tensor], source: int, tag: int = 0) -> _Work:
        _need(len(tensors) == 1, "recv takes one tensor")
        t = tensors[0].detach()
        plain = t.is_contiguous() and t.device.type == "cpu"
        here = t if plain else torch.empty(t.shape, dtype=t.dtype)
        work = _Work(list(tensors), "recv", self._seconds)
        if not plain:
            finish = work._finish

            def copy(error: Optional[BaseException] = None) -> None:
                if error is None:
                    t.copy_(here)
                finish(error)
            work._finish = copy  # type: ignore[method-assign]
        return self._post(False, source, tag, here, work)

    def recv_anysource(self, tensors: List[torch.Tensor], tag: int = 0) -> _Work:
        return self.recv(tensors, -1, tag)

    def _post(self, sends: bool, rank: int, tag: int, tensor: torch.Tensor, work: _Work) -> _Work:
        if self._messages is None:
            raise _ERROR("copse: %s on a group that was destroyed, or of one rank" % work._what)
        if self._batch is not None:
            self._batch.append(work)
        self._messages.post(sends, rank, tag, tensor, work)
        return work


def _serve(calls: "queue.SimpleQueue[Any]") -> None:
    """A group's thread. It keeps no group alive between calls."""
    while True:
        call = calls.get()
        if call is None:
            return
        call[0]._run(call[1], call[2])
        del call


def _said(*what: Any) -> str:
    """A call in words: its name, what else, and tensors as type[shape]."""
    words = []
    for w in what[:6]:
        if isinstance(w, torch.Tensor):
            w = "%s%s" % (str(w.dtype).replace("torch.", ""), list(w.shape))
        words.append(str(w).replace("RedOpType.", "").lower())
    return " ".join(words)


def _end_all() -> None:
    for group in list(_GROUPS):
        if group._broken is None:
            group.shutdown()


atexit.register(_end_all)


def _create(options: Any, _: Any) -> ProcessGroupCopse:
    return ProcessGroupCopse(options.store, options.group_rank, options.group_size,
                             options.timeout, list(options.global_ranks_in_group or []))


dist.Backend.register_backend("copse", _create, extended_api=True, devices=["cpu", "cuda"])
