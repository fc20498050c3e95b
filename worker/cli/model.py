"""The model file that a command works on."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from worker import machine
from worker.cli.progress import pull_progress
from worker.demo import MODEL_PATH
from worker.errors import ModelFileError, UsageError
from worker.hub.catalog import load_catalog
from worker.hub.name import Reference, Remote, parse
from worker.settings import Settings

# The encoding of a model of the Hub of which none is named, as in llama-server.
_USUAL = "Q4_K_M"


def model_path(settings: Settings) -> Path:
    """The file of the model that was named, or of the embedded demo model.

    `hub/name.py` has the forms of a name. Raises UsageError for an unknown name, ModelFileError for
    a model that has not been pulled.
    """
    return _find(MODEL_PATH if settings.model is None else parse(settings.model), settings)


def fetch_models(settings: Settings) -> tuple[Path, Settings]:
    """`model_path` and `with_draft_path`; what was named as on the Hub is fetched where it is not
    here. Raises DownloadError, DiskSpaceError too."""
    if settings.hf_token is not None:
        os.environ["HF_TOKEN"] = settings.hf_token  # which the Hub's client reads at its import
    model, draft = settings.model, settings.draft_model
    if settings.hf_repo is not None and model is not None:
        seen = settings.mmproj_auto and settings.mmproj is None
        settings = replace(settings, model=f"file:{_fetch(model, settings, with_projector=seen)}")
    if settings.hf_draft is not None and draft is not None:
        draft = _drafter_of(draft, model, settings) or draft
        settings = replace(settings, draft_model=str(_fetch(draft, settings, with_projector=False)))
    return model_path(settings), with_draft_path(settings)


def _drafter_of(text: str, model: str | None, settings: Settings) -> str | None:
    """The drafter that lies in a repository, by its name; None: there is none.

    The Hub is asked only if nothing of the repository is here but the model itself.
    """
    from worker.hub.cache import RepoCache
    from worker.hub.choice import choose_drafter
    from worker.hub.client import list_models

    wanted = parse(text)
    if not isinstance(wanted, Remote) or wanted.file is not None:
        return None
    repo, revision, quant = wanted.repo, wanted.revision, wanted.quant or _USUAL
    _, here = RepoCache(repo).models(revision)
    path = choose_drafter(here, quant)
    other = parse(model) if model else None
    is_own = isinstance(other, Remote) and other.repo == repo
    if path is None and not settings.offline and (is_own or not here):
        path = choose_drafter(list_models(repo, revision), quant)
    return path and f"hf:{repo}@{revision}::file={path}"


def _fetch(text: str, settings: Settings, *, with_projector: bool) -> Path:
    """A model that is here is taken as it is: a start needs no Hub."""
    from worker.hub.locate import locate
    from worker.hub.pull import find, pull

    catalog, memory, named = load_catalog(settings.catalog), machine.memory(), parse(text)
    usual = named
    if isinstance(named, Remote) and named.quant is None and named.file is None:
        usual = replace(named, quant=_USUAL)
    for reference in dict.fromkeys((usual, named)):
        try:
            return locate(reference, catalog, memory)
        except ModelFileError:  # it is not here
            if reference == named and settings.offline:
                raise
        if settings.offline:
            continue
        try:
            wanted = find(reference, catalog, memory, projector=with_projector)
        except UsageError:  # there is none in the usual encoding
            if reference == named:
                raise
            continue
        with pull_progress() as report:
            return Path(pull(wanted, report).path)
    raise AssertionError


def with_draft_path(settings: Settings) -> Settings:
    """The same settings with the file of the draft model instead of its name. Raises as above."""
    if settings.draft_model is None:
        return settings
    return replace(settings, draft_model=str(_find(parse(settings.draft_model), settings)))


def _find(reference: Reference, settings: Settings) -> Path:
    is_path = isinstance(reference, Path)
    if is_path and settings.catalog is None:
        return reference
    # A path needs neither the Hub's client nor the catalogue.

    catalog = load_catalog(settings.catalog)  # what was named is read, also where a path needs none
    if is_path:
        return reference
    from worker.hub.locate import locate

    return locate(reference, catalog, machine.memory())
