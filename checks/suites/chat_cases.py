"""The cases of llama.cpp's test-chat.cpp: what a model wrote, and how it is to be read.

Their builder is compiled with a `run()` that prints each case instead of testing it.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from checks.suites.outcome import PASSED, Outcome
from checks.suites.sdist import llama_cpp
from worker.chat.format import ChatFormat
from worker.chat.message import Call, Message, Tool
from worker.chat.reader import Arguments, CallBegun, Content, Thought
from worker.chat.template import ChatTemplate
from worker.chat.thinking import Thinking

# Declarations of theirs that the cases are made of: file -> what begins each.
_DECLARED = (
    ("common/common.h", "enum common_reasoning_format"),
    ("common/chat.h", "struct common_chat_tool_call "),
    ("common/chat.h", "struct common_chat_msg_content_part "),
    ("common/chat.h", "struct common_chat_msg {"),
    ("common/chat.h", "struct common_chat_tool {"),
    ("common/chat.h", "enum common_chat_tool_choice"),
    ("common/chat.h", "enum common_chat_continuation"),
    ("common/chat.h", "struct common_chat_templates_inputs {"),
)
_METHOD = "common_json to_json_oaicompat(bool concat_typed_text = false) const;"
# Lines that begin and end the parts that are taken.
_PARTS = (
    ("static common_chat_tool special_function_tool{", "struct make_peg_parser"),
    ("class peg_test_builder;", "static void test_msgs_oaicompat_json_conversion"),
    ("static void test_lfm2_parser", "static void test_template_generation_prompt"),
)
# Blocks with these apply a template: no cases of reading.
_APPLYING = ("auto tmpls = read_templates(", "auto tmpls = common_chat_templates_ptr(")
_FILTERED = re.compile(
    r'if \(!g_template_filter\.empty\(\) && std::string\("[^"]*"\)\.find\(g_template_filter\)'
    r" != std::string::npos\)"
)
_HEAD = """#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>
#define LOG_DBG(...)
#define LOG_INF(...)
"""
_PRINTER = r"""
static std::string quoted(const std::string & text) {
    std::string out = "\"";
    char code[8];
    for (unsigned char c : text) {
        if (c == '"' || c == '\\') { out += '\\'; out += c; }
        else if (c < 32) { snprintf(code, sizeof code, "\\u%04x", c); out += code; }
        else { out += c; }
    }
    return out + "\"";
}
static std::string listed(const common_chat_msg & m) {
    std::string calls;
    for (auto & c : m.tool_calls) {
        calls += (calls.empty() ? "[" : ",[") + quoted(c.name) + "," + quoted(c.arguments) + ","
            + quoted(c.id) + "]";
    }
    return "{\"role\":" + quoted(m.role) + ",\"content\":" + quoted(m.content) + ",\"thought\":"
        + quoted(m.reasoning_content) + ",\"calls\":[" + calls + "],\"name\":"
        + quoted(m.tool_name) + ",\"call_id\":" + quoted(m.tool_call_id) + "}";
}
static void print_case(const std::string & path, const peg_test_case & c) {
    std::string tools, messages;
    for (auto & t : c.params.tools) {
        tools += (tools.empty() ? "[" : ",[") + quoted(t.name) + "," + quoted(t.description) + ","
            + quoted(t.parameters) + "]";
    }
    for (auto & m : c.params.messages) { messages += (messages.empty() ? "" : ",") + listed(m); }
    auto number = [](int value) { return std::to_string(value); };
    puts(("{\"template\":" + quoted(path) + ",\"input\":" + quoted(c.input) + ",\"expect\":"
        + listed(c.expect) + ",\"partial\":" + number(c.is_partial) + ",\"opens\":"
        + number(c.params.add_generation_prompt) + ",\"continues\":"
        + number(c.params.continue_final_message) + ",\"parallel\":"
        + number(c.params.parallel_tool_calls) + ",\"format\":"
        + number(c.params.reasoning_format) + ",\"thinks\":" + number(c.params.enable_thinking)
        + ",\"tools\":[" + tools + "],\"messages\":[" + messages + "]}").c_str());
}
"""
_MAIN = "\nint main() { test_template_output_peg_parsers(false); }\n"
# Texts that a model of these templates has as control tokens.
_CONTROL = re.compile(
    r"<[|｜][^<>\s]{1,40}[|｜]>|</?s>|<(?:start|end)_of_turn>|<turn\|>|<eos>|<eot_id>"
    r"|<\|[a-z_]+>|<[a-z_]+\|>"
)
_ASKED = "Hey there!"  # where a case has no messages


def outcome() -> Outcome:
    """Each case read whole, by character and in threes; a continued message is left out."""
    known = cases()
    found: dict[str, str] = {}
    for number, case in enumerate(known):
        if case["continues"]:
            continue
        name = f"{number} {Path(case['template']).stem}"
        found[name] = _read(case, known) or PASSED
    return Outcome("chat-cases", found)


def cases() -> list[dict[str, Any]]:
    """The cases in their order."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cases.cpp").write_text(_program(llama_cpp()), "utf-8")
        subprocess.run(
            ["c++", "-O0", "-w", "-std=c++17", "-o", folder / "cases", folder / "cases.cpp"],
            check=True,
        )
        said = subprocess.run([folder / "cases"], capture_output=True, check=True).stdout
    return [json.loads(line) for line in said.splitlines()]


def _program(source: Path) -> str:
    declared = "\n".join(
        _block((source / file).read_text("utf-8"), begin) for file, begin in _DECLARED
    ).replace(_METHOD, "")
    lines = (source / "tests/test-chat.cpp").read_text("utf-8").splitlines()

    def place(beginning: str) -> int:
        return next(at for at, line in enumerate(lines) if line.startswith(beginning))

    tools, builder, tests = ("\n".join(lines[place(begin) : place(end)]) for begin, end in _PARTS)
    at = builder.index("    void run() {")
    end = builder.index("\n    }\n", at)
    builder = (
        f"{builder[:at]}    void run() {{ print_case(tester_.template_path(), tc_);{builder[end:]}"
    )
    builder = builder.replace("common_chat_templates_ptr tmpls_;", "")
    builder = builder.replace("        tmpls_(read_templates(template_path)),\n", "")
    for marker in _APPLYING:
        while marker in tests:
            at = tests.rindex("{", 0, tests.index(marker))
            tests = tests[:at] + tests[at + len(_braced(tests, at)) :]
    return "\n".join((_HEAD, declared, tools, _PRINTER, builder, _FILTERED.sub("", tests), _MAIN))


def _block(text: str, beginning: str) -> str:
    at = text.index(beginning)
    opened = text.index("{", at)
    return text[at:opened] + _braced(text, opened) + ";"


def _braced(text: str, at: int) -> str:
    """From the brace at this place to the one that closes it."""
    depth = 0
    for end in range(at, len(text)):
        depth += (text[end] == "{") - (text[end] == "}")
        if depth == 0:
            return text[at : end + 1]
    raise ValueError("a brace is not closed")


def _read(case: dict[str, Any], known: Sequence[dict[str, Any]]) -> str | None:
    """How our reading differs; None where it does not."""
    inputs = tuple(each["input"] for each in known if each["template"] == case["template"])
    reads, foreign = _format(case["template"], inputs)
    tools = [
        Tool(name=name, description=text, parameters=json.loads(schema) if schema.strip() else {})
        for name, text, schema in case["tools"]
    ]
    thinking = Thinking(is_on=bool(case["thinks"]), inline=case["format"] == 0)
    messages = [_message(each) for each in case["messages"]]
    prompt = reads.conversation(
        messages or [Message(role="user", content=_ASKED)], tools, thinking=thinking,
        add_generation_prompt=bool(case["opens"]), continues=False, variables={},
    ).text  # fmt: skip
    text = case["input"]
    for token in foreign:  # the engine tells no control token that the format does not ask for
        text = text.replace(token, "")
    cuts = [[text], list(text), [text[at : at + 3] for at in range(0, len(text), 3)]]
    results: list[tuple[str, str, list[tuple[str, Any]]]] = []
    for pieces in cuts:
        reader = reads.reader(
            tools, prompt=prompt, thinking=thinking, parallel=bool(case["parallel"])
        )
        events = [event for piece in pieces for event in reader.feed(piece)]
        events += [] if case["partial"] else reader.finish()
        results.append(_told(events))
    if results[1:] != results[:-1]:
        return "another answer in other pieces"
    expected = case["expect"]
    wanted = (
        expected["content"].strip(),
        expected["thought"].strip(),
        [(name, _value(arguments)) for name, arguments, _ in expected["calls"]],
    )
    return None if results[0] == wanted else f"{results[0]!r} for {wanted!r}"[:400]


@functools.cache
def _format(template: str, inputs: tuple[str, ...]) -> tuple[ChatFormat, list[str]]:
    """The format, and control tokens that it does not ask for."""
    source = (llama_cpp() / template).read_text("utf-8")
    texts = {text for each in (source, *inputs) for text in _CONTROL.findall(each)}
    controls = {text: number for number, text in enumerate(sorted(texts))}
    made = ChatFormat(ChatTemplate(source, bos="<s>", eos="</s>"), controls)
    return made, [text for text in texts if text not in made.controls]


def _message(given: dict[str, Any]) -> Message:
    return Message(
        role=given["role"],
        content=given["content"],
        thought=given["thought"] or None,
        calls=tuple(
            Call(own or f"c{number}", name, arguments)
            for number, (name, arguments, own) in enumerate(given["calls"])
        ),
        name=given["name"] or None,
        call_id=given["call_id"] or None,
    )


def _told(events: Sequence[Any]) -> tuple[str, str, list[tuple[str, Any]]]:
    calls: dict[int, list[str]] = {}
    for event in events:
        if isinstance(event, CallBegun):
            calls[event.index] = [event.name, ""]
        elif isinstance(event, Arguments):
            calls[event.index][1] += event.text
    content, thought = (
        "".join(event.text for event in events if isinstance(event, kind)).strip()
        for kind in (Content, Thought)
    )
    return content, thought, [(name, _value(text)) for name, text in calls.values()]


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return ""
