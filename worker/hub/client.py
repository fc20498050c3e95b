"""The Hub through its own client: lists of files, and their bytes.

The client reads its usual environment: HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE, HF_HUB_CACHE,
proxies. Bytes come over plain HTTP, because the client's other protocol, Xet, and its
`hf_hub_download` begin anew after an interruption. Here the bytes that have arrived are kept, and
a file gets its name when its checksum is right.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar, cast

import msgspec
from huggingface_hub import constants, get_session, hf_hub_url
from huggingface_hub.file_download import (  # their type hints are incomplete
    get_hf_file_metadata,  # pyright: ignore[reportUnknownVariableType]
    http_get,  # pyright: ignore[reportUnknownVariableType]
)
from huggingface_hub.utils import (
    build_hf_headers,  # pyright: ignore[reportUnknownVariableType]
    hf_raise_for_status,
    logging,
)

from worker import __version__
from worker.errors import DownloadError
from worker.files import lock, take_name
from worker.gguf.reader import MAGIC
from worker.hub.catalog import is_inside
from worker.hub.checksum import digest_for
from worker.hub.errors import (
    NO_HUB,
    check_begin,
    is_beyond_the_end,
    is_page,
    is_passing,
    translate,
)

# An interruption loses up to one chunk, and progress is reported once a chunk: 10 MiB are too many.
constants.DOWNLOAD_CHUNK_SIZE = 1 << 20
# Otherwise the client fetches a list of programs, to tell the Hub which of them started us. A pull
# asks for the model and for nothing else.
constants.HF_HUB_DISABLE_TELEMETRY = True
logging.set_verbosity_error()

_CHECKSUM = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_WAITS_S = (1.0, 2.0, 4.0, 8.0)
_HASH_BYTES = 8 << 20
_HEAD_BYTES = 512
_WHO = "gguf-worker"  # our name in the user agent

Count = Callable[[int], object]
"""Is called with the number of bytes done so far."""

_Answer = TypeVar("_Answer")


class HubFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file on the Hub as it is in `commit`.

    checksum  sha256 (64 digits) where the file is in large-file storage, else git's hash (40)
    """

    repo: str
    path: str
    commit: str
    size: int
    checksum: str


class _Sibling(msgspec.Struct):
    rfilename: str
    size: int | None = None


class _Repository(msgspec.Struct):
    siblings: list[_Sibling]


def list_models(repo: str, revision: str) -> dict[str, int]:
    """The .gguf files of a repository and their bytes. Raises DownloadError."""
    url = f"{constants.ENDPOINT}/api/models/{repo}/revision/{revision.replace('/', '%2F')}"

    def ask() -> bytes:
        answer = get_session().get(
            url, params={"blobs": "true"}, headers=_headers(), timeout=constants.HF_HUB_ETAG_TIMEOUT
        )
        hf_raise_for_status(answer)
        return answer.content

    answer = b""
    try:
        answer = _patiently(ask)
        found = msgspec.json.decode(answer, type=_Repository)
    except msgspec.MsgspecError as error:
        raise DownloadError(
            f"{constants.ENDPOINT} did not answer as the Hub does: "
            f"{'with a web page' if is_page(answer) else error}.",
            hint=NO_HUB,
        ) from error
    except Exception as error:
        raise translate(error, repo, revision) from error
    return {
        sibling.rfilename: sibling.size or 0
        for sibling in found.siblings
        if is_inside(sibling.rfilename)
    }


def look_up(repo: str, revision: str, path: str) -> HubFile:
    """Ask the Hub about one file. Raises DownloadError."""
    url = hf_hub_url(repo, path, revision=revision)
    try:
        found = _patiently(
            lambda: get_hf_file_metadata(
                url,
                timeout=constants.HF_HUB_ETAG_TIMEOUT,
                library_name=_WHO,
                library_version=__version__,
            )
        )
    except Exception as error:
        raise translate(error, repo, revision, path) from error
    if not found.commit_hash or found.size is None or not _CHECKSUM.fullmatch(found.etag or ""):
        raise DownloadError(
            f"{constants.ENDPOINT} gives no commit, size or checksum of {path}, so it could not "
            "be checked.",
            hint=NO_HUB,
        )
    return HubFile(
        repo=repo, path=path, commit=found.commit_hash, size=found.size, checksum=found.etag or ""
    )


def download(file: HubFile, blob: Path, arrived: Count, checked: Count) -> None:
    """Bring the bytes of `file` to `blob`; goes on where an earlier call was interrupted.

    `arrived` is told how many bytes have come, `checked` how many have been checked. Raises
    DownloadError. Bytes that came before an error are kept, unless they are wrong.
    """
    if file.size > constants.MAX_HTTP_DOWNLOAD_SIZE:
        raise DownloadError(
            f"{file.path} is larger than the Hub sends over plain HTTP.",
            hint=f"Get it with `hf download {file.repo} {file.path}`; it runs by its name then.",
            code="TOO_LARGE",
        )
    partial = _partial(blob)
    partial.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "r+b") as stream:
        if not lock(stream):
            raise DownloadError(
                f"Another process is bringing {file.path} already.", hint="Wait for it."
            )
        _receive(file, stream, arrived)
        stream.flush()
        if not is_right(file, partial, checked):
            partial.unlink(missing_ok=True)
            check_begin(file.path, _head(stream))
            raise DownloadError(
                f"{file.path} differs from what the Hub announced, so it was removed.",
                hint="Run the same command again; if it stays so, something between here and the "
                "Hub changes what passes through.",
                code="WRONG_CHECKSUM",
            )
        take_name(partial, blob, durable=True)


def so_far(blob: Path) -> int:
    """Bytes that an interrupted download of `blob` has left."""
    partial = _partial(blob)
    return partial.stat().st_size if partial.exists() else 0


def is_right(file: HubFile, path: Path, count: Count) -> bool:
    """Whether the bytes at `path` are those of `file`."""
    if path.stat().st_size != file.size:
        return False
    digest = digest_for(file.checksum, file.size)
    done = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_HASH_BYTES):
            digest.update(chunk)
            done += len(chunk)
            count(done)
    return digest.hexdigest() == file.checksum


def _headers() -> dict[str, str]:
    return build_hf_headers(library_name=_WHO, library_version=__version__)


def _partial(blob: Path) -> Path:
    return blob.with_name(f"{blob.name}.partial")


def _receive(file: HubFile, stream: BinaryIO, count: Count) -> None:
    """Append to `stream` the bytes that are missing.

    An interrupted transfer is taken up again. Only tries that bring nothing are counted, and the
    last of them raises.
    """
    url = hf_hub_url(file.repo, file.path, revision=file.commit)
    tries = 0
    while True:
        have = _sound(stream, file.size)
        count(have)
        if have == file.size:
            return
        try:
            http_get(
                url,
                cast("BinaryIO", _Arriving(stream, file.path)),
                resume_size=have,
                headers=_headers(),
                expected_size=file.size,
                tqdm_class=_bar(count),
            )
        except Exception as error:
            if not _is_whole(stream, file.size):
                check_begin(file.path, _head(stream))
            if is_beyond_the_end(error):  # what came before is of another file
                stream.truncate(0)
            tries = 0 if _sound(stream, file.size) > have else tries + 1
            if tries > len(_WAITS_S) or not is_passing(error):
                raise translate(error, file.repo, file.commit, file.path) from error
            time.sleep(_WAITS_S[max(0, tries - 1)])


class _Arriving:
    """The file that the client writes to. Where a server sends the whole file again, what is here
    goes once that begins like a model: not for a web page that asks for a login."""

    def __init__(self, stream: BinaryIO, path: str) -> None:
        self._stream, self._path = stream, path
        self._begins_anew = False
        self.tell, self.seek = stream.tell, stream.seek

    def truncate(self) -> None:
        """All that is behind the place; done with the next bytes."""
        self._begins_anew = True

    def write(self, chunk: bytes) -> int:
        if self._begins_anew:
            check_begin(self._path, chunk)
            self._stream.truncate()
            self._begins_anew = False
        return self._stream.write(chunk)


def _sound(stream: BinaryIO, size: int) -> int:
    """How many bytes have arrived; the stream then stands behind them.

    What cannot be the begin of the file is thrown away: more bytes than the file has, or bytes that
    do not begin like GGUF, for example a web page. A file of full length is left to its checksum.
    """
    have = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    if have > size or (have < size and not MAGIC.startswith(stream.read(len(MAGIC)))):
        have = 0
        stream.truncate(0)
    return stream.seek(have)


def _is_whole(stream: BinaryIO, size: int) -> bool:
    return stream.seek(0, os.SEEK_END) == size


def _head(stream: BinaryIO) -> bytes:
    stream.seek(0)
    return stream.read(_HEAD_BYTES)


def _bar(count: Count) -> Any:
    """A class that the client takes for its progress bar; it reports the bytes to `count`."""

    class Bar:
        def __init__(self, *, initial: int = 0, **_: object) -> None:
            self.done = initial

        def update(self, amount: int) -> None:
            self.done += amount
            count(self.done)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    return Bar


def _patiently(ask: Callable[[], _Answer]) -> _Answer:
    """Ask; after a failure that may pass ask again, each time a little later."""
    for wait in _WAITS_S:
        try:
            return ask()
        except Exception as error:
            if not is_passing(error):
                raise
            time.sleep(wait)
    return ask()
