"""One model file -> what is to be said about it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from worker.audit.discovery import Candidate
from worker.audit.weights import BytesRead, OddTensor, check_numbers, read_weights
from worker.errors import ModelFileError, WorkerError
from worker.gguf.header import Header, ModelFile, refuse
from worker.gguf.splits import open_header
from worker.hub.catalog import Entry
from worker.hub.checksum import Digest, ExpectedDigest, digest_for, promises
from worker.model.adapter import load_adapter
from worker.model.architectures import doubt
from worker.model.config import ModelConfig, load_config
from worker.model.projector import load_projector

# Sound files that lie beside models and are none that the worker serves.
OTHERS = frozenset(
    "MMPROJ IMATRIX LORA_ADAPTER VOCAB_ONLY ENCODER_ONLY ENCODER_DECODER DRAFT_MODEL".split()
)


class FileVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about one model.

    ok            the worker would load it, or it was met in a folder and is one of OTHERS, or it is
                  an adapter or a projector
    code, message, hint, offset, field  of the error that the worker would raise; for one of OTHERS
                  they say what it is; offset is in bytes
    architecture, does, quant  None where the file is not read that far
    files, bytes  of all its files
    weights_read  whether their numbers were looked at
    checksum      right, wrong, unknown, or None where the files were not read
    tensors       those with numbers that are no weights
    flaw          why scores are not the model's own; None: they are, or it makes none
    newer         what is not checked, for the architecture is newer than the worker; None: all is
    template      what the chat template does with each place of a conversation, in words;
                  `unreadable`: why its named templates cannot be read
    seconds       that all of it took
    """

    file: str
    ok: bool
    code: str | None = None
    message: str | None = None
    hint: str | None = None
    offset: int | None = None
    field: str | None = None
    architecture: str | None = None
    does: str | None = None
    flaw: str | None = None
    newer: str | None = None
    quant: str | None = None
    files: int = 1
    bytes: int = 0
    weights_read: bool = False
    checksum: str | None = None
    tensors: tuple[OddTensor, ...] = ()
    template: dict[str, str] = {}
    seconds: float = 0.0


class _Findings:
    """What is known so far; it is there too when something raises."""

    def __init__(self) -> None:
        self.config: ModelConfig | None = None
        self.other: WorkerError | None = None
        self.weights_read = False
        self.checksum: str | None = None
        self.tensors: list[OddTensor] = []


def judge(
    candidate: Candidate, *, deep: bool, entries: Iterable[Entry], count: BytesRead
) -> FileVerdict:
    """What there is to say about a candidate; nothing that is wrong with a file raises.

    The header is checked by the very function that a service calls before it loads. deep: the
    weights are read too, and the checksums that `entries` or the Hub's cache know are computed;
    `count` is told how many bytes were read.
    """
    begun, findings, error = time.perf_counter(), _Findings(), candidate.error
    try:
        if error is None:
            _check_header(candidate, findings)
            if deep:
                _check_bytes(open_header(candidate.path), findings, tuple(entries), count)
    except WorkerError as failure:
        error = failure
    except OSError as failure:
        reason = failure.strerror or str(failure)
        error = WorkerError(f"{candidate.path} cannot be read: {reason}.", code="IO")
    except MemoryError:
        error = WorkerError("Memory ran out while the file was checked.", code="DOES_NOT_FIT")
    except Exception as failure:  # noqa: BLE001  (one file must not keep the others from being checked)
        error = WorkerError(f"This should not happen: {failure!r}.")
    said, config = error or findings.other, findings.config
    return FileVerdict(
        file=str(candidate.path),
        ok=error is None,
        code=said.code if said else None,
        message=said.message if said else None,
        hint=said.hint if said else None,
        offset=said.offset if isinstance(said, ModelFileError) else None,
        field=said.field if isinstance(said, ModelFileError) else None,
        architecture=config.architecture if config else None,
        does=config.does if config else None,
        flaw=config.vectors.flaw if config else None,
        newer=doubt(config.architecture) if config else None,
        quant=config.quant if config else None,
        files=len(config.files) if config else 1,
        bytes=sum(file.size for file in config.files) if config else candidate.size,
        weights_read=findings.weights_read,
        checksum=findings.checksum,
        tensors=tuple(findings.tensors),
        seconds=round(time.perf_counter() - begun, 4),
    )


def _check_header(candidate: Candidate, findings: _Findings) -> None:
    """Raise ModelFileError as a service would, but for adapters, projectors, OTHERS in a folder."""
    try:
        findings.config = load_config(candidate.path, purpose="serve")
        return
    except ModelFileError as error:
        if error.code == "LORA_ADAPTER":
            said = load_adapter(candidate.path).summary
            findings.other = ModelFileError("LORA_ADAPTER", f"It is {said}.")
            return
        if error.code == "MMPROJ":
            said = load_projector(candidate.path).summary
            findings.other = ModelFileError("MMPROJ", f"It is {said}.")
            return
        if not candidate.found or error.code not in OTHERS:
            raise
        findings.other = error
    # Encoders, vocabularies and draft models have more to check; the rest is refused as before.
    try:
        findings.config = load_config(candidate.path, purpose="inspect")
    except ModelFileError as error:
        if error.code not in OTHERS:
            raise


def _check_bytes(
    header: Header, findings: _Findings, entries: tuple[Entry, ...], count: BytesRead
) -> None:
    """Raise ModelFileError where a checksum is wrong or a weight is no number.

    What the numbers in a projector or an importance matrix mean is not known: of those only the
    checksum is looked at.
    """
    promised = [list(promises(Path(file.path), entries)) for file in header.files]
    digests = [
        [digest_for(promise.checksum, file.size) for promise in known]
        for file, known in zip(header.files, promised, strict=True)
    ]
    numbers = findings.config is not None
    odd = read_weights(header, digests, numbers=numbers, count=count)
    findings.tensors, findings.weights_read = odd, numbers
    findings.checksum = "right" if all(promised) else "unknown"
    for file, known, computed in zip(header.files, promised, digests, strict=True):
        for promise, digest in zip(known, computed, strict=True):
            if digest.hexdigest() != promise.checksum:
                findings.checksum = "wrong"
                raise _wrong_checksum(file, promise, digest)
    check_numbers(odd)


def _wrong_checksum(file: ModelFile, promise: ExpectedDigest, digest: Digest) -> ModelFileError:
    return refuse(
        "WRONG_CHECKSUM",
        f"{Path(file.path).name} has the checksum {digest.hexdigest()}, but {promise.source} says "
        f"{promise.checksum}.",
        field="checksum",
        got=digest.hexdigest(),
        limit=promise.checksum,
    )
