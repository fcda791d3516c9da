"""Makes the wheel (PEP 517): the module, and the command, libcopse and the catalogue by `make`.

The standard library alone, so that `pip wheel ./python` needs no network. The wheel is for this
platform and any Python from 3.9 on: the module speaks to libcopse by ctypes. MAKEFLAGS and CC,
CXX, NVCC in the environment are make's.
"""
from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from typing import Any, Dict, List, Optional, Tuple

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


def _version() -> str:
    with open(os.path.join(ROOT, "include", "copse", "copse.h"), encoding="utf-8") as file:
        found = re.search(r'^#define COPSE_VERSION_STRING "(.*)"', file.read(), re.M)
    if not found:
        sys.exit("copse: include/copse/copse.h: COPSE_VERSION_STRING is missing")
    return found.group(1)


def _tag() -> str:
    return "py3-none-" + re.sub(r"[^A-Za-z0-9]", "_", sysconfig.get_platform())


def _metadata() -> List[Tuple[str, bytes]]:
    info = "copse-%s.dist-info/" % _version()
    with open(os.path.join(ROOT, "docs", "python.md"), encoding="utf-8") as file:
        about = file.read()
    return [
        (info + "METADATA",
         ("Metadata-Version: 2.1\nName: copse\nVersion: %s\nSummary: Provably optimal schedules of "
          "collective communication\nLicense: Apache-2.0\nRequires-Python: >=3.9\n"
          "Classifier: Operating System :: POSIX :: Linux\nClassifier: Typing :: Typed\n"
          "Description-Content-Type: text/markdown\n\n%s" % (_version(), about)).encode()),
        (info + "WHEEL", ("Wheel-Version: 1.0\nGenerator: copse\nRoot-Is-Purelib: false\nTag: %s\n"
                          % _tag()).encode()),
        (info + "entry_points.txt", b"[console_scripts]\ncopse = copse.__main__:main\n"),
    ]


def _has_ucx() -> bool:
    """Whether copse.torch has what it needs, as the Makefile finds out."""
    try:
        return subprocess.run(["pkg-config", "--exists", "ucx"], check=False).returncode == 0
    except OSError:
        return False


def _make() -> None:
    command = ["make", "-C", ROOT, "VARIANT=release", "build/copse", "build/libcopse.so"]
    if _has_ucx():
        command.append("build/libcopse-ucx.so")
    if "MAKEFLAGS" not in os.environ:
        command.append("-j%d" % (os.cpu_count() or 1))
    # stdout is pip's; what make says belongs to the log
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        sys.exit("copse: make failed (above); ./scripts/bootstrap installs what copse builds with")


def _files() -> List[Tuple[str, str]]:
    """(name in the wheel, path)."""
    found = [("copse/_native/bin/copse", os.path.join(ROOT, "build", "copse")),
             ("copse/_native/lib/libcopse.so.0", os.path.join(ROOT, "build", "libcopse.so"))]
    if _has_ucx():
        found.append(("copse/_native/lib/libcopse-ucx.so.0",
                      os.path.join(ROOT, "build", "libcopse-ucx.so")))
    for folder, into, ends in ((os.path.join(HERE, "copse"), "copse/", (".py", "py.typed")),
                               (os.path.join(ROOT, "topologies"),
                                "copse/_native/share/copse/topologies/", (".json", ".xml"))):
        found += [(into + name, os.path.join(folder, name))
                  for name in sorted(os.listdir(folder)) if name.endswith(ends)]
    return found


def _record(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return "%s,sha256=%s,%d\n" % (name, digest, len(data))


def _write(path: str) -> None:
    """Beside the file, then renamed. The same files give the same bytes."""
    records, info = "", "copse-%s.dist-info/" % _version()
    try:
        with zipfile.ZipFile(path + ".part", "w", zipfile.ZIP_DEFLATED) as wheel:
            def add(name: str, data: bytes, mode: int) -> None:
                entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
                entry.external_attr = (0o100000 | mode) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                wheel.writestr(entry, data)

            for name, source in _files():
                with open(source, "rb") as file:
                    data = file.read()
                add(name, data, 0o755 if os.access(source, os.X_OK) else 0o644)
                records += _record(name, data)
            for name, data in _metadata():
                add(name, data, 0o644)
                records += _record(name, data)
            add(info + "RECORD", (records + info + "RECORD,,\n").encode(), 0o644)
        os.replace(path + ".part", path)
    finally:
        if os.path.exists(path + ".part"):
            os.unlink(path + ".part")


def build_wheel(wheel_directory: str, config_settings: Optional[Dict[str, Any]] = None,
                metadata_directory: Optional[str] = None) -> str:
    name = "copse-%s-%s.whl" % (_version(), _tag())
    _make()
    _write(os.path.join(wheel_directory, name))
    return name


def build_sdist(sdist_directory: str, config_settings: Optional[Dict[str, Any]] = None) -> str:
    raise NotImplementedError("copse's source is its git repository: pip install ./python there")
