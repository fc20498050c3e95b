"""Files that are no GGUF model: what they are and what to do instead."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from worker.errors import ModelFileError
from worker.gguf.split_name import SplitName, is_gguf

CONVERT = "Convert it with llama.cpp's convert_hf_to_gguf.py, then pass the .gguf file."
AGAIN = "Download it again; the link may point to a web page instead of the file."
MORE_FILES = "Raise the limit of open files (ulimit -n), or open fewer connections."

# First bytes -> code, what the file is, what to do.
_MAGICS: tuple[tuple[bytes, str, str, str], ...] = (
    (
        b"version https://git-lfs",
        "GIT_LFS_POINTER",
        "a git-lfs pointer, not the file itself",
        "Fetch the file with `git lfs pull` or from the Hub's download link.",
    ),
    (b"lmgg", "OLD_GGML", "an unversioned ggml file from before GGUF", "Take a GGUF of the model."),
    (b"ggml", "OLD_GGML", "a ggml file from before GGUF", "Take a GGUF of the model."),
    (b"fmgg", "OLD_GGML", "a ggmf file from before GGUF", "Take a GGUF of the model."),
    (b"ggmf", "OLD_GGML", "a ggmf file from before GGUF", "Take a GGUF of the model."),
    (b"tjgg", "OLD_GGML", "a ggjt file from before GGUF", "Take a GGUF of the model."),
    (b"ggjt", "OLD_GGML", "a ggjt file from before GGUF", "Take a GGUF of the model."),
    (b"algg", "OLD_GGML", "a ggla LoRA file from before GGUF", "Take a GGUF of the model."),
    (b"ggla", "OLD_GGML", "a ggla LoRA file from before GGUF", "Take a GGUF of the model."),
    (b"FUGG", "BIG_ENDIAN", "a GGUF file with its bytes swapped", "Take the little-endian file."),
    (b"PK\x03\x04", "PYTORCH", "a zip archive, most likely a PyTorch checkpoint", CONVERT),
    (b"\x80\x02", "PYTORCH", "a pickle, most likely a PyTorch checkpoint", CONVERT),
    (b"\x80\x04", "PYTORCH", "a pickle, most likely a PyTorch checkpoint", CONVERT),
    (b"\x89HDF", "NOT_GGUF", "an HDF5 file", CONVERT),
    (b"\x1f\x8b", "NOT_GGUF", "compressed with gzip", "Unpack it and pass the .gguf file."),
    (b"\x28\xb5\x2f\xfd", "NOT_GGUF", "compressed with zstd", "Unpack it and pass the .gguf file."),
    (b"BZh", "NOT_GGUF", "compressed with bzip2", "Unpack it and pass the .gguf file."),
    (b"\xfd7zXZ", "NOT_GGUF", "compressed with xz", "Unpack it and pass the .gguf file."),
)
_OTHER_FILE = "Pass a file that ends in .gguf."
_HTML = re.compile(rb"\s*(<!doctype html|<html|<\?xml|<head|<body)", re.IGNORECASE)
_ONNX = re.compile(rb"\x08[\x01-\x0f]\x12.{1,64}?(pytorch|onnx|tf2onnx|keras)", re.DOTALL)


def check_magic(head: bytes, path: str, size: int) -> None:
    """Raise unless `head`, the first bytes of a file of `size` bytes, begins a GGUF header."""
    name = Path(path).name
    if not size:
        raise ModelFileError("EMPTY_FILE", f"{name} is empty.", offset=0, got=0, hint=AGAIN)
    if head[:4] == b"GGUF":
        return
    code, what, hint = _identify(head, size)
    if hint is _OTHER_FILE and name.lower().endswith(".gguf"):
        hint = AGAIN
    if code == "TRUNCATED":
        raise ModelFileError(
            code,
            f"{name} ends within its first four bytes.",
            offset=0,
            field="magic",
            got=size,
            limit=24,
            hint="Download it again.",
        )
    raise ModelFileError(
        code,
        f"{name} is {what}.",
        offset=0,
        field="magic",
        got=head[:4].hex(),
        limit="GGUF",
        hint=hint,
    )


def _identify(head: bytes, size: int) -> tuple[str, str, str]:
    if b"GGUF".startswith(head):
        return "TRUNCATED", "", ""
    for magic, code, what, hint in _MAGICS:
        if head.startswith(magic):
            return code, what, hint
    if _HTML.match(head):
        return "HTML_PAGE", "a web page saved under a model's name", AGAIN
    if head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= size:
        return "SAFETENSORS", "a SafeTensors file", CONVERT
    if _ONNX.match(head):
        return "ONNX", "an ONNX model", "Take a GGUF of the model, or convert the original."
    if head.lstrip()[:1] in (b"{", b"["):
        return "NOT_GGUF", "a JSON file", "Pass the .gguf file that it belongs to."
    return "NOT_GGUF", "no GGUF file", _OTHER_FILE


def unopenable(path: str, error: OSError | ValueError) -> ModelFileError:
    """The error for a path that cannot be opened."""
    if not isinstance(error, OSError):
        return ModelFileError(
            "NOT_FOUND", f"{path!r} is no file name.", got=path, hint="Check the path."
        )
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            dangling = os.path.lexists(path)
            message = f"{path} is a link to nothing." if dangling else f"There is no file {path}."
            return ModelFileError("NOT_FOUND", message, got=path, hint="Check the path.")
        case errno.ELOOP:
            message = f"{path} is a link that leads back to itself."
            return ModelFileError("NOT_FOUND", message, got=path, hint="Pass the file itself.")
        case errno.EACCES | errno.EPERM:
            message = f"{path} may not be read by this user."
            return ModelFileError("UNREADABLE", message, got=path, hint="Check its permissions.")
        case errno.ENXIO | errno.ENODEV:
            return special(path, 0)
        case _:
            message = f"{path} cannot be opened: {error.strerror}."
            is_full = error.errno in (errno.EMFILE, errno.ENFILE)
            hint = MORE_FILES if is_full else "Check the path."
            return ModelFileError("UNREADABLE", message, got=path, hint=hint)


def special(path: str, mode: int) -> ModelFileError:
    """The error for a FIFO, socket or device."""
    kinds = ((stat.S_ISFIFO, "a named pipe"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a disk"))
    what = next((name for test, name in kinds if mode and test(mode)), "a socket or device")
    return ModelFileError(
        "NOT_A_FILE", f"{path} is {what}, not a file.", got=path, hint="Pass a .gguf file."
    )


def directory(path: Path) -> ModelFileError:
    """The error for a directory: it says which file in it to pass, or what it holds instead."""
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError:
        names = []
    models = [name for name in names if is_gguf(name)]
    firsts = [name for name in models if not (split := SplitName.parse(name)) or split.is_first]
    if len(firsts) == 1:
        return ModelFileError(
            "DIRECTORY", f"{path} is a directory.", got=str(path), hint=f"Pass {path / firsts[0]}."
        )
    if models:
        shown = ", ".join(firsts[:5]) + (", …" if len(firsts) > 5 else "")
        return ModelFileError(
            "DIRECTORY",
            f"{path} is a directory with {len(firsts)} models.",
            got=str(path),
            hint=f"Pass one of {shown}." if shown else "Its first split file is missing.",
        )
    if any(name.endswith(".safetensors") for name in names) or "config.json" in names:
        return ModelFileError(
            "SAFETENSORS_DIR",
            f"{path} is a directory with a Hugging Face model.",
            got=str(path),
            hint=CONVERT,
        )
    return ModelFileError(
        "DIRECTORY",
        f"{path} is a directory without a GGUF file.",
        got=str(path),
        hint="Pass a .gguf file.",
    )
