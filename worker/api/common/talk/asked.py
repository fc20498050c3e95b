"""A Talk made ready for the engine: rendered, tokenised, checked."""

from __future__ import annotations

import msgspec

from worker import log
from worker.api.common.constraints import not_held
from worker.api.common.generation import Generation
from worker.api.common.prompts import check_hopeless, rendered_prompt
from worker.api.common.talk.arrived import check_arrived
from worker.api.common.talk.checkpoints import checkpoints_of
from worker.api.common.talk.instructions import with_one_system
from worker.api.common.talk.names import ToolNames, names_of
from worker.api.common.talk.said import Said
from worker.api.common.talk.talk import Talk
from worker.api.common.talk.templates import suited
from worker.api.common.talk.truncation import shortened
from worker.chat.constraint import PARAM as TOOLS
from worker.chat.conversation import Conversation
from worker.chat.format import ChatFormat
from worker.chat.reader import ChatReader
from worker.chat.reading.lark import Loosened, by_types
from worker.engine.request import SpanLimit
from worker.errors import RequestError
from worker.grammar.constraint import Constraint
from worker.lifecycle.loaded import Loaded
from worker.limits import COUNTED, MESSAGES

_log = log.get("talk")
_MESSAGES = "messages"  # how templates' errors call what they are given


class Asked(msgspec.Struct, frozen=True):
    """A generation, and how its answers are read.

    talk    with the names of tools as the model sees them
    prompt  the text that was tokenised
    """

    talk: Talk
    chat: ChatFormat
    generation: Generation
    prompt: str
    names: ToolNames

    def reader(self) -> ChatReader:
        """For one of its answers."""
        talk = self.talk
        reader = self.chat.reader(
            talk.callable, prompt=self.prompt, thinking=talk.thinking, parallel=talk.parallel
        )
        return self.names.reader(reader)

    def said(self) -> Said:
        """One of its answers, of which nothing is said yet."""
        return Said(self.reader())


def ask(talk: Talk, chat: ChatFormat, loaded: Loaded, *, must_fit: bool = True) -> Asked:
    """Raises RequestError that names the client's field; blocks.

    must_fit  the context holds the prompt; else it is only to be looked at
    """
    try:
        return _asked(talk, chat, loaded, must_fit=must_fit)
    except RequestError as error:
        if error.param != _MESSAGES or talk.param == _MESSAGES:
            raise
        raise RequestError(
            error.message, param=talk.param, hint=error.hint, code=error.code
        ) from None


def _asked(talk: Talk, chat: ChatFormat, loaded: Loaded, *, must_fit: bool) -> Asked:
    names = names_of(talk)
    talk = names.shown(talk)
    chat = suited(chat, tools=bool(talk.tools), documents="documents" in talk.variables)
    conversation = conversation_of(talk, chat, loaded, must_fit=must_fit)
    truncated = None
    if talk.truncates:
        conversation, prompt, truncated = shortened(
            conversation, talk.max_tokens, loaded, talk.param
        )
    else:
        prompt = rendered_prompt(conversation.text, loaded, talk.param, must_fit=must_fit)
    if truncated is None:
        check_arrived(talk.messages, conversation.text, chat.thoughts.tags, talk.param)
    sampling = talk.sampling
    constraint = _prepared_constraint(talk, chat, conversation.text, loaded)
    if constraint is not None:
        sampling = msgspec.structs.replace(sampling, constraint=constraint)
    checkpoints = checkpoints_of(conversation, prompt.tokens, loaded)
    generation = Generation(
        prompts=(msgspec.structs.replace(prompt, checkpoints=checkpoints),),
        prompt_param=talk.param,
        sampling=sampling,
        max_tokens=talk.max_tokens,
        stop=talk.stop,
        n=talk.n,
        best_of=talk.n,
        logprobs=talk.logprobs,
        tells_progress=talk.tells_progress,
        spelled={token: text.encode() for text, token in chat.controls.items()},
        limit=_limit(talk, chat, conversation.text, loaded),
        truncated=truncated,
        warnings=(
            *talk.left_out,
            *not_held(talk.sampling.constraint),
        ),
    )
    if not must_fit:
        generation.check()  # else who runs it does
    return Asked(talk, chat, generation, conversation.text, names)


def _limit(talk: Talk, chat: ChatFormat, prompt: str, loaded: Loaded) -> SpanLimit | None:
    """Of the thoughts, where a budget was asked for and the model thinks."""
    budget, end = talk.thinking.budget, chat.thought_end(prompt)
    if budget is None or end is None:
        return None
    forced = loaded.backend.vocab.tokenize(end.text, add_special=False, parse_special=True)
    return SpanLimit(budget, end.opens, end.ends, tuple(forced), end.is_open)


def _prepared_constraint(
    talk: Talk, chat: ChatFormat, prompt: str, loaded: Loaded
) -> Constraint | None:
    """What holds the answer. Tools that are too many to be held are held by their types, and then
    not at all, unless there must be a call. Raises RequestError."""
    must = talk.choice == "required" or talk.only is not None
    must = must or talk.sampling.constraint is not None
    for loosened in (loaded.backend.guides.loosening(), by_types):
        try:
            constraint = _constraint(talk, chat, prompt, loosened)
            if constraint is not None:
                loaded.backend.prepare(constraint)
            return constraint
        except RequestError as error:
            if error.param != TOOLS or (must and loosened is by_types):
                raise
            _log.warning("tools are not held by their schemas", why=str(error))
    return None


def _constraint(talk: Talk, chat: ChatFormat, prompt: str, loosened: Loosened) -> Constraint | None:
    """What holds the answer to calls and to the structure asked for. Raises RequestError."""
    tools = talk.callable
    if talk.only is not None and not tools:
        raise RequestError(f"No tool is named {talk.only[:100]}.", param="tool_choice")
    required = talk.choice == "required" or talk.only is not None
    if required and not tools:
        raise RequestError("A call is required, but there are no tools.", param="tool_choice")
    return chat.constraint(
        tools,
        prompt=prompt,
        thinking=talk.thinking,
        required=required,
        parallel=talk.parallel and talk.only is None,
        loosened=loosened,
        body=talk.sampling.constraint,
    )


def conversation_of(
    talk: Talk, chat: ChatFormat, loaded: Loaded, *, must_fit: bool = True
) -> Conversation:
    """What the messages are to the template. Raises RequestError."""
    if not talk.messages:
        raise RequestError(f"{talk.param} is missing.", param=talk.param, hint="Send one message.")
    if len(talk.messages) > MESSAGES.most:
        raise RequestError(f"{talk.param} must be at most {MESSAGES.most}.", param=talk.param)
    if must_fit:
        texts = [
            text
            for message in talk.messages
            for text in (message.content or "", *(call.arguments for call in message.calls))
        ]
        size = sum(map(len, texts))
        if size > COUNTED.most:
            check_hopeless("\n".join(texts), size, loaded, talk.param)
    reserved = ("messages", "tools", "add_generation_prompt")
    variables = {
        name: value
        for name, value in talk.variables.items()
        if name not in reserved and name.isidentifier()
    }
    return chat.conversation(
        with_one_system(talk.messages),
        talk.tools,
        thinking=talk.thinking,
        add_generation_prompt=talk.opens,
        continues=talk.continues,
        variables=variables,
    )
