"""copse: provably optimal schedules of collective communication.

>>> import copse
>>> ring = copse.Topology.synthetic("ring:4@50")
>>> schedule = copse.solve(ring, "allgather")
>>> schedule.time_per_GB           # seconds for each GB of the gathered buffer, exactly
Fraction(3, 400)
>>> schedule.verify(ring)          # proved again, without the solver
'optimal'
>>> plan = copse.lower(schedule)
>>> plan.check()                   # right result, no deadlock, no race, or copse.Refuted
>>> [round(us) for us in plan.simulate(ring, [1024, 2**30])][0] < 20
True

Names are those of the command line. Exact values are fractions.Fraction. Errors are exceptions
with copse's text; all are copse.Error:

>>> copse.solve(ring, "broadcast", root=9)
Traceback (most recent call last):
  ...
copse.Invalid: broadcast needs a root from 0 to 3
"""
from __future__ import annotations

import ctypes
import json
import os
import tempfile
from ctypes import c_double, c_int, c_int64
from fractions import Fraction
from typing import (Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional,
                    Sequence, Tuple, Union)

from . import _library
from ._library import (BadInput, Error, FileError, Infeasible, Invalid, OutOfMemory, Overflow,
                       Refuted, Unsupported)

__all__ = ["BadInput", "Edge", "Error", "FileError", "Flow", "Infeasible", "Invalid", "Link", "Load",
           "Node", "OutOfMemory", "Overflow", "Plan", "Refuted", "Schedule", "Topology", "Tree",
           "Unsupported", "COLLECTIVES", "lower", "solve", "solve_groups", "version"]

Path = Union[str, "os.PathLike[str]"]

#: A number that is taken exactly: an int, a Fraction, or a text such as "3/4" or "0.01".
Exact = Union[int, Fraction, str]

#: Bytes from each rank to each: rows of ints, or an array of NumPy.
Demand = Sequence[Sequence[int]]

#: Ranks that run together, or a line of the file of `copse solve --groups`.
Group = Union[str, Iterable[int]]

#: Is called with progress: the phase, and which part of it is done, from 0 to 1, or None: not known.
Progress = Callable[[str, Optional[float]], None]

#: The collectives, in the order of copse_collective.
COLLECTIVES = ("allgather", "reduce_scatter", "allreduce", "broadcast", "reduce", "alltoall")

#: What Schedule.verify says, by the number of copse_schedule_verify.
_PROVED = ("valid", "optimal", "both phases optimal",
           "optimal among all reduce and broadcast forests with common shares")


class Node(NamedTuple):
    """A node of a topology. rank: of a GPU that is a rank, else None."""

    id: str
    type: str
    rank: Optional[int]


class Link(NamedTuple):
    """A directed link. bandwidth: GB/s (10^9 bytes); latency: microseconds."""

    src: str
    dst: str
    bandwidth: Fraction
    latency: Fraction


class Edge(NamedTuple):
    """A transfer from rank src to rank dst; path: the ids of the nodes that it passes."""

    src: int
    dst: int
    path: Tuple[str, ...]


class Tree(NamedTuple):
    """A spanning tree. phase: "broadcast" or "reduce"; weight: the share of the message M.

    stage, piece: of an allreduce by recursive doubling, else 0.
    """

    root: int
    phase: str
    weight: Fraction
    edges: Tuple[Edge, ...]
    stage: int = 0
    piece: int = 0


class Flow(NamedTuple):
    """What rank src sends to rank dst in an alltoall: paths with their shares of M."""

    src: int
    dst: int
    paths: Tuple[Tuple[Fraction, Tuple[str, ...]], ...]


class Load(NamedTuple):
    """What a schedule puts on a link. load: share of M; time: seconds per GB of M."""

    src: str
    dst: str
    load: Fraction
    time: Fraction


class Topology(_library.Owner):
    """Nodes and directed links of a cluster.

    >>> t = Topology.synthetic("switch:4@100")
    >>> t
    <copse.Topology 'switch:4@100': 4 ranks, 5 nodes, 8 links>
    >>> t.nodes[-1]
    Node(id='switch', type='switch', rank=None)
    >>> t.links[0].bandwidth
    Fraction(100, 1)
    """

    _kind = "topology"
    _parsed: Dict[str, Any]

    @classmethod
    def read(cls, path: Path, links: Optional[str] = None) -> Topology:
        """Reads a file, whatever its format (`copse help inputs`).

        links: what to keep of XML and matrices: "nvlink", "all" or "default".
        Raises FileError, BadInput with file and line, Invalid for another `links`.

        >>> Topology.read("/no/such/file")
        Traceback (most recent call last):
          ...
        copse.FileError: /no/such/file: cannot open: No such file or directory
        """
        mode = None if links is None else _library.encode(links)
        return cls._made_by("copse_topology_read", _library.encode(path), mode)

    @classmethod
    def catalogue(cls, name: str, links: Optional[str] = None) -> Topology:
        """The topology of this name, as `copse topo --list` has it (COPSE_TOPOLOGIES or the wheel).

        Raises Invalid for a name that isn't there.

        >>> Topology.catalogue("a100-x2").ranks
        16
        """
        mode = None if links is None else _library.encode(links)
        return cls._made_by("copse_topology_named", _library.encode(name),
                            _library.encode(_library.catalogue()), mode)

    @staticmethod
    def names() -> List[str]:
        """The names of the catalogue.

        >>> "dgx-h100" in Topology.names()
        True
        """
        return _library.text_of("copse_topology_names",
                                _library.encode(_library.catalogue())).split()

    @classmethod
    def synthetic(cls, line: str) -> Topology:
        """A synthetic topology from its line. Raises BadInput.

        >>> Topology.synthetic("torus:2x2@50").ranks
        4
        """
        return cls._made_by("copse_topology_generate", _library.encode(line))

    def change(self, ranks: Union[None, str, Iterable[int]] = None, others: str = "forward",
               down: Iterable[str] = (), derate: Optional[Mapping[str, Exact]] = None) -> Topology:
        """Another topology: some of the ranks, parts down or slower, as `copse solve` has it.

        ranks: numbers, or a list as of --ranks; the numbers are those before anything broke.
        others: what the other GPUs do, "forward" as switches or "exclude". down: ids or patterns
        of nodes, or "SRC>DST", a cable. derate: what is left of the bandwidth of such, from 0 to 1.
        Raises BadInput for an id that isn't there and a rank that is down, Invalid.

        >>> t = Topology.synthetic("switch:4@100")
        >>> t.change(down=["gpu3"])
        <copse.Topology 'switch:4@100 without gpu3': 3 ranks, 4 nodes, 6 links>
        >>> t.change(derate={"gpu0>switch": "1/4"}).links[0].bandwidth
        Fraction(25, 1)
        >>> t.change(ranks=[2, 0]).ranks
        2
        """
        if others not in ("forward", "exclude"):
            raise Invalid("others must be \"forward\" or \"exclude\"", 2, "invalid argument")
        if isinstance(down, str):
            down = [down]
        parts = [(what, Fraction(0)) for what in down]
        parts += [(what, _exact(what, left)) for what, left in (derate or {}).items()]
        faults = (_library.FaultAt * len(parts))()
        for fault, (what, left) in zip(faults, parts):
            fault.what = _library.encode(what)
            fault.left_num, fault.left_den = left.numerator, left.denominator
        if ranks is not None and not isinstance(ranks, str):
            ranks = ",".join(str(int(rank)) for rank in ranks)
        chosen = None if ranks is None else _library.encode(ranks)
        return self._made_by("copse_topology_change", self._handle, faults, len(parts), chosen,
                             int(others == "exclude"))

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return int(_library.LIBRARY.copse_topology_ranks(self._handle))

    def json(self) -> str:
        """Topology JSON, byte for byte what `copse topo -o` writes."""
        return _library.text_of("copse_topology_json", self._handle)

    def _document(self) -> Dict[str, Any]:
        if not hasattr(self, "_parsed"):
            self._parsed = json.loads(self.json(), parse_float=Fraction, parse_int=int)
        return self._parsed

    @property
    def name(self) -> str:
        """The name that the file gives it, or its label."""
        return str(self._document().get("name", ""))

    @property
    def nodes(self) -> List[Node]:
        """All nodes."""
        return [Node(n["id"], n["type"], n.get("rank")) for n in self._document()["nodes"]]

    @property
    def links(self) -> List[Link]:
        """All directed links; two directions of a cable are two."""
        found = []
        for link in self._document()["links"]:
            rate = _library.fraction(link["bandwidth"])
            latency = _library.fraction(link.get("latency", 0))
            found.append(Link(link["src"], link["dst"], rate, latency))
            if link.get("duplex", True):
                found.append(Link(link["dst"], link["src"], rate, latency))
        return found

    def __repr__(self) -> str:
        return "<copse.Topology %r: %d ranks, %d nodes, %d links>" % (
            self.name, self.ranks, len(self.nodes), len(self.links))

    def _repr_svg_(self) -> Optional[str]:
        """A picture for notebooks, by the program; None where it is missing."""
        return _library.drawing(["topo", "{topology}"], topology=self.json())


class Schedule(_library.Owner):
    """Weighted trees, or flows of an alltoall, with the bound that shows how good they are."""

    _kind = "schedule"
    _parsed: Dict[str, Any]
    _topology: Optional[Topology] = None

    @classmethod
    def read(cls, path: Path, topology: Optional[Topology] = None) -> Schedule:
        """Reads schedule JSON. Raises FileError, BadInput with the line.

        topology: what it is for; it is verified there, and notebooks show its picture. Raises
        Refuted, as verify does.
        """
        made = cls._made_by("copse_schedule_read", _library.encode(path))
        if topology is not None:
            made.verify(topology)
            made._topology = topology
        return made

    def write(self, path: Path) -> None:
        """Writes schedule JSON, beside the file and renamed. Raises FileError.

        >>> import os, tempfile
        >>> s = solve(Topology.synthetic("ring:3@10"), "allgather")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     s.write(os.path.join(folder, "s.json"))
        ...     Schedule.read(os.path.join(folder, "s.json")).json() == s.json()
        True
        """
        _library.call("copse_schedule_write", self._handle, _library.encode(path))

    def json(self, expand: bool = False) -> str:
        """Schedule JSON; expand: with all trees or flows of a compact schedule.

        Raises OutOfMemory for an expansion of more than 8 GiB.
        """
        return _library.text_of("copse_schedule_json", self._handle, int(expand))

    def _document(self) -> Dict[str, Any]:
        if not hasattr(self, "_parsed"):
            self._parsed = json.loads(self.json(expand=True))
        return self._parsed

    @property
    def collective(self) -> str:
        """One of COLLECTIVES."""
        return str(self._document()["collective"])

    @property
    def time_per_GB(self) -> Fraction:
        """Seconds per GB (10^9 bytes) of the message M, as NCCL counts it; 0 for one rank."""
        num, den = c_int64(), c_int64()
        _library.LIBRARY.copse_schedule_time(self._handle, ctypes.byref(num), ctypes.byref(den))
        return Fraction(num.value, den.value)

    @property
    def algbw(self) -> Optional[Fraction]:
        """GB/s: 1 / time_per_GB; None for a single rank, which sends nothing."""
        return 1 / self.time_per_GB if self.time_per_GB else None

    def trees(self) -> List[Tree]:
        """All trees; none of an alltoall, which has flows.

        >>> trees = solve(Topology.synthetic("switch:4@100"), "allgather").trees()
        >>> len(trees), sum(tree.weight for tree in trees)
        (4, Fraction(1, 1))
        >>> trees[0].edges[0].path[1]
        'switch'
        """
        return [Tree(t["root"], t["phase"], _library.fraction(t["weight"]),
                     tuple(Edge(e["src"], e["dst"], tuple(e["path"])) for e in t["edges"]),
                     t.get("stage", 0), t.get("piece", 0))
                for t in self._document().get("trees", [])]

    def flows(self) -> List[Flow]:
        """The flows of an alltoall, one for each pair of ranks that sends.

        >>> flows = solve(Topology.synthetic("ring:3@10"), "alltoall").flows()
        >>> len(flows), sum(share for flow in flows for share, path in flow.paths)
        (6, Fraction(2, 1))
        """
        return [Flow(f["src"], f["dst"], tuple((_library.fraction(p["weight"]), tuple(p["path"]))
                                               for p in f["paths"]))
                for f in self._document().get("flows", [])]

    def verify(self, topology: Topology) -> str:
        """Proves the schedule exactly, without the solver, and says what its bound proves.

        "optimal": no algorithm is faster; "both phases optimal"; "optimal among all reduce and
        broadcast forests with common shares"; "valid": none of them. Raises Refuted with the
        first defect.

        >>> s = solve(Topology.synthetic("ring:4@50"), "allreduce")
        >>> s.verify(Topology.synthetic("ring:4@50"))
        'both phases optimal'
        >>> s.verify(Topology.synthetic("ring:4@25"))
        Traceback (most recent call last):
          ...
        copse.Refuted: schedule: time_per_GB is 3/200, the most loaded link gives 3/100
        """
        what = c_int()
        _library.call("copse_schedule_verify", self._handle, topology._handle, ctypes.byref(what))
        return _PROVED[what.value]

    def loads(self, topology: Topology) -> List[Load]:
        """What the schedule puts on every link of its topology, in the order of its links there.

        Raises Refuted, as verify does.

        >>> t = Topology.synthetic("ring:4@50")
        >>> s = solve(t, "allgather")
        >>> max(load.time for load in s.loads(t)) == s.time_per_GB
        True
        """
        n = c_int64()
        none = ctypes.POINTER(_library.LinkLoad)()
        _library.call("copse_schedule_link_loads", self._handle, topology._handle, none, 0,
                      ctypes.byref(n))
        rows = (_library.LinkLoad * n.value)()
        _library.call("copse_schedule_link_loads", self._handle, topology._handle, rows, n.value,
                      ctypes.byref(n))
        return [Load(r.src.decode(), r.dst.decode(), Fraction(r.load_num, r.load_den),
                     Fraction(r.time_num, r.time_den)) for r in rows]

    def __repr__(self) -> str:
        return "<copse.Schedule %s of %r: %s s/GB>" % (
            self.collective, self._document()["topology"]["name"], self.time_per_GB)

    def _repr_svg_(self) -> Optional[str]:
        """The load of the links for notebooks, by the program; None for a schedule that was read
        without its topology."""
        if self._topology is None:
            return None
        return _library.drawing(["verify", "{schedule}", "-t", "{topology}"],
                                schedule=self.json(), topology=self._topology.json())


class Plan(_library.Owner):
    """An executable plan, as `copse lower --to plan` makes it."""

    _kind = "plan"

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Reads and validates a plan file. Raises FileError, BadInput."""
        return cls._made_by("copse_plan_load", _library.encode(path))

    def write(self, path: Path) -> None:
        """Writes the plan file, beside it and renamed. Raises FileError."""
        _library.call("copse_plan_write", self._handle, _library.encode(path))

    def check(self) -> None:
        """Proves result, absence of deadlock and of races, for all sizes. Raises Refuted."""
        _library.call("copse_plan_check", self._handle)

    def simulate(self, topology: Topology, sizes: Iterable[float]) -> List[float]:
        """Predicted microseconds for messages of `sizes` bytes, by the costs of `copse simulate`.

        Any sequence of numbers, also a NumPy array. Raises Invalid for a size that isn't from 1
        to 2^48, BadInput for a topology of other ranks.

        >>> t = Topology.synthetic("switch:4@100")
        >>> short, long = lower(solve(t, "allgather")).simulate(t, [1024, 2**30])
        >>> short < long
        True
        """
        asked = [float(size) for size in sizes]
        if not asked:
            return []
        us = (c_double * len(asked))()
        _library.call("copse_plan_predict", self._handle, topology._handle,
                      (c_double * len(asked))(*asked), len(asked), us)
        return list(us)


def _exact(what: str, value: Exact) -> Fraction:
    try:
        made = Fraction(value)
    except (TypeError, ValueError, ZeroDivisionError):
        raise Invalid("%s: %r is no exact number: an int, a Fraction or a text such as \"1/4\""
                      % (what, value), 2, "invalid argument") from None
    if max(abs(made.numerator), made.denominator) >= 2**63:
        raise Invalid("%s: %r has more than 63 bits" % (what, value), 2, "invalid argument")
    return made


def _in_range(what: str, value: int, bits: int) -> int:
    if not -2**bits <= value < 2**bits:
        raise Invalid("%s %d is out of range" % (what, value), 2, "invalid argument")
    return value


def _matrix(what: str, rows: Demand, n: int) -> Any:
    """n * n numbers for C, row by row."""
    if len(rows) != n or any(len(row) != n for row in rows):
        raise Invalid("%s: not %d rows of %d numbers, one for each rank" % (what, n, n), 2,
                      "invalid argument")
    return (c_int64 * (n * n))(*(_in_range(what, int(b), 63) for row in rows for b in row))


class _Listener:
    """Hands progress on; what the function raises is kept, since C can't be left by it."""

    def __init__(self, function: Optional[Progress]) -> None:
        self.function = function
        self.raised: Optional[BaseException] = None
        self.callback = _library.PROGRESS(self._hear) if function else _library.PROGRESS()

    def _hear(self, _ctx: Any, phase: bytes, done: int, total: int) -> None:
        if self.function is None or self.raised is not None:
            return
        try:
            self.function(phase.decode(), done / total if total > 0 else None)
        except BaseException as why:  # pylint: disable=broad-except
            self.raised = why


def solve(topology: Topology, collective: str, root: Optional[int] = None, k: int = 0,
          tolerance: Optional[Exact] = None, objective: Optional[float] = None, alpha: float = 2.0,
          progress: Optional[Progress] = None, *, demand: Optional[Demand] = None,
          forward: bool = True, routes: str = "free", in_network: bool = False) -> Schedule:
    """The exactly optimal schedule of a collective; the same in every run.

    collective: one of COLLECTIVES. root: of a broadcast or reduce, else None. k: trees per
    root, 0 for as many as the optimum needs, and with an objective. tolerance: how far above
    the optimum it may be for fewer trees, such as "1/100". objective: bytes; the schedule that
    is fastest for messages of that size, by the simulator, with `alpha` microseconds for each
    hop from rank to rank. progress: is called now and then, also from other threads; what it
    raises is raised when solving has ended. demand: of an alltoall, bytes from each rank (a
    row) to each, also as an array of NumPy; without it all send alike. forward: whether its
    ranks relay. routes: "fabric" for trees along the ways that the fabric takes by itself.
    in_network: an allreduce by switches that copy or add.
    Raises Invalid, Infeasible for a rank that can't be reached, BadInput for a relay whose ingress
    and egress differ, Overflow, OutOfMemory.

    >>> solve(Topology.synthetic("ring:4@50"), "broadcast", root=1).algbw
    Fraction(100, 1)
    >>> short = solve(Topology.synthetic("ring:8@50"), "allreduce", objective=1024)
    >>> short.verify(Topology.synthetic("ring:8@50"))
    'valid'
    >>> solve(Topology.synthetic("ring:3@50"), "alltoall", demand=[[0, 6, 0], [0, 0, 0], [2, 0, 0]]
    ...       ).time_per_GB            # M is the largest row: 6 bytes, over two ways of 50 GB/s
    Fraction(1, 100)
    >>> solve(Topology.synthetic("ring:4@50"), "gather")
    Traceback (most recent call last):
      ...
    copse.Invalid: no collective 'gather': one of allgather, reduce_scatter, allreduce, \
broadcast, reduce, alltoall
    """
    if collective not in COLLECTIVES:
        raise Invalid("no collective %r: one of %s" % (collective, ", ".join(COLLECTIVES)), 2,
                      "invalid argument")
    if routes not in ("free", "fabric"):
        raise Invalid("no routes %r: free or fabric" % (routes,), 2, "invalid argument")
    listener = _Listener(progress)
    request = _library.Request(size=ctypes.sizeof(_library.Request),
                               collective=COLLECTIVES.index(collective),
                               root=_in_range("root", -1 if root is None else root, 31),
                               k=_in_range("k", k, 63),
                               objective_bytes=0 if objective is None else float(objective),
                               alpha_us=alpha, progress=listener.callback,
                               no_forward=not forward, on_routes=routes == "fabric",
                               in_network=in_network)
    if demand is not None:
        request.demand = _matrix("demand", demand, topology.ranks)
    if tolerance is not None:
        part = _exact("tolerance", tolerance)
        request.tolerance_num, request.tolerance_den = part.numerator, part.denominator
    made = Schedule._made_by("copse_solve_request", topology._handle, ctypes.byref(request))
    if listener.raised is not None:
        raise listener.raised
    made._topology = topology
    return made


def solve_groups(topology: Topology, groups: Iterable[Group],
                 collective: str = "allreduce") -> List[Schedule]:
    """Schedules of groups of ranks that run at the same time, as `copse solve --groups` has them.

    groups: of each its ranks, or a line of that command's file, such as "allgather 0-3", where it
    runs another collective than `collective`. Ranks of a schedule are those of its group, in that
    order; its time is that of its links without the other groups. Together no trees and flows of
    these groups are faster. Raises Invalid, Infeasible for a rank that can't be reached.

    >>> ring = Topology.synthetic("ring:4@50")
    >>> [s.time_per_GB for s in solve_groups(ring, [[0, 1], "allgather 2,3"])]
    [Fraction(3, 200), Fraction(1, 100)]
    >>> solve_groups(ring, [[0, 7]])
    Traceback (most recent call last):
      ...
    copse.Invalid: groups:1: 7 in the list of ranks; the topology has ranks 0 to 3
    """
    lines = [g if isinstance(g, str) else ",".join(str(int(r)) for r in g) for g in groups]
    if any("\n" in line for line in lines):
        raise Invalid("a group is one line", 2, "invalid argument")
    with tempfile.TemporaryDirectory(prefix="copse-") as folder:
        with open(os.path.join(folder, "groups"), "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
        _library.run(["solve", "-", "-c", collective, "--groups", "groups", "-o", "made"],
                     topology.json(), folder)
        with open(os.path.join(folder, "made", "index.json"), encoding="utf-8") as file:
            members = json.load(file)["groups"]
        return [Schedule.read(os.path.join(folder, "made", m["file"]),
                              topology.change(ranks=",".join(m["ranks"]))) for m in members]


def lower(schedule: Schedule, workers: int = 0) -> Plan:
    """The executable plan of a schedule, with at most `workers` workers per rank (0: 32).

    Raises Unsupported for a schedule that no plan can be made of, Invalid.
    """
    return Plan._made_by("copse_lower", schedule._handle, _in_range("workers", workers, 31))


def version() -> str:
    """The version of libcopse, such as "0.1.0"."""
    return str(_library.LIBRARY.copse_version().decode())
