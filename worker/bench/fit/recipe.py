"""A recipe: which encoding each tensor gets. Applied again to the same file it makes the same."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from worker.errors import UsageError
from worker.files import atomic_write
from worker.gguf.header import Header
from worker.llama.quantize.plan import QuantizeOptions

FORMAT = 1
_KEYS = "worker.fit."


class MixRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """type     name of the level that stands in the file
    encodings  tensor -> encoding
    imatrix    name of the importance matrix, which lies beside the recipe
    imatrix_sha256  of its content
    dataset    text that it was computed on
    budget     bytes that were given
    """

    format: int
    type: str
    encodings: dict[str, str]
    imatrix: str
    imatrix_sha256: str
    dataset: str
    budget: int

    def options(self, imatrix: Path) -> QuantizeOptions:
        """How to quantise by it. Raises UsageError for another importance matrix."""
        if digest(imatrix) != self.imatrix_sha256:
            raise UsageError(
                f"{imatrix.name} is not the importance matrix of the recipe.",
                hint=f"Pass the one that was written with it, {self.imatrix}, with --imatrix.",
            )
        keys = {
            f"{_KEYS}budget_bytes": str(self.budget),
            f"{_KEYS}imatrix_sha256": self.imatrix_sha256,
            f"{_KEYS}recipe_sha256": hashlib.sha256(
                msgspec.json.encode(self.encodings, order="sorted")
            ).hexdigest(),
        }
        return QuantizeOptions(
            imatrix=imatrix, allow_requantize=True, encodings=self.encodings, keys=keys
        )


def digest(path: Path) -> str:
    """The hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_recipe(path: Path, recipe: MixRecipe) -> None:
    """Write it for people and programs; whole or not at all."""
    with atomic_write(path) as partial:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(recipe)) + b"\n")


def read_recipe(path: Path, header: Header) -> MixRecipe:
    """A recipe for the model with this header. Raises UsageError."""
    try:
        recipe = msgspec.json.decode(path.read_bytes(), type=MixRecipe)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", hint="Name a recipe."
        ) from None
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"{path} is no recipe: {error}.", hint="Name one that `worker quantize --fit` wrote."
        ) from None
    absent = recipe.encodings.keys() - {tensor.name for tensor in header.tensors}
    if absent:
        raise UsageError(
            f"The recipe is for another model: {Path(header.path).name} has no {min(absent)}.",
            hint="Make one for this model with `worker quantize --fit`.",
        )
    return recipe
