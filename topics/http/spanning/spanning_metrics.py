"""The metrics page of a server of several cores. Source: R-CORE-3."""

from __future__ import annotations

from functools import partial

from topics.engine.values.name_rules import Prefixes
from topics.http.access.rate_limit import Allowance
from topics.http.plan.call import Call
from topics.http.relay.relayed_head import portion_plan
from topics.http.spanning.portion_answers import PortionAnswer, failed, pass_on
from topics.http.spanning.portions import AskedCores, Destination, Portion, Steps, ask_all, run_steps
from topics.http.spanning.summed_pages import SummedPages, summed_json

_TEXT = b"text/plain; version=0.0.4"
_BURST = 10
"""Pages that are joined one after another before they are shared, as those of one core."""
_MS = 1_000_000

_Key = tuple[Prefixes, bool]


class _SharedPage:
    """The newest joined page, and the calls that wait for the next."""

    __slots__ = ("answer", "began_ns", "runs", "waiting")

    def __init__(self) -> None:
        self.answer: PortionAnswer | None = None
        self.began_ns = 0
        self.runs = False
        self.waiting: list[Call] = []


class SpanningMetrics:
    """Answers with a page begun after the request; after a burst with one that is a bit older."""

    def __init__(self, cores: AskedCores) -> None:
        self._cores = cores
        self._pages: dict[_Key, _SharedPage] = {}
        self._allowance: Allowance | None = None

    def answer(self, call: Call) -> None:
        """Answer the metrics of all cores, with the topics of the key (12.3)."""
        service, now_ns = call.service, call.service.now_ns()
        share_ms = service.config.metrics_share_ms
        if self._allowance is None:
            self._allowance = Allowance(_BURST, 1000 // max(share_ms, 1), now_ns)
        is_json = b"application/json" in call.plan.request.headers.get(b"accept", b"")
        key = call.principal.prefixes, is_json
        page = self._pages.setdefault(key, _SharedPage())
        allowed = self._allowance.spend(1, now_ns)
        if not allowed:
            self._allowance.earn(1)
        if not allowed and page.answer is not None and now_ns - page.began_ns <= share_ms * _MS:
            pass_on(call, page.answer)
            return
        page.waiting.append(call)
        if not page.runs:
            page.runs = True
            self._begin(key, page, call)

    def _begin(self, key: _Key, page: _SharedPage, call: Call) -> None:
        """Ask all cores for the calls that wait now. What comes later gets the next page."""
        calls, page.waiting = page.waiting, []
        service, (_prefixes, is_json) = call.service, key
        began_ns = service.now_ns()
        fields = {"accept": b"application/json"} if is_json else {}
        plan = portion_plan(call.plan, call.plan.query, fields)

        def ended(answer: PortionAnswer) -> None:
            if answer.status == 200:
                page.answer, page.began_ns = answer, began_ns
            for each in calls:
                pass_on(each, answer)
            waiting = [each for each in page.waiting if not each.answered]
            page.waiting = waiting
            if waiting:
                self._begin(key, page, waiting[0])
            else:
                page.runs = False
                self._forget_old(began_ns - service.config.metrics_share_ms * _MS)

        whole = Portion(service, Destination(self._cores.own, ended), plan, b"", began_ns)
        ask_all(whole, self._cores, partial(_join, whole, is_json))

    def _forget_old(self, before_ns: int) -> None:
        """Drop pages that are too old to be shared."""
        for key, page in list(self._pages.items()):
            if not page.runs and page.began_ns < before_ns:
                del self._pages[key]


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
