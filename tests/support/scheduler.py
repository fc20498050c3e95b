"""Which test process runs which file, also after one has died."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import pytest
from xdist.scheduler import LoadFileScheduling  # pyright: ignore[reportMissingTypeStubs]
from xdist.workermanage import WorkerController  # pyright: ignore[reportMissingTypeStubs]


class FileScheduler(LoadFileScheduling):
    """xdist's `--dist loadfile`, which comes to an end when processes die.

    xdist 3.8.0 gives all that a dead process ever had to the others: the test that killed it,
    which kills the next one, and files without a test left, which nobody ever reports as done, so
    that the run waits for ever (pytest-dev/pytest-xdist#1323, #1327, #1362, #1378).
    """

    @property
    def collection_is_completed(self) -> bool:
        """Whether the tests are known; a process that replaces a dead one changes nothing."""
        return self.collection is not None or super().collection_is_completed

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """Take what a process has collected; one that finds other tests than the first gets none.

        Where it was the last process, xdist ends the run with an internal error.
        """
        super().add_node_collection(node, collection)
        if node not in self.registered_collections:
            node.shutdown()

    def remove_node(self, node: WorkerController) -> str | None:
        """Take a process off that has ended or died; the name of the test that it died of, if any.

        Its other tests go to those that live. Ends the run where one dies while it collects, or
        as the last one at its end: its successors would die of the same, one after another.
        """
        work = self.assigned_work.pop(node, {})
        if hasattr(node, "workeroutput"):  # its last words: it has ended, and its tests are known
            return None
        collected = self.registered_collections.pop(node, None)
        died_of, left = None, OrderedDict[str, dict[str, bool]]()
        for scope, unit in work.items():
            tests = [test for test, done in unit.items() if not done]
            if tests and died_of is None:
                died_of = tests.pop(0)
            if tests:
                left[scope] = dict.fromkeys(tests, False)
        if died_of is None:
            name = str(node.gateway.id)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
            if collected is None or not self.has_pending:
                when = "while it collected tests" if collected is None else "at its end"
                pytest.exit(f"the test process {name} died {when}", returncode=1)
            return f"the end of the test process {name}"
        self.workqueue = OrderedDict({**left, **self.workqueue})
        for other in self.nodes:
            self._reschedule(other)
        return died_of

    def _reschedule(self, node: WorkerController) -> None:
        """Give a process files until it has more than two tests, or there are none left.

        It begins a test only when it knows the next one, or that there is none.
        """
        if node.shutting_down or node not in self.registered_collections:
            return
        while self.workqueue and self._pending_of(self.assigned_work[node]) <= 2:
            self._assign_work_unit(node)
        if not self.workqueue:
            node.shutdown()
