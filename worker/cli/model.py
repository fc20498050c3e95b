"""The model file that a command works on."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from worker import machine
from worker.demo import MODEL_PATH
from worker.hub.name import Reference, parse
from worker.settings import Settings


def model_path(settings: Settings) -> Path:
    """The file of the model that was named, or of the embedded demo model.

    `hub/name.py` has the forms of a name. Raises UsageError for an unknown name, ModelFileError for
    a model that has not been pulled.
    """
    return _find(MODEL_PATH if settings.model is None else parse(settings.model), settings)


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
    from worker.hub.catalog import load_catalog

    catalog = load_catalog(settings.catalog)  # what was named is read, also where a path needs none
    if is_path:
        return reference
    from worker.hub.locate import locate

    return locate(reference, catalog, machine.memory())
