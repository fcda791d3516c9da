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
from ctypes import c_double, c_int, c_int64
from fractions import Fraction
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

from . import _library
from ._library import (BadInput, Error, FileError, Infeasible, Invalid, OutOfMemory, Overflow,
                       Refuted, Unsupported)

__all__ = ["BadInput", "Edge", "Error", "FileError", "Flow", "Infeasible", "Invalid", "Link", "Load",
           "Node", "OutOfMemory", "Overflow", "Plan", "Refuted", "Schedule", "Topology", "Tree",
           "Unsupported", "COLLECTIVES", "lower", "solve", "version"]

Path = Union[str, "os.PathLike[str]"]

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
        return _library.drawing(["topo", "-"], self.json())


class Schedule(_library.Owner):
    """Weighted trees, or flows of an alltoall, with the bound that shows how good they are."""

    _kind = "schedule"
    _parsed: Dict[str, Any]
    _solved: Optional[Tuple[Topology, str, int, int]] = None

    @classmethod
    def read(cls, path: Path) -> Schedule:
        """Reads schedule JSON. Raises FileError, BadInput with the line."""
        return cls._made_by("copse_schedule_read", _library.encode(path))

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
        """The load of the links for notebooks, by the program, which solves again (the same
        schedule: solving is deterministic); None for a schedule that was read."""
        if self._solved is None:
            return None
        topology, collective, root, k = self._solved
        arguments = ["solve", "-", "-c", collective]
        arguments += ["--root", str(root)] if root >= 0 else []
        arguments += ["--k", str(k)] if k > 0 else []
        return _library.drawing(arguments, topology.json())


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


def solve(topology: Topology, collective: str, root: Optional[int] = None, k: int = 0) -> Schedule:
    """The exactly optimal schedule of a collective; the same in every run.

    collective: one of COLLECTIVES. root: of a broadcast or reduce, else None. k: trees per root,
    0 for as many as the optimum needs.
    Raises Invalid, Infeasible for a rank that can't be reached, BadInput for a relay whose ingress
    and egress differ, Overflow, OutOfMemory.

    >>> solve(Topology.synthetic("ring:4@50"), "broadcast", root=1).algbw
    Fraction(100, 1)
    >>> solve(Topology.synthetic("ring:4@50"), "gather")
    Traceback (most recent call last):
      ...
    copse.Invalid: no collective 'gather': one of allgather, reduce_scatter, allreduce, \
broadcast, reduce, alltoall
    """
    if collective not in COLLECTIVES:
        raise Invalid("no collective %r: one of %s" % (collective, ", ".join(COLLECTIVES)), 2,
                      "invalid argument")
    at = -1 if root is None else root
    for what, value, bits in (("root", at, 31), ("k", k, 63)):
        if not -2**bits <= value < 2**bits:
            raise Invalid("%s %d is out of range" % (what, value), 2, "invalid argument")
    made = Schedule._made_by("copse_solve", topology._handle, COLLECTIVES.index(collective), at, k)
    made._solved = (topology, collective, at, k)
    return made


def lower(schedule: Schedule, workers: int = 0) -> Plan:
    """The executable plan of a schedule, with at most `workers` workers per rank (0: 32).

    Raises Unsupported for a schedule that no plan can be made of, Invalid.
    """
    if not -2**31 <= workers < 2**31:
        raise Invalid("workers %d is out of range" % workers, 2, "invalid argument")
    return Plan._made_by("copse_lower", schedule._handle, workers)


def version() -> str:
    """The version of libcopse, such as "0.1.0"."""
    return str(_library.LIBRARY.copse_version().decode())
