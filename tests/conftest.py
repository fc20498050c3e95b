"""What several test modules share: small generated models and one running server."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from xdist.remote import Producer  # pyright: ignore[reportMissingTypeStubs]

from tests.support import here, leftovers
from tests.support.models import ggufs
from tests.support.programs.processes import Server, serving
from tests.support.scheduler import FileScheduler
from worker import log

log.configure("console", "error")

# As `worker` does: what numpy starts with each process of the tests spins for nothing.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Where the run was started in the background or by nohup they are ignored, and every process that
# the tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Look for garbage neither while modules are loaded nor, later, among what they hold."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Let no process outlive its test process, and the worker be compiled once.

    The latter also where Python is told to write no bytecode: the tests start hundreds of
    processes, and each would spend 0.1 s on that.
    """
    leftovers.end_with_this_process()
    if not config.pluginmanager.hasplugin("cacheprovider"):
        return
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        os.environ["PYTHONPYCACHEPREFIX"] = str(config.cache.mkdir("bytecode"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduler | None:
    """A scheduler that comes to an end when test processes die, for `--dist loadfile`."""
    return FileScheduler(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what this build or this machine cannot run."""
    for item in items:
        for mark in here.MARKS:
            if item.get_closest_marker(mark) and (reason := here.why_not(mark)):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of two layers; its text is noise, its behaviour is real."""
    return ggufs.write_llama(tmp_path_factory.mktemp("models") / "tiny.gguf", context=2048)


@pytest.fixture(scope="session")
def server(tiny: Path) -> Generator[Server]:
    """One server over the tiny model for all tests that leave it as they found it."""
    with serving("--model", tiny, "--alias", "org/tiny", "--ctx-size", "2048") as running:
        yield running


@pytest.fixture(scope="session")
def slow_server(tiny: Path) -> Generator[Server]:
    """The same, but a token takes 20 ms: what is begun there still runs when a test looks."""
    options = ("--model", tiny, "--alias", "org/tiny", "--ctx-size", "2048", "-t", "1")
    with serving(*options, step_seconds=0.02) as running:
        yield running
