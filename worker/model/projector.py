"""What a projector's file says: the part of a model that encodes images and audio."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from worker.errors import ModelFileError
from worker.gguf.fields import Fields
from worker.gguf.header import Header, ModelFile, refuse
from worker.gguf.reader import read_header
from worker.model.config import ModelConfig

_MODALITIES = ("vision", "audio")
_NAMED = re.compile(r"mmproj", re.IGNORECASE)
_ENCODING = re.compile(r"[-._]?(?:model|bf16|f16|f32|fp16|q8_0)(?=$|[-._])", re.IGNORECASE)
_LAYERS, _WIDTH = 512, 65_536


class _Kind(NamedTuple):
    """How a kind makes vectors of a picture's patches: it joins `joined` x `joined` of them, where
    the key does not say otherwise. most: vectors that it makes of one; 0: of a square picture"""

    key: str
    joined: int
    most: int


_QWEN = _Kind("spatial_merge_size", 2, 4096)
# As llama.cpp reads them; others are not known here.
_KINDS = {
    "mlp": _Kind("", 1, 0),
    "gemma3": _Kind("projector.scale_factor", 4, 0),
    "idefics3": _Kind("projector.scale_factor", 1, 0),
    "qwen2vl_merger": _QWEN,
    "qwen2.5vl_merger": _QWEN,
    "qwen3vl_merger": _QWEN,
}
_OTHER = "Pass the projector that was published beside this model, or --no-mmproj."


class ProjectorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A projector.

    kind         llama.cpp's name of it
    sees, hears  which media it takes
    size_bytes   of its weights
    patches      of the largest picture that is computed at once; 0: it says none
    cells        of the context that the largest picture takes; 0: not known of this kind
    width        of the encoder's vectors
    output       width of those that the model gets; 0: the file says none
    """

    kind: str
    sees: bool
    hears: bool
    size_bytes: int
    patches: int
    cells: int
    width: int
    output: int
    inner: int
    files: tuple[ModelFile, ...]

    @property
    def path(self) -> str:
        """Of its file."""
        return self.files[0].path

    @property
    def compute_bytes(self) -> int:
        """A bound of its buffers at the largest picture: rows of the encoder's widths, float32.
        Attention is fused: it keeps no scores."""
        return 4 * self.patches * (3 * self.width + self.inner)

    @property
    def summary(self) -> str:
        """What it is, in half a sentence."""
        what = " and ".join(["images"] * self.sees + ["audio"] * self.hears)
        width = f" of {self.output:,} numbers" if self.output else ""
        return f"a projector of kind {self.kind} that makes embeddings{width} of {what}"


def load_projector(path: Path) -> ProjectorConfig:
    """Raises ModelFileError where it is none. Whether it is of the model the encoder tells."""
    header = read_header(path)
    keys = header.keys
    if keys.get("general.architecture") != "clip":
        raise _refusal("NOT_PROJECTOR", f"{path.name} is not a projector.")
    fields = Fields(header, "clip")
    has = {name: keys.get(f"clip.has_{name}_encoder") is True for name in _MODALITIES}
    if not any(has.values()):
        raise _refusal("NOT_PROJECTOR", f"{path.name} accepts neither images nor audio.")
    kinds = ("clip.projector_type", *(f"clip.{name}.projector_type" for name in _MODALITIES))
    kind = next((found for key in kinds if (found := fields.text(key))), "")
    numbers = {
        key: _number(fields, f"clip.{name}.{key}", least, most)
        for name in _MODALITIES
        if has[name]
        for key, least, most in (  # some have no layers
            ("block_count", 0, _LAYERS),
            ("embedding_length", 1, _WIDTH),
            ("feed_forward_length", 0, 8 * _WIDTH),
        )
    }
    patches, cells = _picture(fields, kind) if has["vision"] else (0, 0)
    return ProjectorConfig(
        kind=kind,
        sees=has["vision"],
        hears=has["audio"],
        size_bytes=sum(tensor.nbytes for tensor in header.tensors),
        patches=patches,
        cells=cells,
        output=_output(header, "vision" if has["vision"] else "audio"),
        width=numbers["embedding_length"],
        inner=numbers["feed_forward_length"],
        files=header.files,
    )


def check_projector(projector: ProjectorConfig, model: ModelConfig) -> None:
    """Raise ModelFileError where its vectors have another width than the model's."""
    if projector.output not in (0, model.embedding):
        name = Path(projector.path).name
        raise _refusal(
            "PROJECTOR_MISMATCH",
            f"{name} makes embeddings of {projector.output} numbers, and the model's have "
            f"{model.embedding}.",
        )


def _picture(fields: Fields, kind: str) -> tuple[int, int]:
    """Patches of the largest picture or tile, and cells of a whole picture; 0: not known."""

    def number(key: str, silent: int) -> int:
        full = f"clip.vision.{key}"
        return _number(fields, full, 1, _WIDTH) if full in fields else silent

    side, patch = number("image_size", 0), number("patch_size", 0)
    own = (side // patch) ** 2 if patch else 0
    known = _KINDS.get(kind)
    if known is None or "clip.vision.image_grid_pinpoints" in fields:
        return own, 0
    joined = number(known.key, known.joined) ** 2
    if known.most:
        return known.most * joined, known.most
    tiles = number("preproc_image_size", side) // side if side else 1
    return own, own // joined * (tiles**2 + 1 if tiles > 1 else 1)


def _output(header: Header, name: str) -> int:
    """The width that the file names, where a matrix of its has it: old ones name another one."""
    width = header.keys.get(f"clip.{name}.projection_dim")
    sides = {side for each in header.tensors if "mm." in each.name for side in each.shape}
    return width if isinstance(width, int) and width in sides else 0


def projector_beside(model: Path) -> Path | None:
    """The one in the model's folder, or in the repository's where that is in the Hub's cache."""
    folders = [model.parent]
    if len(model.parents) > 2 and model.parents[2].name == "snapshots":
        folders.append(model.parents[1])
    for folder in folders:
        names = [path.name for path in folder.glob("*.gguf") if path != model]
        if (name := choose_projector(names, model.name)) is not None:
            return folder / name
    return None


def choose_projector(files: Iterable[str], model: str) -> str | None:
    """That of the model's name among the paths, in the smallest float encoding."""
    found: list[tuple[bool, str]] = []
    for path in files:
        name = path.rpartition("/")[2]
        rest = _ENCODING.sub("", _NAMED.sub("", name.rpartition(".")[0])).strip("-._").lower()
        if _NAMED.search(name) and model.rpartition("/")[2].lower().startswith(rest):
            found.append(("f16" not in name.lower(), path))
    return min(found)[-1] if found else None


def _number(fields: Fields, key: str, least: int, most: int) -> int:
    value = fields.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise fields.bad(key, value, f"a number from {least} to {most}")
    return value


def _refusal(code: str, why: str) -> ModelFileError:
    return refuse(code, why, hint=_OTHER)
