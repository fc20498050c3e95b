"""A second model with a context of its own, which guesses what the first one will sample."""

from __future__ import annotations

import contextlib
from pathlib import Path

from msgspec.structs import replace

from worker.errors import ModelLoadError
from worker.llama.context import Context
from worker.llama.context_options import ContextOptions
from worker.llama.draft.companion import Companion
from worker.llama.weights import LoadOptions, Weights


class DraftModel(Companion):
    """Implements `engine.drafts.rounds.DraftBackend`."""

    def __init__(self, path: Path, load: LoadOptions, options: ContextOptions) -> None:
        """Load the model and allocate its cells.

        Raises ModelLoadError for a model that cannot go back to an earlier token, BackendError,
        DoesNotFitError.
        """
        with contextlib.ExitStack() as stack:
            self.weights = stack.enter_context(Weights(path, load))
            if self.weights.is_recurrent or not self.weights.generates:
                raise ModelLoadError(
                    f"{path.name} cannot guess tokens: it does not go back to an earlier token.",
                    hint="Choose another --draft-model.",
                )
            options = replace(options, unified=True, chunk_outputs=0)
            context = stack.enter_context(Context(self.weights, options))
            super().__init__(context, stack.pop_all())
        cells = context.residency
        self.layers = self.weights.residency.layers
        self.buffers = (
            *self.weights.residency.buffers, *cells.kv_buffers, *cells.compute_buffers
        )  # fmt: skip
        self.max_length = min(context.num_cells, self.weights.n_ctx_train or context.num_cells)
        self.vocab_size = self.weights.vocab_size
