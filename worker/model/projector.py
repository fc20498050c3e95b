"""What a projector's file says: the part of a model that makes vectors of pictures and sounds."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from worker.errors import ModelFileError
from worker.gguf.fields import Fields
from worker.gguf.header import ModelFile, refuse
from worker.gguf.reader import read_header

_MODALITIES = ("vision", "audio")
_NAMED = re.compile(r"mmproj", re.IGNORECASE)
_ENCODING = re.compile(r"[-._]?(?:model|bf16|f16|f32|fp16|q8_0)(?=$|[-._])", re.IGNORECASE)
_LAYERS, _WIDTH = 512, 65_536
_OTHER = "Pass the projector that was published beside this model, or --no-mmproj."


class ProjectorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A projector.

    kind         llama.cpp's name of it
    sees, hears  which media it takes
    size_bytes   of its weights
    patches      that the largest picture of its own size is cut into; 0: it says none
    width        of the encoder's vectors
    """

    kind: str
    sees: bool
    hears: bool
    size_bytes: int
    patches: int
    width: int
    inner: int
    heads: int
    files: tuple[ModelFile, ...]

    @property
    def path(self) -> str:
        """Of its file."""
        return self.files[0].path

    @property
    def compute_bytes(self) -> int:
        """A bound of its buffers at the largest picture: float32 scores of all heads, and a few
        rows of the encoder's widths."""
        rows = self.patches
        return 4 * rows * (self.heads * rows + 8 * self.width + 2 * self.inner)


def load_projector(path: Path) -> ProjectorConfig:
    """Raises ModelFileError where it is none. Whether it is of the model the encoder tells."""
    header = read_header(path)
    keys = header.keys
    if keys.get("general.architecture") != "clip":
        raise _refused("NOT_PROJECTOR", f"{path.name} is not a projector.")
    fields = Fields(header, "clip")
    has = {name: keys.get(f"clip.has_{name}_encoder") is True for name in _MODALITIES}
    if not any(has.values()):
        raise _refused("NOT_PROJECTOR", f"{path.name} reads neither pictures nor sounds.")
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
            ("attention.head_count", 0, _LAYERS),
        )
    }
    side = patch = 0
    if has["vision"]:
        side = _number(fields, "clip.vision.image_size", 1, _WIDTH)
        patch = _number(fields, "clip.vision.patch_size", 1, _WIDTH)
    return ProjectorConfig(
        kind=kind,
        sees=has["vision"],
        hears=has["audio"],
        size_bytes=sum(tensor.nbytes for tensor in header.tensors),
        patches=(side // patch) ** 2 if patch else 0,
        width=numbers["embedding_length"],
        inner=numbers["feed_forward_length"],
        heads=numbers["attention.head_count"],
        files=header.files,
    )


def projector_beside(model: Path) -> Path | None:
    """The one in the model's folder that its name belongs to, in the smallest float encoding."""
    found: list[tuple[bool, str, Path]] = []
    for path in model.parent.glob("*.gguf"):
        if path != model and _NAMED.search(path.name):
            rest = _ENCODING.sub("", _NAMED.sub("", path.stem)).strip("-._").lower()
            if model.name.lower().startswith(rest):
                found.append(("f16" not in path.name.lower(), path.name, path))
    return min(found)[-1] if found else None


def _number(fields: Fields, key: str, least: int, most: int) -> int:
    value = fields.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise fields.bad(key, value, f"a number from {least} to {most}")
    return value


def _refused(code: str, why: str) -> ModelFileError:
    return refuse(code, why, hint=_OTHER)
