"""
Executions of small programs that PTX's memory model allows, all of them.

The axioms are those of the PTX ISA, "Memory Consistency Model" ("Relations", "Axioms"), in the form of
D. Lustig, S. Sahasrabuddhe, O. Giroux, "A Formal Analysis of the NVIDIA PTX Memory Consistency Model"
(ASPLOS 2019): coherence, causality, SC per location, no thin air. The programs here have neither
read-modify-writes nor fence.sc, so atomicity and Fence-SC say nothing.

A program is a list of threads, each a list of operations. A read states the value that it gets: a loop that polls
is the read that ends it. An execution gives every read the write that it reads from and every location an order of
its writes. `executions` yields those that break no axiom.

What the ISA leaves to CUDA: between two kernels of one stream everything of the first happens before everything of
the second ("end" and "start", of a grid), with the effect of a fence.acq_rel.sys and of a proxy fence at both.

Multicast ("Multimem Addresses", "Proxies", "Proxy-preserved Base Causality Order"): a multimem operation is one
operation at each of the locations behind its address, which is an alias of their ordinary addresses. Operations by
different addresses are never morally strong to each other, and base causality orders them only where an alias proxy
fence (fence.proxy.alias) is on the path.
"""
import itertools

SCOPES = {"cta": 0, "gpu": 1, "sys": 2}


class Op:
    """A write, read, fence, proxy fence, or one side of a barrier."""

    def __init__(self, kind, at=None, value=None, order="weak", scope=None, meets=None, needs=(), via=None):
        self.kind, self.at, self.value, self.via = kind, at, value, via
        self.order, self.scope, self.meets, self.needs = order, scope, meets, needs
        self.thread = self.place = None

    def __repr__(self):
        what = f"{self.kind}.{self.order}" + (f".{self.scope}" if self.scope else "")
        return f"{self.thread}: {what} {self.at or self.meets or ''} {self.value if self.at else ''}"


def write(at, value, order="weak", scope=None, needs=(), via=None):
    """needs: the earlier reads of the thread whose values it can't be computed without. via: the alias, if it is
    not the ordinary address."""
    return Op("W", at, value, order, scope, needs=needs, via=via)


def read(at, value, order="weak", scope=None, via=None):
    return Op("R", at, value, order, scope, via=via)


def alias_fence():
    """fence.proxy.alias"""
    return Op("P")


def fence(scope):
    return Op("F", order="acq_rel", scope=scope)


def arrive(barrier):
    return Op("arrive", meets=barrier)


def leave(barrier):
    return Op("leave", meets=barrier)


def meet(barrier):
    """bar.sync, or __syncwarp: orders memory among those that take part."""
    return [arrive(barrier), leave(barrier)]


def end(grid):
    return [fence("sys"), alias_fence(), arrive(grid)]


def start(grid):
    return [leave(grid), alias_fence(), fence("sys")]


class Thread:
    def __init__(self, name, gpu, block, *ops):
        self.name, self.gpu, self.block, self.ops = name, gpu, block, []
        for op in ops:
            self.ops += op if isinstance(op, list) else [op]
        for place, op in enumerate(self.ops):
            op.thread, op.place = self, place

    def __repr__(self):
        return self.name


def closure(edges):
    """Transitive; of pairs."""
    after = {}
    for a, b in edges:
        after.setdefault(a, set()).add(b)
    changed = True
    while changed:
        changed = False
        for a in after:
            more = set().union(*(after.get(b, set()) for b in after[a])) - after[a]
            if more:
                after[a] |= more
                changed = True
    return {(a, b) for a in after for b in after[a]}


def is_cyclic(edges):
    return any(a is b for a, b in closure(edges))


def includes(op, other):
    """Whether the scope of a strong operation includes the other's thread."""
    if op.scope == "sys":
        return True
    same_gpu = op.thread.gpu == other.thread.gpu
    return same_gpu if op.scope == "gpu" else same_gpu and op.thread.block == other.thread.block


def are_aliases(a, b):
    return a.at is not None and a.at == b.at and a.via != b.via


def morally_strong(a, b):
    if are_aliases(a, b):
        return False
    if a.thread is b.thread:
        return True
    if a.order == "weak" or b.order == "weak":
        return False
    return includes(a, b) and includes(b, a)


class Program:
    def __init__(self, *threads):
        self.ops = [op for thread in threads for op in thread.ops]
        self.reads = [op for op in self.ops if op.kind == "R"]
        self.init = {}
        for op in self.ops:
            if op.at is not None and op.at not in self.init:
                self.init[op.at] = Op("W", op.at, 0)
        self.writes = {at: [op for op in self.ops if op.kind == "W" and op.at == at] for at in self.init}
        self.po = {(a, b) for t in threads for a, b in itertools.combinations(t.ops, 2)}
        self.po_at = {(a, b) for a, b in self.po if a.at is not None and a.at == b.at and a.via == b.via}
        self.needs = {(r, op) for op in self.ops for r in op.needs}
        self.meets = {(a, b) for a in self.ops for b in self.ops
                      if a.kind == "arrive" and b.kind == "leave" and a.meets == b.meets
                      and a.thread is not b.thread}
        self.releases = [(f, w) for w in self.ops if w.kind == "W" for f in self.release_starts(w)]
        self.acquires = [(r, l) for r in self.reads for l in self.acquire_ends(r)]

    def release_starts(self, w):
        """First operations of the release patterns that the write is in."""
        if w.order == "release":
            yield w
        if w.order == "weak":
            return
        for f in w.thread.ops[: w.place]:
            if f.kind == "F" or (f.kind == "W" and f.at == w.at and f.order == "release"):
                yield f

    def acquire_ends(self, r):
        if r.order == "acquire":
            yield r
        if r.order == "weak":
            return
        for f in r.thread.ops[r.place + 1:]:
            if f.kind == "F" or (f.kind == "R" and f.at == r.at and f.order == "acquire"):
                yield f

    def sources(self, r):
        return [w for w in [self.init[r.at]] + self.writes[r.at] if w.value == r.value]

    def executions(self):
        """Those that break no axiom: {read: its write}, {location: its writes in order}."""
        orders = [list(itertools.permutations(self.writes[at])) for at in self.init]
        for sources in itertools.product(*(self.sources(r) for r in self.reads)):
            rf = dict(zip(self.reads, sources))
            causes = self.causality(rf)
            if causes is None:
                continue
            for chosen in itertools.product(*orders):
                co = dict(zip(self.init, chosen))
                if self.is_allowed(rf, co, causes):
                    yield rf, co

    def causality(self, rf):
        """Causality order, or None where it or no-thin-air is broken already."""
        reads_from = {(w, r) for r, w in rf.items()}
        if is_cyclic(reads_from | self.needs):
            return None
        observed = {(w, r) for w, r in reads_from if w.thread and morally_strong(w, r)}
        sync = {(f, l) for f, w in self.releases for r, l in self.acquires
                if rf[r] is w and (w, r) in observed and morally_strong(f, l)
                and f.thread is not l.thread}
        base = closure(self.po | sync | self.meets)
        if any(a is b for a, b in base):
            return None
        fences = [op for op in self.ops if op.kind == "P"]
        base = {(a, b) for a, b in base if not are_aliases(a, b) or
                any((a, f) in base and (f, b) in base for f in fences)}
        return base | {(w, b) for w, r in observed for a, b in base if a is r}

    def is_allowed(self, rf, co, causes):
        place = {w: i for at in co for i, w in enumerate((self.init[at],) + co[at])}
        if any(place[a] > place[b] for a, b in causes
               if a.kind == b.kind == "W" and a.at == b.at):
            return False  # coherence
        for r, w in rf.items():
            for a, b in causes:
                if a is r and b is w:
                    return False  # causality: from its own future
                if b is r and a.kind == "W" and a.at == r.at and place[w] < place[a]:
                    return False  # causality: a newer write comes before the read
        communicate = {(w, r) for r, w in rf.items()}
        for r, w in rf.items():
            communicate |= {(r, n) for n in co[r.at] if place[n] > place[w]}
        for at in co:
            communicate |= set(itertools.combinations(co[at], 2))
        strong = {(a, b) for a, b in communicate if a.thread and b.thread and morally_strong(a, b)}
        return not is_cyclic(strong | self.po_at)  # SC per location

    def races(self, causes):
        """Conflicting operations, one of them not strong enough, that nothing orders."""
        for a, b in itertools.combinations([op for op in self.ops if op.at is not None], 2):
            if a.at == b.at and "W" in (a.kind, b.kind) and not morally_strong(a, b):
                if (a, b) not in causes and (b, a) not in causes:
                    yield a, b


def is_possible(*threads):
    """Whether some execution gives every read its value."""
    return any(True for _ in Program(*threads).executions())


def has_race(*threads):
    program = Program(*threads)
    return any(any(True for _ in program.races(program.causality(rf))) for rf, _ in program.executions())
