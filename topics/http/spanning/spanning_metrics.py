"""The metrics page of a server of several cores. Source: R-CORE-3."""

from __future__ import annotations

from functools import partial

from topics.engine.values.name_rules import Prefixes
from topics.http.plan.call import Call
from topics.http.plan.shared_pages import Made, SharedPages
from topics.http.relay.relayed_head import portion_plan
from topics.http.spanning.portion_answers import PortionAnswer, failed, pass_on
from topics.http.spanning.portions import AskedCores, Destination, Portion, Steps, ask_all, run_steps
from topics.http.spanning.summed_pages import SummedPages, summed_json

_TEXT = b"text/plain; version=0.0.4"

JoinedPages = SharedPages[tuple[Prefixes, bool], PortionAnswer]
"""The pages by the topics shown, and whether they are the short form."""


def metrics(cores: AskedCores, pages: JoinedPages, call: Call) -> None:
    """Answer the metrics of all cores, with the topics of the key (12.3)."""
    is_json = b"application/json" in call.plan.request.headers.get(b"accept", b"")
    pages.ask((call.principal.prefixes, is_json), partial(pass_on, call), partial(_ask_all, cores, call, is_json))


def _ask_all(cores: AskedCores, call: Call, is_json: bool, made: Made[PortionAnswer]) -> None:
    """Join the pages of all cores to one."""
    service = call.service
    fields = {"accept": b"application/json"} if is_json else {}
    plan = portion_plan(call.plan, call.plan.query, fields)
    ended = Destination(cores.own, lambda answer: made(answer, answer.status == 200))
    whole = Portion(service, ended, plan, b"", service.now_ns())
    ask_all(whole, cores, partial(_join, whole, is_json))


def _join(whole: Call, is_json: bool, answers: list[PortionAnswer]) -> None:
    if not is_json:
        run_steps(whole, _join_pages(whole, answers))
    elif not failed(whole, answers):
        whole.reply(summed_json([answer.body for answer in answers]))


def _join_pages(whole: Call, answers: list[PortionAnswer]) -> Steps:
    pages = SummedPages()
    for answer in answers:
        if answer.status == 200:
            yield from pages.add(answer.core, answer.body)
        else:
            pages.note_away(answer.core)
    text = yield from pages.text()
    whole.respond(200, text, _TEXT, b"")
