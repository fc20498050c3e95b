"""The cases by name, in the order in which they are measured."""

from __future__ import annotations

from benchmarks.peers.cases.arrivals import deep_streams, eight_long_prompts, long_prompt
from benchmarks.peers.cases.case import Case
from benchmarks.peers.cases.contention import busy_machine, two_processes
from benchmarks.peers.cases.conversations import conversations, restarted_conversations
from benchmarks.peers.cases.drafts import (
    drawn_text,
    edited_text,
    four_guessed_streams,
    guessed_stream,
    repeated_text,
    told_text,
)
from benchmarks.peers.cases.hybrids import stripped_chats
from benchmarks.peers.cases.leftovers import used_server
from benchmarks.peers.cases.sessions import one_agent, three_agents
from benchmarks.peers.cases.streams import (
    eight_deep_streams,
    eight_streams,
    fifteen_streams,
    one_deep_stream,
    one_stream,
    shared_prefix,
)
from benchmarks.peers.cases.vocabulary import vocabulary_cases

SMALL, HYBRID, WINDOWED = "llama-125m", "lfm2-350m", "gemma3-270m"

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case(name="single", title="1 stream", unit="tok/s", measure=one_stream),
        Case(
            name="eight", title="8 streams, 16 short requests", unit="tok/s",
            measure=eight_streams,
        ),
        Case(
            name="prefix", title="8 clients, 16 requests, 400 tokens in common", unit="tok/s",
            measure=shared_prefix,
        ),
        Case(
            name="stall", title="longest gap of 4 streams while a 1,400-token prompt arrives",
            unit="s", measure=long_prompt, is_less_better=True, needs_http=True,
            needs_parallel=True,
        ),
        Case(
            name="deep", title="first token of a 1,400-token prompt beside 7 streams of 700 tokens",
            unit="s", measure=deep_streams, is_less_better=True, needs_http=True,
            needs_parallel=True,
        ),
        Case(
            name="long-prompts", title="8 prompts of 1,000 tokens at once beside 1 stream",
            unit="tok/s read and written", measure=eight_long_prompts, shape=SMALL,
            cells=9 * 2048, slots=9, needs_http=True, needs_parallel=True,
        ),
        Case(
            name="busy", title="speed kept beside a busy process", unit="of idle",
            measure=busy_machine,
        ),
        Case(
            name="pair", title="two processes, one stream each, together", unit="tok/s",
            measure=two_processes, has_several_servers=True,
        ),
        Case(
            name="deep1", title="1 stream with 1,500 tokens of context", unit="tok/s",
            measure=one_deep_stream, shape=SMALL, needs_http=True,
        ),
        Case(
            name="deep8", title="8 streams with 700 tokens of context each", unit="tok/s",
            measure=eight_deep_streams, shape=SMALL, needs_http=True, needs_parallel=True,
        ),
        Case(
            name="fifteen", title="15 streams, 30 short requests", unit="tok/s",
            measure=fifteen_streams, shape=SMALL, cells=15 * 1024, slots=15, needs_parallel=True,
        ),
        Case(
            name="used", title="reading 800 tokens after 12 prompts that have ended",
            unit="of fresh", measure=used_server, shape=SMALL, cells=8 * 1024, needs_http=True,
            has_several_servers=True,
        ),
        Case(
            name="conversations", title="8 conversations × 4 turns, 4,096 cells", unit="s",
            measure=conversations, shape=SMALL, cells=4 * 1024, slots=4, is_less_better=True,
            needs_http=True,
        ),
        Case(
            name="conversations-roomy", title="8 conversations × 4 turns, 16,384 cells", unit="s",
            measure=conversations, shape=SMALL, is_less_better=True, needs_http=True,
        ),
        Case(
            name="restarted", title="8 conversations × 4 turns, each turn in a new server",
            unit="s", measure=restarted_conversations, shape=SMALL, is_less_better=True,
            needs_http=True, worker_options={"--cache-dir": "{folder}"},
            has_several_servers=True,
        ),
        Case(
            name="window-eight", title="8 streams, 16 short requests, windowed model",
            unit="tok/s", measure=eight_streams, shape=WINDOWED, is_shape_fixed=True,
            needs_parallel=True,
        ),
        Case(
            name="window-fifteen", title="15 streams, 30 short requests, windowed model",
            unit="tok/s", measure=fifteen_streams, shape=WINDOWED, is_shape_fixed=True,
            cells=15 * 1024, slots=15, needs_parallel=True,
        ),
        Case(
            name="window-deep8", title="8 streams with 700 tokens of context, windowed model",
            unit="tok/s", measure=eight_deep_streams, shape=WINDOWED, is_shape_fixed=True,
            needs_http=True, needs_parallel=True,
        ),
        Case(
            name="hybrid-eight", title="8 streams, 16 short requests, hybrid model",
            unit="tok/s", measure=eight_streams, shape=HYBRID, is_shape_fixed=True,
            needs_parallel=True,
        ),
        Case(
            name="hybrid", title="a chat whose answers are stripped, hybrid model",
            unit="of the prompts cached", measure=stripped_chats, shape=HYBRID,
            is_shape_fixed=True, cells=8 * 2048, needs_http=True,
        ),
        *(
            Case(
                name=name, title=title, unit="s", measure=measure, shape="reciting-0.5b",
                is_shape_fixed=True, is_reciting=True, cells=slots * 12288, slots=slots,
                is_less_better=True, needs_http=True,
            )
            for name, title, measure, slots in (
                ("session", "the session of a coding agent", one_agent, 2),
                ("session3", "the sessions of three at once", three_agents, 4),
            )
        ),
        *vocabulary_cases(),
        Case(
            name="drafts-repeat", title="1 stream that repeats itself, guessed from its text",
            unit="tok/s", measure=repeated_text, needs_http=True,
            worker_options={"--draft": "ngram"},
        ),
        Case(
            name="drafts-plain", title="1 stream that does not", unit="tok/s",
            measure=drawn_text, needs_http=True, worker_options={"--draft": "ngram"},
        ),
        *(
            Case(
                name=name, title=title, unit="tok/s", measure=measure, needs_http=True,
                needs_parallel=name.endswith("8"), needs_model=True,
                worker_options={"--draft": "auto"},
            )
            for name, title, measure in (
                ("edits", "1 stream, a text with a word changed", edited_text(1)),
                ("prose", "1 stream that tells a story", told_text(1)),
                ("edits8", "8 streams, texts with a word changed", edited_text(8)),
                ("prose8", "8 streams that tell stories", told_text(8)),
            )
        ),
        Case(
            name="draft-model", title="1 stream, 7 of 10 tokens guessed by a model",
            unit="tok/s", measure=guessed_stream, is_shape_fixed=True, needs_http=True,
            worker_options={"--draft-model": "{draft}"},
        ),
        Case(
            name="draft-model4", title="4 streams, 7 of 10 tokens guessed by a model",
            unit="tok/s", measure=four_guessed_streams, is_shape_fixed=True, needs_http=True,
            needs_parallel=True, worker_options={"--draft-model": "{draft}"},
        ),
    )
}  # fmt: skip
