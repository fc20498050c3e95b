"""How model families write answers: thoughts, content and calls as their own tokens.

FAMILIES["qwen3"].answer("Rain?", "I look.", [("sky", {"at": "Rome"})])
    <think>\nRain?\n</think>\n\nI look.\n<tool_call>\n{"name": "sky", ...}\n</tool_call>
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.models import reciting, templates
from tests.support.models.reciting import Recital

Arguments = dict[str, Any]
SIZES = (1, 3, 4, 5, 7)  # of pieces, in characters: two would be spelled


@dataclass(frozen=True)
class Speaker:
    """A family.

    template   its name among llama.cpp's
    opening    what its prompts end with
    more       what they end with otherwise, as after a tool's result
    write      (name, arguments) -> the text of a call
    around     of all calls: before the first, between two, after the last
    thought    around a thought, None: it thinks nothing; `content` around its answer
    variables  what the template gets, so that the prompt ends with the opening
    opened     what of an answer the opening holds already
    end        the token that ends an answer, and `call_end` one with calls
    many       whether an answer holds several calls
    speaks     whether an answer holds content and calls
    """

    template: str
    opening: str
    write: Callable[[str, Arguments], str]
    end: str
    more: tuple[str, ...] = ()
    around: tuple[str, str, str] = ("", "", "")
    thought: tuple[str, str] | None = None
    content: tuple[str, str] = ("", "")
    opened: str = ""
    variables: dict[str, Any] = field(default_factory=dict[str, Any])
    controls: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    bos: str = "<s>"
    call_end: str = ""
    many: bool = True
    speaks: bool = True

    def answer(
        self, thought: str = "", content: str = "", calls: Sequence[tuple[str, Arguments]] = ()
    ) -> str:
        """The text of an answer; what the family does not write is left out."""
        parts: list[str] = []
        if self.thought is not None:
            parts.append(thought.join(self.thought))
        if content and (self.speaks or not calls):
            parts.append(content.join(self.content))
        if calls:
            before, between, after = self.around
            texts = [self.write(*call) for call in calls[: None if self.many else 1]]
            parts.append(before + between.join(texts) + after + self.call_end)
        return "".join(parts).removeprefix(self.opened)

    def recital(self, text: str, cue: str = "", seed: int = 0) -> Recital:
        """The text in tokens, cut at random, up to the token that ends calls."""
        if self.call_end:
            text, called, _ = text.partition(self.call_end)
            return Recital(self.cut(text, seed), cue, end=called)
        return Recital(self.cut(text, seed), cue)

    def cut(self, text: str, seed: int) -> list[str]:
        """The family's tokens, and what stands between them in pieces."""
        draw = random.Random(seed)
        tokens = sorted((*self.controls, *self.shown), key=len, reverse=True)
        pieces: list[str] = []
        found = re.split("(" + "|".join(map(re.escape, tokens)) + ")", text) if tokens else [text]
        for part in found:
            rest = "" if part in tokens else part
            pieces += [part] * (part in tokens)
            while rest:
                size = draw.choice(SIZES)
                pieces.append(rest[:size])
                rest = rest[size:]
        return pieces

    def write_model(self, path: Path, recitals: Sequence[Recital], **options: Any) -> Path:
        """A model of the family that says these texts."""
        given: dict[str, Any] = {
            "openings": (self.opening, *self.more),
            "template": templates.text(self.template),
            "controls": (*self.controls, *([self.call_end] if self.call_end else [])),
            "shown": self.shown,
            "bos": self.bos,
            "end": self.end,
            "name": self.template,
        }
        return reciting.write(path, recitals, **given | options)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _id(name: str) -> str:
    """Nine letters or digits."""
    return f"{name:0<9}"[:9]


def _in_tags(name: str, arguments: Arguments) -> str:
    call = _json({"name": name, "arguments": arguments})
    return f"<tool_call>\n{call}\n</tool_call>"


def _in_parameters(name: str, arguments: Arguments) -> str:
    texts = [
        f"<parameter={key}>\n{value if isinstance(value, str) else _json(value)}\n</parameter>\n"
        for key, value in arguments.items()
    ]
    return f"<tool_call>\n<function={name}>\n{''.join(texts)}</function>\n</tool_call>"


def _in_dsml(name: str, arguments: Arguments) -> str:
    texts = [
        f'<｜DSML｜parameter name="{key}" string="{_json(isinstance(value, str))}">'
        f"{value if isinstance(value, str) else _json(value)}</｜DSML｜parameter>\n"
        for key, value in arguments.items()
    ]
    return f'<｜DSML｜invoke name="{name}">\n{"".join(texts)}</｜DSML｜invoke>\n'


def _in_gemma(name: str, arguments: Arguments) -> str:
    def text(value: Any) -> str:
        if isinstance(value, str):
            return f'<|"|>{value}<|"|>'
        if isinstance(value, dict):
            return "{" + ",".join(f"{k}:{text(v)}" for k, v in value.items()) + "}"  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if isinstance(value, list):
            return "[" + ",".join(map(text, value)) + "]"  # pyright: ignore[reportUnknownArgumentType]
        return _json(value)

    return f"<|tool_call>call:{name}{text(arguments)}<tool_call|>"


_CHATML = ("<|im_start|>", "<|endoftext|>")
_LLAMA = ("<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>", "<|eom_id|>")
_MISTRAL = (
    "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
)  # fmt: skip
_DEEPSEEK = (
    "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<｜tool▁outputs▁begin｜>",
    "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>",
)  # fmt: skip
_THINK = ("<think>", "</think>")
_CALL_TAGS = ("<tool_call>", "</tool_call>")
_LLAMA_OPENING = "<|start_header_id|>assistant<|end_header_id|>\n\n"
_R1_CALL = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```<｜tool▁call▁end｜>"

FAMILIES: dict[str, Speaker] = {
    "hermes": Speaker(
        "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
        "<|im_start|>assistant\n",
        _in_tags,
        "<|im_end|>",
        around=("\n", "\n", ""),
        controls=_CHATML,
        shown=_CALL_TAGS,
        bos="<|begin_of_text|>",
    ),
    "qwen3": Speaker(
        "Qwen-Qwen3-0.6B",
        "<|im_start|>assistant\n",
        _in_tags,
        "<|im_end|>",
        around=("\n", "\n", ""),
        thought=("<think>\n", "\n</think>\n\n"),
        controls=_CHATML,
        shown=(*_CALL_TAGS, *_THINK),
    ),
    "qwen3-coder": Speaker(
        "Qwen3-Coder",
        "<|im_start|>assistant\n",
        _in_parameters,
        "<|im_end|>",
        around=("\n", "\n", ""),
        controls=_CHATML,
        shown=_CALL_TAGS,
    ),
    "llama-3": Speaker(
        "meta-llama-Llama-3.1-8B-Instruct",
        _LLAMA_OPENING,
        lambda name, arguments: _json({"name": name, "parameters": arguments}),
        "<|eot_id|>",
        controls=_LLAMA,
        bos="<|begin_of_text|>",
        many=False,
        speaks=False,
    ),
    "llama-3-tag": Speaker(
        "meta-llama-Llama-3.3-70B-Instruct",
        _LLAMA_OPENING,
        lambda name, arguments: _json(
            {"type": "function", "name": name, "parameters": arguments}
        ),
        "<|eot_id|>",
        around=("<|python_tag|>", "", ""),
        controls=_LLAMA,
        bos="<|begin_of_text|>",
        call_end="<|eom_id|>",
        many=False,
        speaks=False,
    ),
    "mistral-list": Speaker(
        "mistralai-Mistral-Nemo-Instruct-2407",
        "[/INST]",
        lambda name, arguments: _json({"name": name, "arguments": arguments, "id": _id(name)}),
        "</s>",
        more=("[/TOOL_RESULTS]",),
        around=("[TOOL_CALLS][", ", ", "]"),
        controls=_MISTRAL,
    ),
    "mistral-names": Speaker(
        "Mistral-Small-3.2-24B-Instruct-2506",
        "[/INST]",
        lambda name, arguments: (
            f"[TOOL_CALLS]{name}[CALL_ID]{_id(name)}[ARGS]{_json(arguments)}"
        ),
        "</s>",
        more=("[/TOOL_RESULTS]",),
        controls=(*_MISTRAL, "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[ARGS]", "[CALL_ID]"),
    ),
    "deepseek-r1": Speaker(
        "llama-cpp-deepseek-r1",
        "<｜Assistant｜><think>\n",
        lambda name, arguments: _R1_CALL.format(name, _json(arguments)),
        "<｜end▁of▁sentence｜>",
        more=("<｜tool▁outputs▁end｜><｜end▁of▁sentence｜>",),
        around=("<｜tool▁calls▁begin｜>", "\n", "<｜tool▁calls▁end｜>"),
        thought=("", "\n</think>\n\n"),
        controls=_DEEPSEEK,
        shown=_THINK,
        bos="<｜begin▁of▁sentence｜>",
    ),
    "deepseek-v3.1": Speaker(
        "deepseek-ai-DeepSeek-V3.1",
        "<｜Assistant｜><think>",
        lambda name, arguments: (
            f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{_json(arguments)}<｜tool▁call▁end｜>"
        ),
        "<｜end▁of▁sentence｜>",
        more=("<｜tool▁output▁end｜>",),
        around=("<｜tool▁calls▁begin｜>", "", "<｜tool▁calls▁end｜>"),
        thought=("", "</think>"),
        variables={"thinking": True},
        controls=_DEEPSEEK,
        shown=_THINK,
        bos="<｜begin▁of▁sentence｜>",
    ),
    "deepseek-v3.2": Speaker(
        "deepseek-ai-DeepSeek-V3.2",
        "<｜Assistant｜><think></think>",
        _in_dsml,
        "<｜end▁of▁sentence｜>",
        more=("\n\n<think></think>",),
        around=("\n\n<｜DSML｜function_calls>\n", "", "</｜DSML｜function_calls>"),
        controls=("<｜User｜>", "<｜Assistant｜>"),
        shown=(*_THINK, "｜DSML｜"),
        bos="<｜begin▁of▁sentence｜>",
    ),
    "granite-3": Speaker(
        "ibm-granite-granite-3.3-2B-Instruct",
        "<|start_of_role|>assistant<|end_of_role|>",
        lambda name, arguments: _json({"name": name, "arguments": arguments}),
        "<|end_of_text|>",
        around=("<|tool_call|>[", ", ", "]"),
        controls=("<|start_of_role|>", "<|end_of_role|>", "<|tool_call|>"),
    ),
    "functionary-3.1": Speaker(
        "meetkai-functionary-medium-v3.1",
        _LLAMA_OPENING,
        lambda name, arguments: f"<function={name}>{_json(arguments)}</function>",
        "<|eot_id|>",
        controls=_LLAMA,
        bos="<|begin_of_text|>",
        call_end="<|eom_id|>",
    ),
    "functionary-3.2": Speaker(
        "meetkai-functionary-medium-v3.2",
        f"{_LLAMA_OPENING}>>>",
        lambda name, arguments: f"{name}\n{_json(arguments)}",
        "<|eot_id|>",
        around=(">>>", ">>>", ""),
        content=(">>>all\n", ""),
        opened=">>>",
        controls=_LLAMA,
        bos="<|begin_of_text|>",
    ),
    "gpt-oss": Speaker(
        "openai-gpt-oss-120b",
        "<|start|>assistant",
        lambda name, arguments: (
            f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
            f"{_json(arguments)}"
        ),
        "<|return|>",
        around=("<|start|>assistant", "", ""),
        thought=("<|channel|>analysis<|message|>", "<|end|>"),
        content=("<|start|>assistant<|channel|>final<|message|>", ""),
        opened="<|start|>assistant",
        controls=("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>"),
        bos="<|startoftext|>",
        call_end="<|call|>",
        many=False,
        speaks=False,
    ),
    "gemma-4": Speaker(
        "google-gemma-4-31B-it",
        "<|turn>model\n",
        _in_gemma,
        "<turn|>",
        more=("<tool_response|>",),
        thought=("<|channel>thought\n", "<channel|>"),
        variables={"enable_thinking": True},
        controls=(
            "<|turn>", "<|channel>", "<channel|>", "<|tool>", "<tool|>", "<|tool_call>",
            "<tool_call|>", '<|"|>', "<tool_response|>", "<|think|>",
        ),
        bos="<bos>",
        call_end="<|tool_response>",
    ),
    "gemma-2": Speaker(
        "google-gemma-2-2b-it",
        "<start_of_turn>model\n",
        _in_tags,
        "<end_of_turn>",
        around=("\n", "\n", ""),
        controls=("<start_of_turn>",),
        bos="<bos>",
    ),
}  # fmt: skip
