"""GGUF files that are no model to generate with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.models.ggufs import (
    Gguf,
    f32,
    text,
    u32,
)
from tests.support.models.spoiled import (
    Change,
    Row,
    all_of,
    dropped,
    keyed,
    refused,
    rows,
    small,
    tensor,
    write_spoiled,
)
from worker.model.checks import model as checks
from worker.model.config import load_config

OTHERS: list[Row] = [
    ("n_tensors = 0", "VOCAB_ONLY", lambda g: setattr(g, "tensors", [])),
    ("imatrix", "IMATRIX", all_of(lambda g: g.drop("general.architecture"),
                                  keyed("general.type", text("imatrix")))),
    ("old imatrix", "IMATRIX", keyed("imatrix.chunk_count", u32(1))),
    ("LoRA adapter", "LORA_ADAPTER", keyed("general.type", text("adapter"))),
    ("LoRA adapter, old", "LORA_ADAPTER", keyed("adapter.type", text("lora"))),
    ("mmproj", "MMPROJ", keyed("general.architecture", text("clip"))),
    ("mmproj by type", "MMPROJ", keyed("general.type", text("mmproj"))),
    ("general.architecture missing", "MISSING_KEY", dropped("general.architecture")),
    ("architecture wrong type", "WRONG_TYPE", keyed("general.architecture", u32(1))),
    ("architecture unknown", "UNKNOWN_ARCHITECTURE", keyed("general.architecture", text("lama"))),
    ("architecture not [a-z0-9_-]", "UNKNOWN_ARCHITECTURE",
     keyed("general.architecture", text("Llama 2"))),
    ("architecture 10 KB", "UNKNOWN_ARCHITECTURE",
     keyed("general.architecture", text("x" * 10_240))),
    ("quantised tensors, no general.quantization_version", "NO_QUANTIZATION_VERSION",
     all_of(dropped("general.quantization_version"),
            tensor("output.weight", type=8, data=bytes(300 * 34)))),
]  # fmt: skip


@pytest.mark.parametrize(("code", "change"), rows(OTHERS))
def test_another_kind_of_file(code: str, change: Change, tmp_path: Path) -> None:
    """The file is refused with its own code, one sentence and the next step."""
    assert refused(write_spoiled(tmp_path, change)).code == code


@pytest.mark.parametrize("arch", ["bert", "t5", "eagle3"])
def test_models_that_cannot_generate(arch: str, tmp_path: Path) -> None:
    """Encoders, encoder-decoders and draft heads are refused for generating only."""
    path = small(architecture=arch).write(tmp_path / "m.gguf")
    codes = {"bert": "ENCODER_ONLY", "t5": "ENCODER_DECODER", "eagle3": "DRAFT_MODEL"}
    assert refused(path).code == codes[arch]
    assert load_config(path, purpose="inspect").architecture == arch


def test_what_a_drafter_drafts_for(tmp_path: Path) -> None:
    """It is named if the file does."""
    model = small(architecture="eagle3")
    model.keys["general.base_model.0.name"] = text("Llama 3.1 8B")
    assert "this one for Llama 3.1 8B." in refused(model.write(tmp_path / "m.gguf")).message


@pytest.mark.parametrize("family", ["kev", "laya", "vllm-d3", "clef", "lfm2-d1-omni", "a new one"])
def test_decision_models_with_heads(family: str, tmp_path: Path) -> None:
    """Models for decisions that need heads are refused, and so are unknown ones."""
    change = keyed("llama.decision.type", text(family))
    assert refused(write_spoiled(tmp_path, change)).code == "DECISION_HEADS"


@pytest.mark.parametrize("family", ["openjev", "lev", "nimble", "pplx-decider", "lfm2-d1"])
def test_decision_models_by_labels(family: str, tmp_path: Path) -> None:
    """Models for decisions that read labels' logits are models like others, and known as such."""
    path = write_spoiled(tmp_path, keyed("llama.decision.type", text(family)))
    config = load_config(path, purpose="generate")
    assert (config.architecture, config.decision_type) == ("llama", family)


def test_temperatures_of_decisions(tmp_path: Path) -> None:
    """They are read whether they are texts or numbers; what is no positive number is refused."""
    key = "llama.decision.temperature.choice.2"
    for value in (text("1.750000"), f32(1.75)):
        path = write_spoiled(tmp_path, keyed(key, value))
        assert load_config(path, purpose="generate").decision_temperatures == {"choice.2": 1.75}
    for wrong in (text("hot"), text("0"), text("nan"), f32(-1.0)):
        assert refused(write_spoiled(tmp_path, keyed(key, wrong))).code == "BAD_VALUE"
    assert len(str(refused(write_spoiled(tmp_path, keyed(key, text("x" * 9999)))))) < 400


def test_an_empty_template_for_decisions_is_none(tmp_path: Path) -> None:
    """Such a file is asked by the worker's own prompts, with a warning as without one."""

    def change(model: Gguf) -> None:
        model.keys["llama.decision.type"] = text("lev")
        model.keys["tokenizer.chat_template.systemone"] = text("")

    path = write_spoiled(tmp_path, change)
    assert load_config(path, purpose="generate").decision_form is None


CODE = re.compile(r"\b[A-Z0-9]+(?:_[A-Z0-9]+)+\b")
QUOTED = re.compile(r'"([A-Z0-9]+(?:_[A-Z0-9]+)+)"')


def test_codes_are_documented() -> None:
    """Each code that checks/model.py lists is raised somewhere; `refused` checks the reverse."""
    folder = Path(checks.__file__).parents[2]
    listed = {word for line in (checks.__doc__ or "").splitlines() for word in CODE.findall(line)}
    used = {
        code
        for path in folder.rglob("*.py")
        for code in QUOTED.findall(path.read_text().replace(checks.__doc__ or "", ""))
    }
    assert listed
    assert listed <= used
