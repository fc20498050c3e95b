"""worker fleet: a distribution of its own, which is started from here."""

from __future__ import annotations

from collections.abc import Sequence

from worker.errors import UsageError

# Entry points of commands that come with other distributions: functions of the words behind the
# command's name, which return the exit code.
GROUP = "worker.commands"


def run(words: Sequence[str]) -> int:
    """Run it. Raises UsageError where it is not installed."""
    from importlib.metadata import entry_points

    for found in entry_points(group=GROUP, name="fleet"):
        return found.load()(words)
    raise UsageError(
        "`worker fleet` is a distribution of its own, which is not installed.",
        hint="Install it beside the worker: `make install FLEET=1`, or `pip install ./fleet`.",
    )
