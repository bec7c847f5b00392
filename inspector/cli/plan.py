"""`inspector plan`: the session budget of a live server, of a server that is yet to be started, or beside a catalog's published settings."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio

from inspector.board import Entry
from inspector.budget import Shape
from inspector.cli.check import look
from inspector.cli.plan_telling import tell
from inspector.cli.refusal import RefusedError
from inspector.cli.targets import choose
from inspector.config import ConfigError, load
from inspector.contract import FlagTable, ModelFile, Plans, PlanSettings, ReadsLaunch
from inspector.planning import report
from inspector.planning.catalog import CatalogError, fetch_catalog
from inspector.planning.frontier import LONGEST, Planner, Point
from inspector.planning.model_files import ModelFileError, read_config, read_gguf, trained_context
from inspector.planning.plot import PlotError, check_plot, plot
from inspector.reading import LARGEST_COUNT
from inspector.registry import Registry, load_adapters

UNKNOWN_EXIT = 3
COUNTS = (1, 2, 4, 8, 16, 32, 64)
"""Sessions of the table."""
DENSE = tuple(sorted({*range(1, 17), *COUNTS, 20, 24, 40, 48}))
"""Sessions of the picture."""
SESSION = re.compile(r"(?P<name>[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})=(?P<prompt>[0-9]{1,12})\+(?P<output>[0-9]{1,12})")
SIZE = re.compile(r"(?P<number>[0-9]{1,15}(?:\.[0-9]{1,6})?) ?(?P<unit>B|[KMGT]i?B)?")
UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
MORE = re.compile(r"(?P<name>[a-z0-9_]{1,60})=(?P<value>[0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class FileOptions:
    """What was typed for a plan from files; sizes still as text."""

    gguf: Path | None = None
    model_config: Path | None = None
    engine: str | None = None
    ctx: int | None = None
    parallel: int | None = None
    unified: bool | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    memory: str | None = None
    weights: str | None = None
    more: Sequence[str] = ()
    plot: Path | None = None


def plan_live(words: Sequence[str], file: Path | None, sessions: Sequence[str], *, as_json: bool) -> int:
    """The budget of each shape on each target. Raises RefusedError."""
    typed = shapes_of(sessions)
    chosen = choose(words, file)
    entries = anyio.run(look, chosen)
    rows = []
    for entry in entries:
        target = next(job.target for job in chosen.jobs if job.name == entry.info.name)
        shapes = {name: Shape(shape.prompt, shape.output) for name, shape in chosen.config.sessions_of(target).items()} | typed
        rows.append((entry, shapes, _flags(entry, chosen.adapters)))
    if not any(shapes for _, shapes, _ in rows):
        raise RefusedError(["--session: no kind of session is named; give --session chat=6000+800, or `sessions` in a configuration"])
    return _answer(report.live(rows), as_json=as_json)


def _flags(entry: Entry, adapters: Registry) -> FlagTable | None:
    """The flag table of the engine that was found."""
    adapter: object = adapters.adapters.get(entry.snapshot.engine if entry.snapshot is not None else entry.info.engine)
    return adapter.flags if isinstance(adapter, ReadsLaunch) else None


def plan_files(options: FileOptions, *, as_json: bool) -> int:
    """The plan of a model's file. Raises RefusedError."""
    model = _model(options)
    engine, plans = _plans(options.engine, model)
    if options.weights is not None:
        model = replace(model, weights_bytes=size_of("--weights", options.weights))
    trained = trained_context(model)
    planner = Planner(plans, model, _settings(options), LONGEST if trained is None else trained)
    if options.plot is not None:
        _check_picture(options)
    has_memory = planner.settings.memory_bytes is not None
    if not has_memory and options.ctx is None:
        raise RefusedError(["--memory: not given; give --memory 24GiB, or --ctx to learn what a context takes"])
    counts = sorted({*COUNTS, *([options.parallel] if options.parallel else [])}) if has_memory else ()
    points = planner.table(counts)
    told = report.files(planner, engine, points, sessions=options.parallel, tokens=options.ctx, trained=trained)
    if options.plot is not None:
        _draw(planner, options.plot, engine, trained)
    return _answer(told, as_json=as_json)


def plan_catalog(url: str, file: Path | None, sessions: Sequence[str], *, as_json: bool) -> int:
    """What a catalog publishes, beside the shapes. Raises RefusedError."""
    try:
        configured = load(file).sessions if file is not None else {}
    except ConfigError as error:
        raise RefusedError(str(problem) for problem in error.problems) from error
    shapes = {name: Shape(shape.prompt, shape.output) for name, shape in configured.items()} | shapes_of(sessions)
    try:
        found = anyio.run(fetch_catalog, url)
    except CatalogError as error:
        raise RefusedError([f"--catalog: {error}"]) from error
    return _answer(report.catalog(found, shapes), as_json=as_json)


def shapes_of(words: Sequence[str]) -> dict[str, Shape]:
    """Session shapes from NAME=PROMPT+OUTPUT. Raises RefusedError."""
    shapes = {}
    for word in words:
        found = SESSION.fullmatch(word)
        if found is None or int(found["prompt"]) < 1 or int(found["output"]) < 1:
            raise RefusedError(["--session: is not NAME=PROMPT+OUTPUT in tokens, both above zero; write --session chat=6000+800"])
        shapes[found["name"]] = Shape(int(found["prompt"]), int(found["output"]))
    return shapes


def size_of(option: str, text: str) -> int:
    """Bytes, from a number with a unit. Raises RefusedError."""
    found = SIZE.fullmatch(text)
    size = int(float(found["number"]) * UNITS[found["unit"] or "B"]) if found else 0
    if not 0 < size <= LARGEST_COUNT:
        raise RefusedError([f"{option}: is not a size; write 24GiB, 24GB, 512MiB or bytes"])
    return size


def _model(options: FileOptions) -> ModelFile:
    if options.gguf is not None and options.model_config is not None:
        raise RefusedError(["--gguf and --model-config: give one of the two"])
    option, file, read = ("--gguf", options.gguf, read_gguf) if options.gguf is not None else ("--model-config", options.model_config, read_config)
    if file is None:
        raise RefusedError(["--gguf: not given; name a GGUF file, or a model's config.json with --model-config"])
    try:
        return read(file)
    except ModelFileError as error:
        raise RefusedError([f"{option}: {error}"]) from error


def _plans(name: str | None, model: ModelFile) -> tuple[str, Plans]:
    """The adapter that is asked: the named one, or the only one that plans from such a file."""
    able = {adapter.name: adapter for adapter in load_adapters().adapters.values() if isinstance(adapter, Plans)}
    if name is None and model.kind == "gguf" and "llamacpp" in able:
        name = "llamacpp"
    if name is None or name not in able:
        problem = "not given" if name is None else "is none that can be planned for"
        raise RefusedError([f"--engine: {problem}; it can be {', '.join(able) or 'none of those installed'}"])
    return name, able[name]


def _settings(options: FileOptions) -> PlanSettings:
    more = {}
    for word in options.more:
        found = MORE.fullmatch(word)
        if found is None:
            raise RefusedError(["--set: is not NAME=NUMBER; write --set ubatch_size=512"])
        more[found["name"]] = int(found["value"])
    return PlanSettings(
        context_tokens=None,
        slots=options.parallel,
        unified=options.unified,
        cache_type_k=options.cache_type_k,
        cache_type_v=options.cache_type_v,
        memory_bytes=None if options.memory is None else size_of("--memory", options.memory),
        more=more,
    )


def _check_picture(options: FileOptions) -> None:
    if options.memory is None or options.plot is None:
        raise RefusedError(["--plot: needs a limit; give --memory 24GiB"])
    try:
        check_plot(options.plot)
    except PlotError as error:
        raise RefusedError([f"--plot: {error}"]) from error


def _draw(planner: Planner, file: Path, engine: str, trained: int | None) -> None:
    points = [point for point in planner.table(DENSE) if isinstance(point, Point)]
    memory = planner.settings.memory_bytes
    limit = "" if memory is None else f", {memory / 2**30:.4g} GiB for weights and KV cache"
    try:
        plot(points, file, f"{planner.model.architecture} under {engine}{limit}", trained)
    except PlotError as error:
        raise RefusedError([f"--plot: {error}"]) from error


def _answer(told: Mapping[str, Any], *, as_json: bool) -> int:
    if as_json:
        json.dump(told, sys.stdout, indent=1, ensure_ascii=False)
        sys.stdout.write("\n")
    else:
        tell(told)
    return UNKNOWN_EXIT if report.has_unknown(told) else 0
