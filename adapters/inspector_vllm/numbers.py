"""What a page of /metrics says of each engine. A series that is not there is `not_reported`; nothing stands in for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inspector.exposition import Page, Sample
from inspector.reading import Known, Origin, Reading, Reason, Unknown, count, number, ratio
from inspector_vllm import causes, names

ONE_ENGINE = "0"
"""Versions before 0.8.5 have one engine and no label for it."""

COUNTERS = ("preemptions", "hits", "queries", "prompt", "generated")


@dataclass(frozen=True, slots=True)
class Numbers:
    """One engine's figures at one moment. `awake` False: paused or asleep, then the gauges are frozen."""

    running: Reading[int]
    waiting: Reading[int]
    usage: Reading[float]
    preemptions: Reading[int]
    hits: Reading[int]
    queries: Reading[int]
    prompt: Reading[int]
    generated: Reading[int]
    awake: Reading[bool]
    rounded_usage: bool = False
    """The usage comes from a log line, in rounded percent."""

    @property
    def progress(self) -> tuple[float, ...] | None:
        """The series that move while the engine works; usage moves during a long prefill too. None where the page does not have what would tell."""
        if isinstance(self.generated, Unknown) or isinstance(self.usage, Unknown):
            return None
        series = (self.generated, self.usage, self.prompt, self.running, self.waiting, self.preemptions, self.queries)
        return tuple(float(s.value) for s in series if isinstance(s, Known))


def no_numbers(cause: Unknown) -> Numbers:
    return Numbers(cause, cause, cause, cause, cause, cause, cause, cause, cause)


@dataclass(frozen=True, slots=True)
class Metrics:
    """A page, looked at by engine. `rows`: samples of each wanted series by engine, None if a line or an engine's label is broken; `labelled`: the series
    that bear the label `engine`; `engines`: those that some series has a row for."""

    page: Page
    origin: Origin
    has_statistics: bool
    rows: Mapping[str, Mapping[str, list[Sample]] | None]
    labelled: frozenset[str]
    engines: tuple[str, ...]

    @property
    def is_v0(self) -> bool:
        """V0 never labels engines; host blocks or swapped requests are its marks."""
        if self.labelled:
            return False
        hosts = [sample.labels.get("num_cpu_blocks", "") for sample in self.page.samples(names.CACHE)]
        return any(self.page.samples(name) for name in names.V0_ONLY) or any(host.isdecimal() for host in hosts)

    @property
    def born(self) -> float | None:
        """When the API server process started, Unix seconds."""
        reading = self.page.one(names.BORN, self.origin)
        return reading.value if isinstance(reading, Known) and reading.value > 1e9 else None

    @property
    def families(self) -> frozenset[tuple[str, str]]:
        """Every wanted series that is there, with its engine; broken ones too."""
        present = [name for name in names.WANTED if self.page.samples(name) or self.page.broken(name)]
        return frozenset((name, sample.labels.get("engine", "")) for name in present for sample in self.page.samples(name) or (Sample({}, 0.0),))

    @property
    def model(self) -> str | None:
        """The served name, where all rows bear one."""
        found = {sample.labels.get("model_name", "") for question in ("running", "generated") for sample in self.page.samples(spelling(self.page, question))}
        return found.pop() if len(found) == 1 else None

    def numbers(self, engine: str) -> Numbers:
        awake = _awake(self, engine)
        frozen = None if isinstance(awake, Known) and awake.value else causes.ASLEEP if isinstance(awake, Known) else awake
        return Numbers(
            running=frozen or _count(self, "running", engine),
            waiting=frozen or _count(self, "waiting", engine),
            usage=frozen or _usage(self, engine),
            preemptions=_count(self, "preemptions", engine),
            hits=_count(self, "hits", engine),
            queries=_count(self, "queries", engine),
            prompt=_count(self, "prompt", engine),
            generated=_count(self, "generated", engine),
            awake=awake,
        )

    def counters(self, engine: str) -> dict[str, float]:
        """Those that never fall while the process lives."""
        found = {}
        for question in COUNTERS:
            name = spelling(self.page, question)
            reading = _one_count(self, name, engine)
            if isinstance(reading, Known):
                found[f"{name}/{engine}"] = float(reading.value)
        return found


def metrics_of(page: Page, origin: Origin, *, has_statistics: bool) -> Metrics:
    rows = {name: _by_engine(page, name) for name in names.WANTED}
    labelled = frozenset(name for name in names.WANTED if any("engine" in sample.labels for sample in page.samples(name)))
    # A cache configuration without a label may be that of several engines.
    telling = [name for name in names.WANTED if name != names.BORN and (name != names.CACHE or name in labelled)]
    engines = {engine for name in telling for engine in rows[name] or ()}
    alone = (ONE_ENGINE,) if page.samples(names.CACHE) else ()
    return Metrics(page, origin, has_statistics, rows, labelled, tuple(sorted(engines, key=int)) or alone)


def _by_engine(page: Page, name: str) -> Mapping[str, list[Sample]] | None:
    if page.broken(name):
        return None
    found: dict[str, list[Sample]] = {}
    for sample in page.samples(name):
        engine = sample.labels.get("engine", ONE_ENGINE)
        if not (engine.isascii() and engine.isdecimal() and len(engine) <= 6):
            return None
        found.setdefault(str(int(engine)), []).append(sample)
    return found


def spelling(page: Page, question: str) -> str:
    """The name under which a page answers a question: the newest that is there."""
    spellings = names.NAMES[question]
    return next((name for name in spellings if page.samples(name) or page.broken(name)), spellings[0])


def _rows(metrics: Metrics, name: str, engine: str) -> Reading[list[Sample]]:
    rows = metrics.rows[name]
    if rows is None:
        return Unknown(Reason.INVALID, f"{metrics.origin.path} has a line of {name} that cannot be read")
    if engine not in rows:
        return Unknown(Reason.NOT_REPORTED, f"{metrics.origin.path} has no {name} of this engine; several API servers show it after the first request")
    return Known(rows[engine], metrics.origin)


def _count(metrics: Metrics, question: str, engine: str) -> Reading[int]:
    name = spelling(metrics.page, question)
    reading = _one_count(metrics, name, engine)
    if name in names.UNIT_UNSURE and isinstance(reading, Known):
        return Unknown(Reason.AMBIGUOUS, causes.OLD_UNIT, bounds=(reading.value, None))
    return reading


def _one_count(metrics: Metrics, name: str, engine: str) -> Reading[int]:
    """The count of an engine that has one row; rows of several models are not added up."""
    rows = _rows(metrics, name, engine)
    if isinstance(rows, Unknown):
        return rows
    counts = [count(sample.value, rows.origin, name) for sample in rows.value]
    broken = next((c for c in counts if isinstance(c, Unknown)), None)
    if broken is not None or len(counts) == 1:
        return broken or counts[0]
    values = [c.value for c in counts if isinstance(c, Known)]
    if len({sample.labels.get("model_name") for sample in rows.value}) < len(values):
        return Unknown(Reason.INVALID, f"{metrics.origin.path} has {len(values)} rows of {name} for one engine")
    return Unknown(Reason.AMBIGUOUS, causes.SEVERAL_MODELS, bounds=(max(values), sum(values)))


def _usage(metrics: Metrics, engine: str) -> Reading[float]:
    """The engine's share of blocks in use. V1 until 0.11 had a row for each API server process, told apart by `pid`: the most is what the engine has."""
    name = spelling(metrics.page, "usage")
    rows = _rows(metrics, name, engine)
    if isinstance(rows, Unknown):
        return rows
    shares = [ratio(sample.value, rows.origin, name) for sample in rows.value]
    broken = next((s for s in shares if isinstance(s, Unknown)), None)
    if broken is not None or len(shares) == 1:
        return broken or shares[0]
    values = [s.value for s in shares if isinstance(s, Known)]
    if len({sample.labels.get("pid") for sample in rows.value} - {None}) == len(values):
        return Known(max(values), rows.origin)
    return Unknown(Reason.INVALID, f"{metrics.origin.path} has {len(values)} rows of {name} for one engine")


def _awake(metrics: Metrics, engine: str) -> Reading[bool]:
    """Whether the engine works. Versions before 0.12 cannot say, and are taken to."""
    if not metrics.page.samples(names.SLEEP) and not metrics.page.broken(names.SLEEP):
        return Known(True, metrics.origin)
    rows = _rows(metrics, names.SLEEP, engine)
    if isinstance(rows, Unknown):
        return rows
    states = [number(s.value, rows.origin, names.SLEEP) for s in rows.value if s.labels.get("sleep_state") == "awake"]
    if len(states) != 1:
        return Unknown(Reason.NOT_REPORTED, f"{metrics.origin.path} does not say whether the engine is awake")
    state = states[0]
    if isinstance(state, Unknown):
        return state
    return Known(state.value == 1, rows.origin) if state.value in (0, 1) else Unknown(Reason.INVALID, f"{names.SLEEP} is neither 0 nor 1")
