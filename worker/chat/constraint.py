"""What holds an answer to the form of calls, or of JSON, once the model has thought."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from worker.chat.dialects.dialect import Dialect
from worker.chat.message import Tool
from worker.chat.reading.answer import AnswerGrammar, AnswerStart
from worker.chat.reading.call_grammar import ANY, Lark, Loosened
from worker.grammar.constraint import Constraint

PARAM = "tools"


class CallChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which calls an answer may hold, and where it begins.

    tools     that may be called; at least one
    required  whether there must be a call, else there may be
    parallel  whether there may be several
    """

    tools: Sequence[Tool]
    required: bool
    parallel: bool
    start: AnswerStart


class AnswerForms(msgspec.Struct, frozen=True):
    """How a model writes.

    controls  control tokens of the dialect and of thoughts, spelled out -> token id
    ends      tokens that end an answer, spelled out
    """

    dialect: Dialect
    controls: Mapping[str, int]
    ends: Collection[str]

    def call(
        self, choice: CallChoice, loosened: Loosened, body: Constraint | None = None
    ) -> Constraint | None:
        """None: calls may be made, but nothing says unmistakably where one begins.

        body: what the answer must be where it is no call; JSON. Then an answer is either
        """
        is_lazy = not choice.required and body is None
        # A thought may go on after a call that it just rehearses.
        start = choice.start
        is_free = is_lazy and choice.parallel and (start.inside or start.thinks)
        lark = Lark(self.controls, self.ends, loosened, is_free_after=is_free)
        form = self.dialect.grammar(lark, choice.tools, one=not choice.parallel)
        if form is None:
            return None
        if is_lazy:
            if not form.opens:
                return None
            trails = choice.parallel and not lark.goes_on
            text = lark.grammar(f"WS? {form.rest} {lark.rule(ANY) if trails else 'WS?'}")
            lazy = Constraint(kind="lark", text=text, param=PARAM, required=False, repeats=trails)
            return self._from(form.opens, lazy)
        json = "" if choice.required or body is None else lark.rule(f"%json {body.text}")
        found = self.dialect.answer(lark, choice.start, call=form, body=json)
        return self._hold(found, lark, PARAM)

    def structure(self, body: Constraint, choice: CallChoice) -> Constraint:
        """JSON that begins once the model has thought; other constraints hold from the start."""
        if body.kind != "json_schema":
            return body
        lark = Lark(self.controls, self.ends, lambda _schema, _what: "")
        json = lark.rule(f"%json {body.text}")
        found = self.dialect.answer(lark, choice.start, call=None, body=json)
        return body if found.is_bare else self._hold(found, lark, body.param)

    def _hold(self, found: AnswerGrammar, lark: Lark, param: str) -> Constraint:
        made = Constraint(kind="lark", text=lark.grammar(found.text), param=param)
        return self._from(found.after, made) if found.after else made

    def _from(self, text: str, constraint: Constraint) -> Constraint:
        """The constraint, from this text on, which may be a control token."""
        if text in self.controls:
            tokens = (self.controls[text],)
            return msgspec.structs.replace(constraint, starts_after_tokens=tokens)
        return msgspec.structs.replace(constraint, starts_after=(text,))
