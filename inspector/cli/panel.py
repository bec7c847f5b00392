"""One target as lines of a terminal: what it is, how full it is, what is wrong, and what is unknown with the remedy. Pure.

A line is a label and a text; the width of the window comes in only when lines are laid out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from inspector.cli.bars import Signs, draw
from inspector.cli.parts import UNSURE, Part, counted, listed, together
from inspector.cli.telling import STYLES
from inspector.judge import Level
from inspector.views import AlertView, Bar, Gauge, PartKind, PoolView, Row, SessionView, TargetView, UnknownGroup

MOST_NAMES = 3
"""Unknown fields of one reason that are named; of more only the number is told."""

MOST_SLOTS = 32
"""Slots that are drawn one by one; more are numbers only."""

SHOWN = frozenset(
    [
        *("model", "slots", "slots_busy", "requests_running", "requests_waiting", "requests_in_flight", "context_limit_tokens", "kv_capacity_tokens"),
        *("kv_used_tokens", "kv_reclaimable_tokens", "kv_reclaimable_bytes", "kv_usage_ratio", "memory_used_bytes", "memory_ceiling_bytes"),
    ]
)
"""Fields that have a place on the screen."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line before it is wrapped. `label` says what it is about, and `style` is the label's; `extra`: nothing else on the screen hangs on it."""

    label: str
    body: Text
    style: str = "dim"
    extra: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """A target, with bars of so many cells. Made of it is only what is asked for: few of many targets have room."""

    seen: TargetView
    signs: Signs
    cells: int

    @property
    def name(self) -> str:
        return self.seen.name

    @property
    def level(self) -> Level:
        return self.seen.urgency

    @property
    def title(self) -> Text:
        return self._head().append(_about(self.seen), "dim")

    @property
    def brief(self) -> Text:
        """What is told where there is but one row."""
        return self._head().append("  ").append_text(_in_brief(self.seen) or Text(self.seen.detail))

    def lines(self) -> list[Line]:
        """Everything below the title."""
        return list(_lines(self.seen, self.signs, self.cells))

    def _head(self) -> Text:
        level = self.level
        return Text.assemble((self.name, "bold"), " ", (f" {level.upper()} ", f"{STYLES[level]} reverse"), " ", (self.seen.state, "bold"))


def _about(seen: TargetView) -> str:
    # An unknown version is told below, among the unknowns.
    version = "" if "unknown (" in seen.version else seen.version
    address = "" if seen.address == seen.name else f" at {seen.address}"
    return "".join(f", {part}" for part in (seen.seen, f"{seen.engine} {version}".strip()) if part) + address


def _in_brief(seen: TargetView) -> Text:
    """Alerts, and what is left of KV cache and slots; a target that is not ready has its state alone."""
    firing = sum(alert.firing for alert in seen.alerts)
    parts = [Part(f"{firing} alert{'' if firing == 1 else 's'} firing")] if firing else []
    for pool in seen.pools if seen.state == "ready" else ():
        where = f"{pool.id}: " if len(seen.pools) > 1 else ""
        parts += [_free(gauge, f"{where}{gauge.resource}") for gauge in pool.gauges if gauge.resource in ("kv", "slots")]
    return together(parts)


def _lines(seen: TargetView, signs: Signs, cells: int) -> Iterator[Line]:
    if seen.detail:
        yield Line("", Text(seen.detail))
    # A sentence is told once: where an unknown says it, neither an alert nor a finding nor a fault repeats it.
    told = {seen.detail, *(group.remedy for group in seen.unknowns)} - {""}
    for alert in seen.alerts:
        if alert.level is not Level.UNKNOWN:
            yield _alert(alert, "" if _repeats(alert.detail, told) else alert.detail)
    alerted = {alert.detail for alert in seen.alerts}
    for finding in seen.findings:
        if finding.detail not in alerted and not (finding.level is Level.UNKNOWN and _repeats(finding.detail, told)):
            where = f"pool {finding.pool}: " if finding.pool and len(seen.pools) > 1 else ""
            yield Line(str(finding.level), Text(f"{where}{finding.detail}"), STYLES[finding.level])
    for pool in seen.pools:
        if len(seen.pools) > 1:
            yield Line("pool", Text(pool.id, "bold"))
        yield from _pool(pool, seen.unknowns, signs, cells)
    yield from _memory(seen, signs, cells)
    for group in sorted(seen.unknowns, key=_is_extra):
        yield _unknown(group)
    yield from _notes(seen, told)


def _repeats(sentence: str, told: Collection[str]) -> bool:
    return any(other in sentence for other in told)


def _alert(alert: AlertView, detail: str) -> Line:
    about = ", ".join(filter(None, (alert.severity, alert.subject)))
    body = Text.assemble((alert.name, STYLES[alert.level]), f" ({about}) {alert.told}{detail and ': '}{detail}")
    return Line("ALERT" if alert.firing else "alert", body, STYLES[alert.level])


def _pool(pool: PoolView, unknowns: Sequence[UnknownGroup], signs: Signs, cells: int) -> Iterator[Line]:
    rows = {row.name: row for row in (*pool.headlines, *pool.others)}
    about = list(_about_model(rows))
    if about:
        yield Line("model", together(about))
    yield from _kv(pool, rows, signs, cells)
    yield from _slots(pool, rows, signs)
    headroom = [_free(gauge, gauge.resource) for gauge in pool.gauges]
    if headroom:
        yield Line("headroom", together(headroom))
    for session in pool.budgets:
        yield Line("sessions", _sessions(session, _why(session.remedy, unknowns)))


def _about_model(rows: Mapping[str, Row]) -> Iterator[Part]:
    limit, sure = rows.get("context_limit_tokens"), rows.get("context_guaranteed_tokens")
    if "model" in rows:
        yield counted(rows["model"], "model", "{}")
    if limit:
        yield counted(limit, "context limit", "context limit {} tokens")
    if sure and sure.known and not (limit and limit.text == sure.text):
        yield Part(f"{sure.text} each when all slots are busy")


def _kv(pool: PoolView, rows: Mapping[str, Row], signs: Signs, cells: int) -> Iterator[Line]:
    used, kept = rows.get("kv_used_tokens"), rows.get("kv_reclaimable_tokens")
    unknown = [counted(row, word) for row, word in ((used, "used"), (kept, "reclaimable")) if row and not row.known]
    if pool.kv:
        yield Line("KV cache", _bar(pool.kv, signs, cells, unknown))
    else:
        capacity, ratio = rows.get("kv_capacity_tokens"), rows.get("kv_usage_ratio")
        told = [counted(row, word) for row, word in ((used or ratio, "used"), (kept, "reclaimable")) if row]
        told += [counted(capacity, "capacity", "capacity {}")] if capacity else []
        if told:
            yield Line("KV cache", together(told))
    if "kv_reclaimable_bytes" in rows:
        yield Line("KV cache", together([counted(rows["kv_reclaimable_bytes"], "reclaimable")]))


def _bar(bar: Bar, signs: Signs, cells: int, unknown: Sequence[Part] = ()) -> Text:
    """The bar, and its parts in words. How large the whole is needs no words where the parts add up to it for certain."""
    whole = [Part(bar.whole)] if bar.whole and any(part.kind is PartKind.UNSURE for part in bar.parts) else []
    return draw(bar, signs, cells).append(" ").append_text(together([*(Part(part.text) for part in bar.parts), *unknown, *whole]))


def _slots(pool: PoolView, rows: Mapping[str, Row], signs: Signs) -> Iterator[Line]:
    slots, busy = rows.get("slots"), rows.get("slots_busy") or rows.get("requests_running")
    if slots and busy and slots.known and busy.known:
        parts = [Part(f"{busy.text} of {slots.text} busy")]
    else:
        parts = [counted(row, word) for row, word in ((slots, "slots"), (busy, "busy")) if row]
    requests = (("running", "requests_running"), ("waiting", "requests_waiting"), ("running or waiting", "requests_in_flight"))
    parts += [counted(rows[name], word) for word, name in requests if name in rows and rows[name] is not busy]
    boxes = pool.slot_boxes.boxes if pool.slot_boxes and len(pool.slot_boxes.boxes) <= MOST_SLOTS else ()
    if parts:
        yield Line(
            "slots" if slots or busy else "requests",
            Text("".join(signs.slots[box.state] for box in boxes)).append(" " if boxes else "").append_text(together(parts)),
        )


def _sessions(session: SessionView, why: str) -> Text:
    """How many more fit and how many an empty server holds, or why that is unknown; the remedy stands below."""
    now = Part("", "how many more fit is", why) if session.now == "unknown" else Part(f"{session.now} more fit{'s' if session.now == '1' else ''} now")
    whole = Part("", "; what an empty server holds is", why) if session.capacity == "unknown" else Part(f"; an empty server holds {session.capacity}")
    limit = f", limited by {session.limited_by}" if session.limited_by else ""
    return Text(f"{session.name}: ").append_text(together([now])).append_text(together([whole])).append(limit)


def _why(remedy: str, unknowns: Sequence[UnknownGroup]) -> str:
    """`unknown (reason)` of what has this remedy."""
    told = next((why for group in unknowns if group.remedy == remedy for why, _ in group.lines), "unknown")
    return told.partition("),")[0] + ")" if ")," in told else told


def _memory(seen: TargetView, signs: Signs, cells: int) -> Iterator[Line]:
    rows = {row.name: row for row in seen.memory}
    if seen.memory_bar:
        yield Line("memory", _bar(seen.memory_bar, signs, cells))
    elif "used_bytes" in rows:
        told = [(rows[name], word) for name, word in (("used_bytes", "used"), ("ceiling_bytes", "ceiling")) if name in rows]
        yield Line("memory", together([counted(row, word) for row, word in told]))


def _is_extra(group: UnknownGroup) -> bool:
    return SHOWN.isdisjoint(word for _, names in group.lines for name in _apart(names) for word in name.split())


def _unknown(group: UnknownGroup) -> Line:
    told = "; ".join(f"{_some(_apart(names))} {why.removeprefix('unknown ')}" for why, names in group.lines)
    return Line("unknown", Text.assemble((told, UNSURE), f": {group.remedy}"), UNSURE, extra=_is_extra(group))


def _apart(names: Sequence[str]) -> list[str]:
    """Names one by one; some come as a list in words."""
    return [name for several in names for name in several.split(", ")]


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return listed([*names[:MOST_NAMES], f"{more} more"] if more > 0 else names)


def _notes(seen: TargetView, told: Collection[str]) -> Iterator[Line]:
    """What disagrees, what went wrong unless an unknown already says so, and which alerts cannot be decided."""
    for drift in seen.drift:
        yield Line("drift", Text(drift), "yellow")
    for fault in seen.faults:
        if not _repeats(fault, told):
            yield Line("fault", Text(fault), "yellow")
    undecided = dict.fromkeys(alert.name for alert in seen.alerts if alert.level is Level.UNKNOWN)
    if undecided:
        yield Line("alerts", Text(f"{listed(list(undecided))} cannot be decided"), extra=True)


def _free(gauge: Gauge, about: str) -> Part:
    return Part("", about, gauge.text) if gauge.free is None else Part(f"{about} {gauge.text} free")
