"""Check and service agree: what one refuses the other refuses, in the same words."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.gguf.test_foreign import FOREIGN
from tests.gguf.test_hostile import HEADER, KEYS, TABLE
from tests.model.checks.test_hyperparameters import VALUES
from tests.model.checks.test_model import OTHERS as OTHER_FILES
from tests.model.checks.test_tensors import TENSORS
from tests.model.checks.test_tokenizer import BPE, TOKENIZER
from tests.support.cases import for_each
from tests.support.models import ggufs
from tests.support.models.architectures import WRITERS
from tests.support.models.native import LOADED, Judge
from tests.support.models.native import judge as natively
from tests.support.models.spoiled import Change, Row, rows, write_spoiled
from worker.audit import verdict as module
from worker.audit.discovery import Candidate
from worker.audit.verdict import OTHERS, FileVerdict, judge
from worker.errors import ModelFileError, WorkerError
from worker.lifecycle.prepared import prepare
from worker.settings import Settings


def verdict_of(path: Path, *, found: bool = False, deep: bool = False) -> FileVerdict:
    """The verdict of one file; `found` in a folder, or named."""
    return judge(
        Candidate(path=path, found=found), deep=deep, entries=(), count=lambda _count: None
    )


def served(path: Path) -> WorkerError | None:
    """What keeps a service from loading the file; None: it loads."""
    try:
        prepare(path, Settings())
    except WorkerError as error:
        return error
    return None


DAMAGED: list[Row] = [*FOREIGN, *HEADER, *KEYS, *TABLE, *VALUES, *OTHER_FILES, *TENSORS, *TOKENIZER]


@for_each(("code", "change"), rows(DAMAGED))
def test_a_damaged_file(code: str, change: Change, tmp_path: Path) -> None:
    """A named file is refused as a service refuses it, and so is one in a folder, unless it is
    sound and something else than a model."""
    path = write_spoiled(tmp_path, change)
    error = served(path)
    assert isinstance(error, ModelFileError)
    assert error.code == code
    for found in (False, True) if code not in ("LORA_ADAPTER", "MMPROJ") else ():  # as such
        verdict = verdict_of(path, found=found, deep=True)
        assert verdict.ok == (found and code in OTHERS)
        said = (error.code, error.message, error.hint, error.offset, error.field)
        assert (verdict.code, verdict.message, verdict.hint, verdict.offset, verdict.field) == said


@pytest.mark.parametrize(("code", "change"), rows(BPE))
def test_a_damaged_bpe_vocabulary(code: str, change: Change, tmp_path: Path) -> None:
    """The same for the other kind of vocabulary."""
    verdict = verdict_of(write_spoiled(tmp_path, change, vocab="bpe"))
    assert (verdict.ok, verdict.code) == (False, code)


@pytest.fixture(scope="module")
def native() -> object:
    """llama.cpp in a process of its own."""
    with natively() as found:
        yield found


@for_each("encoding", ["F32", "F16", "BF16", *ggufs.QUANTIZED])
def test_what_is_good_loads(encoding: str, tmp_path: Path, native: Judge) -> None:
    """A model that is good to the check is good to the service, and to llama.cpp."""
    path = ggufs.write_llama(tmp_path / "m.gguf", encoding=encoding)
    verdict = verdict_of(path, deep=True)
    assert verdict.ok
    assert (verdict.architecture, verdict.bytes) == ("llama", path.stat().st_size)
    assert served(path) is None
    assert native.try_file(path) == LOADED


@pytest.mark.parametrize("name", WRITERS)
def test_other_architectures(name: str, tmp_path: Path, native: Judge) -> None:
    """The same for models that are no Llamas."""
    path = WRITERS[name](tmp_path / "m.gguf")
    verdict = verdict_of(path, deep=True)
    assert (verdict.ok, verdict.weights_read, verdict.tensors) == (True, True, ())
    assert served(path) is None
    assert native.try_file(path) == LOADED


def test_a_vocabulary_with_a_fault_is_bad(tmp_path: Path) -> None:
    """What is no model is held to what it is: a fault in it is told in a folder too."""
    gguf = ggufs.vocab_gguf()
    assert verdict_of(gguf.write(tmp_path / "good.gguf"), found=True).ok
    del gguf.keys["tokenizer.ggml.model"]
    gguf.keys["tokenizer.ggml.model"] = ggufs.text("nothing known")
    verdict = verdict_of(gguf.write(tmp_path / "bad.gguf"), found=True)
    assert (verdict.ok, verdict.code) == (False, "UNKNOWN_TOKENIZER")


def test_nothing_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a file makes happen, the verdict says so and the next file can be checked."""
    path = ggufs.write_llama(tmp_path / "m.gguf")
    for error, code in ((MemoryError(), "DOES_NOT_FIT"), (OSError(5, "Input/output error"), "IO"),
                        (RecursionError("deep"), "INTERNAL")):  # fmt: skip

        def failing(_path: Path, error: BaseException = error, **_: object) -> None:
            raise error

        monkeypatch.setattr(module, "load_config", failing)
        verdict = verdict_of(path)
        assert (verdict.ok, verdict.code) == (False, code)
        assert verdict.message is not None


def test_two_hundred_gigabytes_of_headers(tmp_path: Path) -> None:
    """Only headers are read: files of 200 GB together take no room and are good."""
    total = 0
    for number in range(4):
        path = ggufs.sparse_llama(
            tmp_path / f"{number}.gguf", layers=8, embedding=16384, feed_forward=45056, heads=128,
            kv_heads=128, encoding="F16",
        )  # fmt: skip
        verdict = verdict_of(path)
        assert verdict.ok
        assert verdict.bytes == path.stat().st_size
        assert path.stat().st_blocks * 512 < 1 << 20
        assert stat.S_ISREG(path.stat().st_mode)
        total += verdict.bytes
    assert total > 200e9
