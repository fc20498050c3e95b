"""The model file that a command works on."""

from __future__ import annotations

from pathlib import Path

from worker import machine
from worker.demo import MODEL_PATH
from worker.hub.name import parse
from worker.settings import Settings


def model_path(settings: Settings) -> Path:
    """The file of the model that was named, or of the embedded demo model.

    `hub/name.py` has the forms of a name. Raises UsageError for an unknown name, ModelFileError for
    a model that has not been pulled.
    """
    if settings.model is None:
        return MODEL_PATH
    reference = parse(settings.model)
    if isinstance(reference, Path):
        return reference
    # A path needs neither the Hub's client nor the catalogue.
    from worker.hub.catalog import load_catalog
    from worker.hub.locate import locate

    return locate(reference, load_catalog(settings.catalog), machine.memory())
