"""PyTorch's own tests of torch.distributed with a backend: suite.py BACKEND [NAME...]

Prints a line for each test: passed, skipped or failed with the first line of the reason. The tests are those that
PyTorch runs for gloo: their decorators are evaluated for it, and then the backend is changed.
"""
import os
import sys
import tempfile
import time
import unittest

backend = sys.argv[1]
os.environ.update(BACKEND="gloo", WORLD_SIZE=os.environ.get("WORLD_SIZE", "3"),
                  TEMP_DIR=tempfile.mkdtemp(), PYTORCH_TEST_WITH_SLOW="0")
for folder in ("barrier", "test_dir", "init_dir"):
    os.mkdir(os.path.join(os.environ["TEMP_DIR"], folder))
os.environ["INIT_METHOD"] = "file://%s/init_dir/shared" % os.environ["TEMP_DIR"]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.testing._internal.distributed import distributed_test as tests  # noqa: E402


class Likewise(str):
    """Takes the ways of a test's body that are gloo's: they are for backends on CPUs."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        return str.__eq__(self, other) is True or other == "gloo"

    def __ne__(self, other):
        return not self == other


if backend != "gloo":
    import copse.torch  # noqa: E402,F401
    tests.BACKEND = Likewise(backend)
    for kind in ("ddp", "subgroup", "gpu", "cuda"):
        tests.DistTestCases.backend_feature[kind].add(backend)


class Suite(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    """As PyTorch's test_distributed_spawn.py has it; forked, so that torch is imported once."""

    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


class Result(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        self.begun = time.time()

    def say(self, what, test, text=""):
        print("%-7s %s %.1f %s" % (what, test.id().split(".")[-1], time.time() - self.begun, text), flush=True)

    def addSuccess(self, test):
        self.say("passed", test)

    def addSkip(self, test, reason):
        self.say("skipped", test, reason)

    def addError(self, test, err):
        super().addError(test, err)
        lines = [l for l in str(err[1]).strip().split("\n") if "Error" in l] or [str(err[1]).split("\n")[0]]
        self.say("failed", test, lines[-1][:300])

    addFailure = addError


names = sys.argv[2:] or unittest.defaultTestLoader.getTestCaseNames(Suite)
result = Result()
unittest.TestSuite([Suite(n) for n in names]).run(result)
