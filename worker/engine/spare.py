"""What lines of batches may take of steps that others wait for."""

from __future__ import annotations

from worker.engine.cost import StepCost
from worker.engine.plan import StepPlan

# Of the time in which others write.
SHARE = 0.03
# Seconds that are saved up at most: the longest step that they make longer.
_MOST_S = 0.05


class SpareTime:
    """Counts seconds: steps in which others write earn SHARE of their time, and a step with lines
    of batches spends what it takes longer. Steps that read prompts earn nothing, as streams alone
    pay: beside as many seconds of prompts, they would lose twice the share.

    So a line that costs nothing joins each step, as on a GPU with rows to spare, and others join a
    few: nobody's stream loses more than SHARE of its speed, and lines that wait beside streams
    without end go on.
    """

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost
        self._seconds = 0.0

    @property
    def is_there(self) -> bool:
        """Whether lines join the coming step."""
        return self._seconds > 0

    def note(self, plan: StepPlan, seconds: float) -> None:
        """A step took this long, and streams of others waited for it."""
        own = sum(count for sequence, count in plan.runs if sequence.is_batch)
        if not own:
            if not plan.prompt_rows:
                self._seconds = min(_MOST_S, self._seconds + SHARE * seconds)
            return
        others = plan.num_rows - own
        without = self._cost.decode(others) if others else 0.0
        self._seconds -= max(0.0, seconds - without)
