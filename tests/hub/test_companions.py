"""Which files of a repository, and of the cache, are no models though their names look alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models import ggufs
from worker.hub.choice import choose_drafter, companions, companions_here, offers

MODELS = {"m-Q4_K_M.gguf": 4000, "m-F16.gguf": 16000}


@pytest.mark.parametrize(
    "path",
    ["m-imatrix-Q4_K_M.gguf", "m-Q4_K_M-imatrix.gguf", "imatrix/m-Q5_K_M.GGUF",
     "m-i1-imatrix.Q6_K.gguf", "m-MTP-Q8_0.gguf", "m-mtp-BF16.gguf", "MTP/m-IQ4_XS.gguf",
     "with-mmproj/m-Q8_0.gguf", "m-no-mmproj-Q4_0.gguf", "imatrix-m-IQ2_XXS.gguf",
     "imatrix-F16/m-F16.gguf", "m-mtp.gguf", "prompt-mtpx-Q4_0.gguf"],
)  # fmt: skip
def test_a_word_inside_hides_no_model(path: str) -> None:
    """Words inside a name, or in a folder's, hide no model, whatever lies beside it."""
    for beside in ({}, MODELS):
        files = {path: 4200, **beside}
        assert path in {offer.files[0] for offer in offers(files, companions(files))}


@pytest.mark.parametrize(
    "path",
    ["mmproj-m-F16.gguf", "mmproj.gguf", "MMPROJ-m-Q4_K_M.GGUF", "imatrix.gguf",
     "imatrix_unsloth.gguf", "m-imatrix.gguf", "m.imatrix.gguf", "m-F16-imatrix.gguf",
     "mtp-m-Q8_0.gguf", "vl/mmproj-F32.gguf", "m-mmproj-f16.gguf", "m.mmproj.gguf",
     "mmproj/m-BF16.gguf"],
)  # fmt: skip
def test_companions_are_no_models(path: str) -> None:
    """What is called by such a word, and what is small beside the models, is not offered."""
    files = {path: 900, **MODELS}
    assert path not in {offer.files[0] for offer in offers(files, companions(files))}
    assert companions(MODELS) == set()


def test_what_is_here_is_judged_by_what_it_holds(tmp_path: Path) -> None:
    """In the cache a file's header decides, not its name."""
    ggufs.write_llama(tmp_path / "mmproj-in-front-Q8_0.gguf")
    ggufs.write_llama(tmp_path / "m-imatrix.GGUF")
    ggufs.write_llama(tmp_path / "m-F32.gguf")
    matrix = ggufs.Gguf(keys={"general.type": ggufs.text("imatrix")})
    matrix.write(tmp_path / "large-imatrix-Q4_0.gguf")
    (tmp_path / "mmproj-damaged.gguf").write_bytes(b"GGUF")
    (tmp_path / "mtp-inside-Q4_0.gguf").write_bytes(b"GGUF")
    files = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    found = companions_here(tmp_path, files)
    assert found == {"large-imatrix-Q4_0.gguf", "mmproj-damaged.gguf", "mtp-inside-Q4_0.gguf"}


@pytest.mark.parametrize(
    ("files", "quant", "expected"),
    [
        (("m-Q4_K_M.gguf", "m-mtp-Q8_0.gguf", "imatrix.gguf"), "Q4_K_M", None),
        (("mtp-m-Q8_0.gguf", "a/mtp-m-Q4_K_M.gguf"), "Q4_K_M", "a/mtp-m-Q4_K_M.gguf"),
        (("mtp-m-Q8_0.gguf", "mtp-m-BF16.gguf"), "Q4_K_M", "mtp-m-Q8_0.gguf"),
        (("eagle3-m-Q4_K_M.gguf", "MTP-m-F16.gguf"), "Q4_K_M", "MTP-m-F16.gguf"),
        (("dflash-m.gguf", "eagle3-m.gguf"), "Q8_0", "eagle3-m.gguf"),
        (("dflash-m.gguf",), "Q8_0", "dflash-m.gguf"),
    ],
)
def test_a_drafter_among_files(files: tuple[str, ...], quant: str, expected: str | None) -> None:
    """Its name begins with what it is; of several the encoding counts, then the bits."""
    assert choose_drafter(files, quant) == expected
