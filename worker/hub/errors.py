"""Failures of the Hub and its client: which may pass by themselves, and one sentence for each."""

from __future__ import annotations

import errno

from huggingface_hub import constants
from huggingface_hub.errors import (
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from worker.errors import DiskSpaceError, DownloadError, WorkerError, out_of_memory
from worker.gguf.reader import MAGIC

NO_HUB = "Check HF_ENDPOINT; where a proxy or a network asks for a login, log in there."
_PASSING_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_BEYOND_THE_END = 416
_LOGIN_STATUS = frozenset({407, 511})
_TOKEN = "set HF_TOKEN to a token that may read it"  # noqa: S105  (a sentence, no token)


def is_page(answer: bytes) -> bool:
    """Whether an answer is a web page: a proxy's that asks for a login, a mirror's that is gone."""
    begin = answer[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return begin.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<!--"))


def check_begin(path: str, head: bytes) -> None:
    """Raise DownloadError where what came as a model does not begin like one, and say what it is.

    head: its first bytes; few or none tell nothing
    """
    if MAGIC.startswith(head[: len(MAGIC)]):
        return
    if is_page(head):
        what = "a web page"
    else:
        begin = head[:60].decode(errors="replace")
        what = f"no GGUF file, it begins with {begin!r}"
    raise DownloadError(
        f"The download of {path} is {what}.",
        hint=f"{NO_HUB} Then run the same command again.",
        code="NOT_THE_FILE",
    )


def is_beyond_the_end(error: Exception) -> bool:
    """Whether more was asked for than the Hub's file has."""
    return isinstance(error, HfHubHTTPError) and error.response.status_code == _BEYOND_THE_END


def is_passing(error: Exception) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in (*_PASSING_STATUS, _BEYOND_THE_END)
    # Fewer bytes came than were announced. The client says so in its message only.
    if isinstance(error, OSError) and "Consistency check" in str(error):
        return True
    return _is_transport(error) and not _has_base(
        error, "ConnectError", "ConnectTimeout", "UnsupportedProtocol"
    )


def translate(
    error: Exception, repo: str, revision: str, path: str | None = None
) -> WorkerError | Exception:
    """Our error for one of the client's. Any other error is returned as it is."""
    if isinstance(error, WorkerError):
        return error
    if isinstance(error, OfflineModeIsEnabled):
        return DownloadError(
            "HF_HUB_OFFLINE is set, so nothing is fetched.",
            hint="Unset it; models that are here already run without it.",
            code="OFFLINE",
        )
    if isinstance(error, HfHubHTTPError):
        return _refusal(error, repo, revision, path)
    if isinstance(error, HFValidationError):
        return DownloadError(f"{repo} is no name of a repository.", code="REPO_NOT_FOUND")
    if isinstance(error, FileMetadataError) or _has_base(error, "TooManyRedirects", "InvalidURL"):
        return DownloadError(f"{constants.ENDPOINT} did not answer as the Hub does.", hint=NO_HUB)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return unwritable(error)
    if _is_transport(error):
        return DownloadError(
            f"{constants.ENDPOINT} cannot be reached: {str(error) or type(error).__name__}.",
            hint="Check the network, HF_ENDPOINT and the proxy, then run the same command again; "
            "it goes on where it stopped. Without a network, copy the .gguf file here and pass "
            "its path.",
            code="HUB_UNREACHABLE",
        )
    if isinstance(error, OSError) and "Consistency check" in str(error):
        return DownloadError(
            f"{path} came shorter or longer than the Hub had announced, again and again.",
            hint="Run the same command again; it goes on where it stopped.",
        )
    return error


def unwritable(error: OSError) -> WorkerError | OSError:
    """Our error for one of the file system's; one of the network's is returned as it is."""
    if error.errno is None or isinstance(error, ConnectionError | TimeoutError):
        return error
    if (exhausted := out_of_memory(error)) is not None:
        return exhausted
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskSpaceError(
            f"The disk of {constants.HF_HUB_CACHE} is full.",
            hint="Free some room and run the same command again; it goes on where it stopped.",
        )
    place = f" ({error.filename})" if isinstance(error.filename, str) else ""
    return DownloadError(
        f"The Hub's cache {constants.HF_HUB_CACHE} cannot be used: {error.strerror}{place}.",
        hint="Set HF_HOME to a folder that can be written to, and run the same command again.",
        code="CACHE_UNUSABLE",
    )


def _refusal(error: HfHubHTTPError, repo: str, revision: str, path: str | None) -> DownloadError:
    status = error.response.status_code
    if isinstance(error, GatedRepoError):
        return DownloadError(
            f"{repo} is gated.",
            hint=f"Accept its terms on its page on the Hub, then {_TOKEN}.",
            code="GATED",
        )
    if isinstance(error, RevisionNotFoundError):
        return DownloadError(
            f"{repo} has no revision {revision}.", hint="Try main.", code="REVISION_NOT_FOUND"
        )
    if isinstance(error, RemoteEntryNotFoundError) or (status == 404 and path is not None):
        return DownloadError(
            f"{repo} has no file {path}.",
            hint=f"Pull `hf:{repo}:Q4_K_M`, say, to choose from what it has.",
            code="FILE_NOT_FOUND",
        )
    if isinstance(error, RepositoryNotFoundError) or status in (401, 403, 404):
        return DownloadError(
            f"The Hub has no repository {repo} that can be read from here.",
            hint=f"Check its name; if it is private, {_TOKEN}.",
            code="REPO_NOT_FOUND",
        )
    if status == 429:
        return DownloadError(
            "The Hub says that this machine asks too often.",
            hint="Wait some minutes, or set HF_TOKEN to be counted by account.",
            code="RATE_LIMITED",
        )
    if status in _LOGIN_STATUS:
        return DownloadError(
            f"A proxy or a network on the way to {constants.ENDPOINT} asks for a login (status "
            f"{status}).",
            hint="Log in there, or check HTTPS_PROXY, then run the same command again.",
            code="HUB_UNREACHABLE",
        )
    if status == _BEYOND_THE_END:
        return DownloadError(
            f"The Hub sends fewer bytes of {path} than it has announced (status 416).",
            hint="Run the same command again later; it begins anew.",
        )
    return DownloadError(
        f"The Hub failed with status {status}.",
        hint="Run the same command again later; it goes on where it stopped.",
        code="HUB_FAILED",
    )


def _is_transport(error: Exception) -> bool:
    """Whether the HTTP library failed. The client chooses which one it uses: httpx or httpx2."""
    return _has_base(error, "TransportError")


def _has_base(error: Exception, *names: str) -> bool:
    return any(base.__name__ in names for base in type(error).__mro__)
