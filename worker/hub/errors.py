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

from worker.errors import DiskSpaceError, DownloadError, WorkerError

_PASSING_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_TOKEN = "set HF_TOKEN to a token that may read it"  # noqa: S105  (a sentence, no token)


def is_passing(error: Exception) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in _PASSING_STATUS
    # Fewer bytes came than were announced. The client says so in its message only.
    if isinstance(error, OSError) and "Consistency check" in str(error):
        return True
    return _is_transport(error) and not _has_base(
        error, "ConnectError", "ConnectTimeout", "UnsupportedProtocol"
    )


def translated(
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
        return _refused(error, repo, revision, path)
    if isinstance(error, HFValidationError):
        return DownloadError(f"{repo} is no name of a repository.", code="REPO_NOT_FOUND")
    if isinstance(error, FileMetadataError) or _has_base(error, "TooManyRedirects", "InvalidURL"):
        return DownloadError(
            f"{constants.ENDPOINT} did not answer as the Hub does.", hint="Check HF_ENDPOINT."
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskSpaceError(
            f"The disk of {constants.HF_HUB_CACHE} is full.",
            hint="Free some room and run the same command again; it goes on where it stopped.",
        )
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


def _refused(error: HfHubHTTPError, repo: str, revision: str, path: str | None) -> DownloadError:
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
            hint=f"Check its name; where it is private, {_TOKEN}.",
            code="REPO_NOT_FOUND",
        )
    if status == 429:
        return DownloadError(
            "The Hub says that this machine asks too often.",
            hint="Wait some minutes, or set HF_TOKEN to be counted by account.",
            code="RATE_LIMITED",
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
