"""The module against what is known of small topologies, its errors, threads; and all docstrings.

Run by tests/api/test_python.c; alone: COPSE_LIBRARY=build/libcopse.so COPSE_BIN=build/copse
COPSE_TOPOLOGIES=topologies PYTHONPATH=python python3 -m unittest discover -s python/tests
"""
import doctest
import gc
import json
import os
import pickle
import re
import subprocess
import tempfile
import threading
import unittest
from fractions import Fraction

import copse


def load_tests(loader, tests, pattern):
    tests.addTests(doctest.DocTestSuite(copse))
    return tests


def command(line):
    """What the program prints."""
    done = subprocess.run([os.environ["COPSE_BIN"]] + line.split(), stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()


def in_order(tree):
    """Whether a broadcast tree reaches every rank once, each source before; of a reduce reversed."""
    reached = [tree.root]
    edges = tree.edges if tree.phase == "broadcast" else tree.edges[::-1]
    for edge in edges:
        src, dst = (edge.src, edge.dst) if tree.phase == "broadcast" else (edge.dst, edge.src)
        if src not in reached or dst in reached:
            return False
        reached.append(dst)
    return True


class Groups(unittest.TestCase):
    def test_are_the_commands_and_proved(self):
        torus = copse.Topology.synthetic("torus:2x4@50")
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/groups", "w", encoding="utf-8") as file:
                file.write("5,4,6,7\nallgather 0-3\n")
            command("solve --synthetic torus:2x4@50 -c alltoall --groups %s/groups -o %s/made" % (folder, folder))
            theirs = [copse.Schedule.read("%s/made/group-%d.json" % (folder, i)).json() for i in range(2)]
        made = copse.solve_groups(torus, [[5, 4, 6, 7], "allgather 0-3"], "alltoall")
        self.assertEqual([s.json() for s in made], theirs)
        self.assertEqual([s.collective for s in made], ["alltoall", "allgather"])
        for schedule in made:
            copse.lower(schedule).check()

    def test_what_is_refused_names_the_line(self):
        ring = copse.Topology.synthetic("ring:4@50")
        with self.assertRaisesRegex(copse.Invalid, "^groups:2: a group of one rank"):
            copse.solve_groups(ring, [[0, 1], [2]])
        with self.assertRaisesRegex(copse.Invalid, "^a group is one line"):
            copse.solve_groups(ring, ["0,1\n2,3"])


class Topologies(unittest.TestCase):
    def test_links_have_the_files_bandwidth_and_latency(self):
        text = ('{"format": "copse-topology/1", "name": "two", "nodes": [{"id": "a", "type": "gpu"}, '
                '{"id": "b", "type": "gpu"}], "links": [{"src": "a", "dst": "b", "bandwidth": "625/2", "latency": 0.7}]}')
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "two.json")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            links = copse.Topology.read(path).links
        self.assertEqual({(l.src, l.dst, l.bandwidth, l.latency) for l in links},
                         {("a", "b", Fraction(625, 2), Fraction(7, 10)), ("b", "a", Fraction(625, 2), Fraction(7, 10))})


    def test_changes_are_those_of_the_command(self):
        whole = copse.Topology.catalogue("a100-x2")
        for options, changed in (
                ("--down h0.nic3 --derate h1.nic0=50%%", whole.change(down=["h0.nic3"], derate={"h1.nic0": Fraction(1, 2)})),
                ("--ranks 0-3,12", whole.change(ranks=[0, 1, 2, 3, 12])),
                ("--ranks 0-3,h1.gpu4 --others exclude", whole.change(ranks="0-3,h1.gpu4", others="exclude")),
                ("--down h1.* --ranks 7,6", whole.change(down="h1.*", ranks=[7, 6]))):
            self.assertEqual(changed.json(), command("topo a100-x2 -o - " + options.replace("%%", "%")), options)

    def test_changes_that_make_no_sense_are_refused(self):
        whole = copse.Topology.catalogue("a100-x2")
        for error, text, asked in (
                (copse.BadInput, "h0.nic9", {"down": ["h0.nic9"]}),
                (copse.BadInput, "can't be down and one of the ranks", {"down": ["h0.gpu1"], "ranks": [0, 1]}),
                (copse.BadInput, "99", {"ranks": [99]}),
                (copse.Invalid, "fraction from 0 to 1", {"derate": {"h0.nic0": 2}}),
                (copse.Invalid, "no exact number", {"derate": {"h0.nic0": "half"}}),
                (copse.Invalid, "forward", {"ranks": [0], "others": "leave"})):
            with self.assertRaises(error) as caught:
                whole.change(**asked)
            self.assertIn(text, str(caught.exception))


class Schedules(unittest.TestCase):
    def setUp(self):
        self.topology = copse.Topology.catalogue("hgx-a100-4")

    def solved(self, collective):
        root = 1 if collective in ("broadcast", "reduce") else None
        return copse.solve(self.topology, collective, root=root)

    def test_loads_are_those_of_the_trees_and_flows(self):
        """Added up here again from the paths. A file numbers the nodes in another order."""
        self.topology = copse.Topology.catalogue("a100-x2")
        with tempfile.TemporaryDirectory() as folder:
            for collective in copse.COLLECTIVES:
                schedule = self.solved(collective)
                schedule.write(os.path.join(folder, "s.json"))
                sums = {}
                paths = [(t.weight, e.path) for t in schedule.trees() for e in t.edges]
                paths += [way for f in schedule.flows() for way in f.paths]
                for weight, path in paths:
                    for link in zip(path, path[1:]):
                        sums[link] = sums.get(link, 0) + weight
                for one in (schedule, copse.Schedule.read(os.path.join(folder, "s.json"))):
                    loads = one.loads(self.topology)
                    self.assertEqual({(l.src, l.dst): l.load for l in loads if l.load}, sums)
                    rates = {(l.src, l.dst): l.bandwidth for l in self.topology.links}
                    self.assertEqual(len(loads), len(rates))
                    for load in loads:
                        self.assertEqual(load.time, load.load / rates[load.src, load.dst])
                    self.assertEqual(max(l.time for l in loads), schedule.time_per_GB)

    def test_trees_span_and_their_weights_are_the_message(self):
        for collective in copse.COLLECTIVES[:5]:
            schedule = self.solved(collective)
            for phase in ("broadcast", "reduce"):
                trees = [t for t in schedule.trees() if t.phase == phase]
                self.assertTrue(all(in_order(t) and len(t.edges) == 3 for t in trees))
                self.assertIn(sum(t.weight for t in trees), (0, 1))
            self.assertNotEqual(schedule.verify(self.topology), "valid")

    def test_a_compact_schedule_is_expanded(self):
        ring = copse.Topology.synthetic("ring:6@10")
        with tempfile.TemporaryDirectory() as folder:
            ring_file, file = os.path.join(folder, "t.json"), os.path.join(folder, "s.json")
            with open(ring_file, "w") as out:
                out.write(ring.json())
            command = "%s solve %s -c allgather --compact -o %s >%s" % (
                os.environ["COPSE_BIN"], ring_file, file, os.devnull)
            self.assertEqual(os.system(command), 0)
            compact = copse.Schedule.read(file)
        self.assertIn('"symmetry"', compact.json())
        self.assertNotIn('"symmetry"', compact.json(expand=True))
        self.assertEqual(len({t.root for t in compact.trees()}), 6)
        self.assertEqual(max(l.time for l in compact.loads(ring)), compact.time_per_GB)

    def test_requests_are_those_of_the_command(self):
        topology = copse.Topology.synthetic("hypercube:3@50")
        for options, made in (
                ("-c allreduce --objective 1024 --alpha 0.7", copse.solve(topology, "allreduce", objective=1024, alpha=0.7)),
                ("-c broadcast --root 3 --tolerance 1%", copse.solve(topology, "broadcast", root=3, tolerance="0.01"))):
            self.assertEqual(made.json(), command("solve --synthetic hypercube:3@50 -o - " + options), options)
        ring = copse.Topology.synthetic("ring:4@50") # the hypercube takes five seconds of CPU twice
        self.assertEqual(copse.solve(ring, "allgather", objective=2**20, tolerance="1/50").json(),
                         command("solve --synthetic ring:4@50 -o - -c allgather --objective 1M --tolerance 2%"))
        bytes_to = [[(i * 7 + j * 3) % 5 for j in range(8)] for i in range(8)]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"format": "copse-demand/1", "bytes": bytes_to}, file)
            file.flush()
            for options, made in (
                    ("-c alltoall --demand " + file.name, copse.solve(topology, "alltoall", demand=bytes_to)),
                    ("-c allreduce --routes fabric", copse.solve(topology, "allreduce", routes="fabric"))):
                self.assertEqual(made.json(), command("solve --synthetic hypercube:3@50 -o - " + options), options)
        switches = copse.Topology.catalogue("dgx-h100")
        for options, made in (("-c allreduce --in-network", copse.solve(switches, "allreduce", in_network=True)),
                              ("-c alltoall --no-forward", copse.solve(switches, "alltoall", forward=False))):
            self.assertEqual(made.json(), command("solve dgx-h100 -o - " + options), options)
        for asked in ({"demand": [[1]]}, {"demand": [[0] * 8] * 8}, {"demand": [[-1] * 8] * 8}, {"routes": "nccl"}):
            with self.assertRaises(copse.Invalid):
                copse.solve(topology, "alltoall", **asked)
        for asked in ({"objective": 0.5}, {"alpha": -1}, {"tolerance": "-1/2"}, {"tolerance": 0.01j},
                      {"objective": 1024, "k": 3}):
            with self.assertRaises(copse.Invalid):
                copse.solve(topology, "allgather", **asked)

    def test_progress_is_heard_and_what_it_raises_comes_back(self):
        heard = []
        topology = copse.Topology.catalogue("a100-x2")
        copse.solve(topology, "allgather", progress=lambda phase, part: heard.append((phase, part)))
        self.assertIn("pack", {phase for phase, part in heard})
        self.assertTrue(all(part is None or 0 <= part <= 1 for phase, part in heard))

        def stop(phase, part):
            raise KeyError(phase)
        with self.assertRaises(KeyError):
            copse.solve(topology, "allgather", progress=stop)

    def test_arrays_of_numpy_are_sizes(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is missing")
        plan = copse.lower(self.solved("allgather"))
        sizes = numpy.array([1024, 2**20], dtype=numpy.int32)
        self.assertEqual(plan.simulate(self.topology, sizes), plan.simulate(self.topology, [1024, 2**20]))

    def test_one_rank_sends_nothing(self):
        alone = copse.Topology.synthetic("full:1@10")
        schedule = copse.solve(alone, "allreduce")
        self.assertEqual((schedule.time_per_GB, schedule.algbw, schedule.loads(alone)), (0, None, []))


class Plans(unittest.TestCase):
    def test_a_damaged_plan_is_refused_and_a_whole_one_comes_back(self):
        topology = copse.Topology.synthetic("switch:4@100")
        plan = copse.lower(copse.solve(topology, "allreduce"), workers=4)
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "p.plan")
            plan.write(file)
            again = copse.Plan.read(file)
            again.check()
            sizes = [2**10, 2**20, 2**30]
            us = again.simulate(topology, sizes)
            self.assertEqual(us, plan.simulate(topology, sizes))
            # never below the bound: 3/200 s per GB of both phases
            self.assertGreaterEqual(us[2], float(Fraction(3, 200)) * 2**30 / 1e9 * 1e6)
            with open(file, "r+b") as out:
                out.seek(200)
                out.write(b"\xff" * 8)
            with self.assertRaises(copse.BadInput) as caught:
                copse.Plan.read(file)
            self.assertIn(file, str(caught.exception))
        self.assertEqual(plan.simulate(topology, []), [])
        for wrong in (0, -1, 2.0**49, float("nan")):
            with self.assertRaises(copse.Invalid):
                plan.simulate(topology, [wrong])
        with self.assertRaises(copse.BadInput):
            plan.simulate(copse.Topology.synthetic("ring:3@1"), [1024])


class Errors(unittest.TestCase):
    def test_each_has_text_status_and_name(self):
        ring = copse.Topology.synthetic("ring:4@50")
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "t.json")
            with open(file, "w") as out:
                out.write('{"format": "copse-topology/1",\n "nodes": 3}')
            apart = os.path.join(folder, "apart.json")
            with open(apart, "w") as out:
                out.write('{"format": "copse-topology/1", "nodes": [{"id": "a", "type": "gpu"}, '
                          '{"id": "b", "type": "gpu"}], "links": []}')
            cases = [
                (copse.BadInput, 3, ":2", lambda: copse.Topology.read(file)),
                (copse.FileError, 4, "no-file", lambda: copse.Schedule.read(folder + "/no-file")),
                (copse.FileError, 4, "no-folder", lambda: copse.lower(
                    copse.solve(ring, "allgather")).write(folder + "/no-folder/p")),
                (copse.Infeasible, 5, "", lambda: copse.solve(copse.Topology.read(apart),
                                                              "allgather")),
                (copse.Invalid, 2, "root", lambda: copse.solve(ring, "allgather", root=1)),
                (copse.Invalid, 2, "k", lambda: copse.solve(ring, "allgather", k=2**80)),
                (copse.Invalid, 2, "NUL", lambda: copse.Topology.read("a\0b")),
                (copse.Invalid, 2, "no-name", lambda: copse.Topology.catalogue("no-name")),
                (copse.Invalid, 2, "links", lambda: copse.Topology.read(file, links="some")),
                (copse.BadInput, 3, "nothing:4", lambda: copse.Topology.synthetic("nothing:4@1")),
            ]
            for kind, status, part, act in cases:
                with self.assertRaises(kind) as caught:
                    act()
                self.assertEqual(caught.exception.status, status)
                self.assertIn(part, str(caught.exception))
                self.assertNotIn("\n", str(caught.exception))
                self.assertTrue(caught.exception.name)
                back = pickle.loads(pickle.dumps(caught.exception))
                self.assertEqual((str(back), back.status), (str(caught.exception), status))
            self.assertRaises(ValueError, lambda: copse.Topology.read(file))
            self.assertRaises(OSError, lambda: copse.Plan.read(folder + "/no-file"))
        self.assertRaises(TypeError, copse.Plan)

    def test_each_thread_has_its_own_text(self):
        wrong = []

        def ask(rank):
            for _ in range(50):
                try:
                    copse.Topology.read("/no/file-%d" % rank)
                except copse.FileError as why:
                    if "file-%d:" % rank not in str(why):
                        wrong.append(str(why))

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Whole(unittest.TestCase):
    def test_another_thread_runs_while_one_solves(self):
        """The call holds no GIL: this thread counts meanwhile, far more than between two calls."""
        topology = copse.Topology.synthetic("torus:4x4@50")
        ended = threading.Event()

        def solve():
            copse.solve(topology, "allreduce")
            ended.set()

        thread = threading.Thread(target=solve)
        thread.start()
        count = 0
        while not ended.is_set():
            count += 1
        thread.join()
        self.assertGreater(count, 100)

    def test_pictures_are_svg_and_absent_without_the_program(self):
        topology = copse.Topology.synthetic("ring:4@50")
        schedule = copse.solve(topology, "broadcast", root=2)
        for drawn in (topology, schedule):
            self.assertIn("<svg", drawn._repr_svg_())
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "s.json")
            for name, collective in (("a100-x2", "allreduce"), ("hgx-a100-4", "alltoall")):
                there = copse.Topology.catalogue(name)
                copse.solve(there, collective).write(path)
                self.assertEqual(copse.Schedule.read(path, there)._repr_svg_(),
                                 command("solve %s -c %s --draw -" % (name, collective)))
            self.assertIsNone(copse.Schedule.read(path)._repr_svg_())
            with self.assertRaises(copse.Refuted):
                copse.Schedule.read(path, topology)
        bin_before = os.environ["COPSE_BIN"]
        os.environ["COPSE_BIN"] = "/no/such/program"
        try:
            self.assertIsNone(topology._repr_svg_())
        finally:
            os.environ["COPSE_BIN"] = bin_before

    def test_handles_are_freed(self):
        """Resident memory stays as it is over many topologies of some 100 KB each."""
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096

        if "libasan" in os.environ.get("LD_PRELOAD", ""):
            self.skipTest("ASan keeps what was freed")
        for _ in range(20):
            copse.Topology.catalogue("a100-x2").json()
        gc.collect()
        before = resident()
        for _ in range(300):
            copse.Topology.catalogue("a100-x2").json()
        self.assertLess(resident() - before, 8 << 20)

    def test_structures_are_those_of_the_headers(self):
        """libcopse writes all of a structure: a field less here is memory that is not ours."""
        include = os.path.join(os.path.dirname(__file__), "..", "..", "include", "copse")
        text = ""
        for header in ("comm.h", "copse.h", "wire.h"):
            with open(os.path.join(include, header)) as file:
                text += re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        library = copse._library
        for name, ours in (("bootstrap", library.Bootstrap), ("fault_at", library.FaultAt),
                           ("link_load", library.LinkLoad), ("request", library.Request),
                           ("wire", library.Wire)):
            body = re.search(r"typedef struct copse_%s \{(.*?)\} copse_%s;" % (name, name), text, re.S)
            fields = [re.search(r"\(\*(\w+)\)", line) or re.search(r"(\w+)$", line)
                      for declaration in body.group(1).split(";") if declaration.strip()
                      for line in ([declaration] if "(" in declaration else declaration.split(","))]
            self.assertEqual([f.group(1) for f in fields], [f for f, _ in ours._fields_], name)

    def test_names_are_those_of_the_catalogue(self):
        here = {os.path.splitext(f)[0] for f in os.listdir(os.environ["COPSE_TOPOLOGIES"])
                if f.endswith((".json", ".xml", ".txt"))}
        self.assertEqual(set(copse.Topology.names()), here)


if __name__ == "__main__":
    unittest.main()
