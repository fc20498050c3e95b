"""The program that builds and runs images here: docker with its daemon, or podman without one."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BASE = "debian:trixie-slim"
BUILD_S = 7200.0
# Without systemd, bridges and rights over cgroups: a process in a root of its own.
_CONFIG = """\
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
netns = "host"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
# What the published base leaves out, so that one made here is as large.
_SLIM = """\
echo 'path-exclude /usr/share/doc/*' > etc/dpkg/dpkg.cfg.d/docker
echo 'path-exclude /usr/share/man/*' >> etc/dpkg/dpkg.cfg.d/docker
echo 'path-exclude /usr/share/locale/*' >> etc/dpkg/dpkg.cfg.d/docker
echo 'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };
Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";' > etc/apt/apt.conf.d/docker-clean
rm -rf usr/share/doc/* usr/share/man/* usr/share/locale/*
rm -rf var/cache/apt/archives/*.deb var/lib/apt/lists/*
"""


class Engine:
    """docker or podman."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        config = folder / "containers.conf"
        config.write_text(_CONFIG)
        self._env = {**os.environ, "CONTAINERS_CONF": str(config)}
        self._prefix: list[str] = []
        if name == "podman" and Path("/sys/fs/cgroup/unified").is_mount():
            # crun refuses version 1 and 2 of cgroups beside each other.
            hidden = 'umount /sys/fs/cgroup/unified && exec "$@"'
            self._prefix = ["unshare", "--mount", "sh", "-c", hidden, "sh"]

    def run(self, *words: str, timeout: float = 300.0) -> subprocess.CompletedProcess[str]:
        """Run one of its commands."""
        return subprocess.run(
            [*self._prefix, self.name, *words], env=self._env, capture_output=True, text=True,
            check=False, timeout=timeout,
        )  # fmt: skip

    def say(self, *words: str, timeout: float = 300.0) -> str:
        """Run one that must succeed, and return what it prints."""
        done = self.run(*words, timeout=timeout)
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-4000:])
        return done.stdout.strip()

    def build(self, tag: str) -> None:
        """Build the Dockerfile; a base that cannot be had is made of Debian's packages."""
        if self.run("image", "inspect", BASE).returncode and self.run("pull", BASE).returncode:
            self._make_base()
        options: list[str] = []
        if self.name == "podman":
            options = ["--isolation=chroot", "--format=docker", "--layers"]
            if certificates := os.environ.get("PIP_CERT"):  # an index of one's own
                (self.folder / "pip.conf").write_text("[global]\ncert = /run/index.crt\n")
                options += ["--volume", f"{certificates}:/run/index.crt:ro"]
                options += ["--volume", f"{self.folder / 'pip.conf'}:/etc/pip.conf:ro"]
        self.say("build", *options, "--tag", tag, str(ROOT), timeout=BUILD_S)

    def _make_base(self) -> None:
        with tempfile.TemporaryDirectory() as made:
            suite = BASE.partition(":")[2].removesuffix("-slim")
            command = ["debootstrap", "--variant=minbase", suite, made]
            subprocess.run(command, check=True, capture_output=True, timeout=BUILD_S)
            subprocess.run(["sh", "-ec", _SLIM], check=True, cwd=made)
            packed = self.folder / "base.tar"
            subprocess.run(
                ["tar", "--create", "--file", packed, "--directory", made, "."], check=True
            )
        self.say("import", str(packed), f"docker.io/library/{BASE}")
        packed.unlink()


def find_engine(folder: Path) -> Engine | str:
    """Return one that works here, or what is missing."""
    for name in ("docker", "podman"):
        if shutil.which(name):
            engine = Engine(name, folder)
            if engine.run("version").returncode == 0:
                return engine
    return "neither docker with a daemon nor podman is here; on Debian: apt-get install podman"
