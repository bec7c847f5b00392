"""Planning: model files read without trust, the frontier, changes of one flag, catalogs, the picture."""

import json
import struct
import sys
import tracemalloc
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import known
from inspector.budget import Shape, capacity
from inspector.contract import CacheShape, Flag, FlagKind, FlagTable, ModelFile, PlanSettings, Reply, Route
from inspector.demo.model import write_tiny_model
from inspector.layout import MemoryBound, Paged, Shared, Span, Split
from inspector.model import Pool
from inspector.planning.catalog import CatalogError, read_catalog
from inspector.planning.frontier import Planner, Point, last
from inspector.planning.model_files import ModelFileError, read_config, read_gguf, trained_context
from inspector.planning.plot import PlotError, check_plot, plot
from inspector.planning.what_if import changes
from inspector.reading import Known, Reason, Unknown

MOST_BYTES = 50_000_000
needs_gguf = pytest.mark.skipif(find_spec("gguf") is None, reason="gguf is not installed: pip install -e '.[demo]'")
needs_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed: pip install matplotlib")

# --- Model files ---------------------------------------------------------------------------------------------------------------------


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key, kind, raw):
    return text(key) + struct.pack("<I", kind) + raw


def gguf_head(*entries, tensors=0):
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, len(entries)) + b"".join(entries)


LLAMA = entry("general.architecture", 8, text("llama"))
SMALL = gguf_head(
    LLAMA,
    entry("llama.context_length", 4, struct.pack("<I", 8192)),
    entry("llama.attention.head_count_kv", 9, struct.pack("<IQ3I", 4, 3, 8, 0, 8)),
    entry("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2) + text("a") + text("b")),
)


def written(folder, raw, name="model.gguf"):
    file = folder / name
    file.write_bytes(raw)
    return file


def test_the_entries_of_a_head_are_read_and_its_vocabulary_is_passed_over(tmp_path):
    model = read_gguf(written(tmp_path, SMALL))
    assert (model.kind, model.architecture) == ("gguf", "llama")
    assert model.values == {"general.architecture": "llama", "llama.context_length": 8192, "llama.attention.head_count_kv": [8, 0, 8]}
    assert trained_context(model) == 8192


@needs_gguf
def test_a_file_of_the_gguf_package_is_read_as_that_package_reads_it(tmp_path):
    gguf = import_module("gguf")
    file = write_tiny_model(tmp_path / "tiny.gguf")
    model = read_gguf(file)
    theirs = gguf.GGUFReader(file)
    for name in ("llama.block_count", "llama.attention.head_count_kv", "llama.embedding_length", "llama.context_length"):
        assert model.values[name] == theirs.get_field(name).contents()
    assert model.weights_bytes >= sum(int(tensor.n_bytes) for tensor in theirs.tensors)
    assert model.weights_bytes < sum(int(tensor.n_bytes) for tensor in theirs.tensors) + 32 * len(theirs.tensors)


HOSTILE = {
    "empty": b"",
    "not a GGUF": b"GGML" + bytes(20),
    "version 1": b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
    "no architecture": gguf_head(),
    "architecture is a number": gguf_head(entry("general.architecture", 4, struct.pack("<I", 1))),
    "endless entries": b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63) + LLAMA,
    "endless key": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**62),
    "endless text": gguf_head(LLAMA, entry("x", 8, struct.pack("<Q", 2**62))),
    "endless list": gguf_head(LLAMA, entry("x", 9, struct.pack("<IQ", 4, 2**61))),
    "endless list of texts": gguf_head(LLAMA, entry("x", 9, struct.pack("<IQ", 8, 2**61))),
    "list of lists": gguf_head(LLAMA, entry("x", 9, struct.pack("<IQ", 9, 2) + bytes(24))),
    "unknown type": gguf_head(LLAMA, entry("x", 99, bytes(8))),
    "cut": SMALL[:-1],
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_head_is_refused_with_a_remedy_and_within_memory(raw, tmp_path):
    file = written(tmp_path, raw)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=r"; "):
            read_gguf(file)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


def wide(number):
    return entry(f"k{number:0255}", 8, struct.pack("<Q", 256) + b"\xff" * 256)


LARGE = {
    "as many entries as are read": (read_gguf, gguf_head(LLAMA, *map(wide, range(16_383)))),
    "as many numbers as are kept": (read_gguf, gguf_head(LLAMA, *(entry(f"n{n}", 9, struct.pack("<IQ", 12, 4096) + bytes(8 * 4096)) for n in range(200)))),
    "a config of small objects": (read_config, b'{"model_type": "llama", "x": [' + b"{}," * 340_000 + b"{}]}"),
}


@pytest.mark.parametrize(("read", "raw"), LARGE.values(), ids=LARGE)
def test_the_largest_file_that_is_read_stays_within_memory(read, raw, tmp_path):
    file = written(tmp_path, raw)
    tracemalloc.start()
    try:
        assert read(file).architecture == "llama"
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_damaged_head_is_read_or_refused(data, tmp_path_factory):
    raw = bytearray(SMALL)
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=6)):
        raw[place] = data.draw(st.integers(0, 255))
    file = written(tmp_path_factory.getbasetemp(), bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    with suppress(ModelFileError):
        assert isinstance(read_gguf(file), ModelFile)


NO_CONFIGS = {
    "empty": b"", "a list": b"[]", "no type": b"{}", "cut": b"{", "no UTF-8": b"\xff\xfe", "type is a number": b'{"model_type": 7}',
    "type is empty": b'{"model_type": ""}', "deep": b"[" * 100_000, "large": b'{"a":"' + b"x" * 5_000_000,
}  # fmt: skip


@pytest.mark.parametrize("raw", NO_CONFIGS.values(), ids=NO_CONFIGS)
def test_a_hostile_config_is_refused_with_a_remedy(raw, tmp_path):
    with pytest.raises(ModelFileError, match=r"; name a model's config.json"):
        read_config(written(tmp_path, raw, "config.json"))


def test_a_config_is_read_with_the_weights_beside_it(tmp_path):
    head = b"{}" + b" " * 6
    written(tmp_path, struct.pack("<Q", len(head)) + head + bytes(1000), "model.safetensors")
    model = read_config(written(tmp_path, b'{"model_type": "llama", "max_position_embeddings": 4096}', "config.json"))
    assert (model.kind, model.architecture, model.weights_bytes, trained_context(model)) == ("config", "llama", 1000, 4096)


@pytest.mark.parametrize("value", [None, 0, -1, True, "4096", 1e30])
def test_a_context_that_cannot_be_is_none(value):
    assert trained_context(ModelFile("config", "llama", {"max_position_embeddings": value})) is None


def test_what_is_no_file_is_refused(tmp_path):
    for read in (read_gguf, read_config):
        for file in (tmp_path, tmp_path / "absent"):
            with pytest.raises(ModelFileError, match="cannot be read"):
                read(file)


# --- The frontier --------------------------------------------------------------------------------------------------------------------

MODEL = ModelFile("gguf", "toy", {}, weights_bytes=1_000_000)
TOKEN = 100


class Toy:
    """100 bytes a token; `how` is the way in which the engine takes its context setting."""

    def __init__(self, how):
        self.how = how

    def cache_shape(self, model, settings):
        return CacheShape(TOKEN)

    def cache_bytes(self, model, settings):
        match self.how:
            case "split" | "shared":
                return TOKEN * settings.context_tokens
            case "paged":
                return Unknown(Reason.NO_SOURCE, "no memory") if settings.memory_bytes is None else settings.memory_bytes - model.weights_bytes
            case _:
                return Unknown(Reason.NOT_OFFERED, "it grows")

    def plan_layout(self, model, settings):
        total, slots = settings.context_tokens, settings.slots
        match self.how:
            case "split":
                return Split(slots, total // slots)
            case "shared":
                return Shared(slots, total, total)
        if settings.memory_bytes is None:
            return Unknown(Reason.NO_SOURCE, "no memory")
        room = settings.memory_bytes - model.weights_bytes
        if self.how == "paged":
            return Paged(room // (16 * TOKEN), 16, 1, slots, total)
        return MemoryBound(1 if self.how == "one by one" else slots, lambda tokens: tokens * TOKEN, room)


def planner(how, memory=1_000_000 + 100 * 8192, **changes):
    return Planner(Toy(how), MODEL, PlanSettings(memory_bytes=memory), **{"ceiling": 4096, **changes})


EACH = {"split": 2048, "shared": 2049, "paged": 2033, "memory": 2048}
"""Tokens of 4 sessions in 8192: a shared pool and blocks store one less than a session has; one of 512 blocks is kept back."""


@pytest.mark.parametrize("how", EACH)
def test_the_largest_context_of_four_sessions(how):
    point = planner(how).largest_context(4)
    assert (point.sessions, point.tokens, point.limited_by) == (4, EACH[how], "memory")


@pytest.mark.parametrize("how", EACH)
@pytest.mark.parametrize("sessions", [1, 3, 7, 64])
def test_the_largest_context_is_the_largest(how, sessions):
    """With its setting so many sessions fit; one token more fits with no setting that the memory allows."""
    asked = planner(how)
    point = asked.largest_context(sessions)
    setting = point.setting or 1
    fit = capacity(asked.plans.plan_layout(MODEL, PlanSettings(setting, sessions, memory_bytes=asked.settings.memory_bytes)), Shape(point.tokens, 0))
    assert fit.sessions >= sessions
    if how in ("split", "shared"):
        assert point.kv_bytes <= 100 * 8192
    if point.tokens < asked.ceiling:
        assert asked.most_sessions(point.tokens + 1) < sessions
    assert asked.most_sessions(point.tokens) >= sessions


@pytest.mark.parametrize("sessions", [1, 2, 64])
def test_sessions_that_the_engine_never_runs_at_once_are_limited_by_its_slots(sessions):
    """MLX LM with a quantized cache serves one request at a time, however much memory there is."""
    point = planner("one by one", memory=10**9).largest_context(sessions)
    assert (point.tokens, point.limited_by) == ((4096, "context") if sessions == 1 else (0, "slots"))


def test_no_session_is_longer_than_the_model_was_made_for():
    point = planner("split", memory=10**9).largest_context(2)
    assert (point.tokens, point.setting, point.limited_by) == (4096, 8192, "context")
    assert planner("split", memory=10**9).most_sessions(4097) == 0


def test_where_the_weights_alone_do_not_fit_there_is_no_session():
    assert planner("split", memory=999_999).largest_context(1) == Point(1, 0, None, None, "memory")
    assert planner("split", memory=999_999).most_sessions(1) == 0


def test_unknown_weights_make_the_frontier_unknown():
    asked = Planner(Toy("split"), ModelFile("gguf", "toy", {}), PlanSettings(memory_bytes=10**9), 4096)
    assert "--weights" in asked.largest_context(1).detail
    assert isinstance(asked.most_sessions(1), Unknown)


def test_an_architecture_that_is_not_proved_is_unknown_by_its_name():
    class Refuses(Toy):
        def cache_bytes(self, model, settings):
            return Unknown(Reason.NO_SOURCE, f"{model.architecture} was not proved")

    assert "toy" in Planner(Refuses("split"), MODEL, PlanSettings(memory_bytes=10**9), 4096).largest_context(1).detail


@pytest.mark.parametrize("how", ["split", "shared"])
def test_what_is_needed_is_the_smallest_setting_that_holds_it(how):
    point = planner(how, memory=None).needed(4, 1000)
    assert point.setting == {"split": 4000, "shared": 3996}[how]
    assert point.kv_bytes == point.setting * TOKEN


@pytest.mark.parametrize("how", ["paged", "memory"])
def test_without_memory_what_is_needed_is_told_by_the_tokens(how):
    assert planner(how, memory=None).needed(4, 1000) == Point(4, 1000, None, 4 * 1000 * TOKEN, "")


@given(bound=st.integers(-1, 60), low=st.integers(0, 5), high=st.integers(5, 60))
def test_last_finds_the_last(bound, low, high):
    assert last(lambda number: number <= bound, low, high) == min(high, max(low - 1, bound))


# --- Changes of one flag -------------------------------------------------------------------------------------------------------------

TYPES = frozenset({"f16", "q8_0"})
FLAGS = FlagTable(
    frozenset(),
    (
        Flag("parallel", FlagKind.INTEGER, ("-np", "--parallel")),
        Flag("kv_unified", FlagKind.SWITCH, ("-kvu", "--kv-unified"), off=("--no-kv-unified",)),
        Flag("cache_type_k", FlagKind.WORD, ("--cache-type-k",), words=TYPES),
        Flag("cache_type_v", FlagKind.WORD, ("--cache-type-v",), words=TYPES),
    ),
)
SEQUENCES = FlagTable(frozenset(), (Flag("max_num_seqs", FlagKind.INTEGER, ("--max-num-seqs",)),))


def told(layout, shape, flags=FLAGS, **fields):
    return {change.words: change.capacity for change in changes(Pool(layouts=(layout,), **fields), shape, flags)}


Q8 = "--cache-type-k q8_0 --cache-type-v q8_0"


def test_a_session_too_long_for_a_slot_fits_after_one_flag():
    """A llama-server with -c 4096: 3900+150 ran alone in a shared pool and was refused by slots of 1024."""
    shape = Shape(3900, 150)
    assert told(Split(4, 1024), shape, model_context_tokens=known(8192)) == {"--kv-unified": Span(1, 1), "--parallel 1": Span(1, 1)}


def test_without_the_models_context_a_larger_request_is_possible_only():
    assert told(Split(4, 1024), Shape(3900, 150)) == {"--kv-unified": Span(0, 1), "--parallel 1": Span(0, 1)}


def test_a_smaller_cache_type_is_possible_only_for_the_present_one_is_not_known():
    assert told(Shared(4, 4096, 4096), Shape(900, 200))[Q8] == Span(3, 4)
    assert Q8 not in told(Shared(4, 4096, 4096), Shape(900, 124)), "slots are the limit, not memory"


def test_slots_are_added_where_the_cache_has_room_and_divided_where_it_has_not():
    assert told(Shared(4, 4096, 4096), Shape(400, 113))["--parallel 8"] == Span(8, 8)
    assert told(Split(4, 1024), Shape(400, 112))["--parallel 8"] == Span(8, 8)
    assert told(Paged(33, 128, 1, 2, 2048), Shape(700, 324), SEQUENCES) == {"--max-num-seqs 4": Span(4, 4)}


def test_what_would_be_worse_is_told_too():
    assert told(Shared(4, 4096, 4096), Shape(1500, 400))["--no-kv-unified"] == Span(0, 0)


def test_where_the_layout_is_not_known_nothing_is_said():
    assert changes(Pool(layouts=(Split(4, 1024), Shared(4, 1024, 1024))), Shape(10, 10), FLAGS) == []
    assert changes(Pool(), Shape(10, 10), FLAGS) == []
    assert changes(Pool(layouts=(Paged(33, 128, 1, None, 2048),)), Shape(10, 10), SEQUENCES) == []


@given(
    layout=st.one_of(
        st.builds(Split, st.integers(1, 8), st.integers(1, 4096)),
        st.builds(Shared, st.integers(1, 8), st.integers(1, 8192), st.integers(1, 8192)),
        st.builds(Paged, st.integers(2, 64), st.integers(1, 128), st.just(1), st.integers(1, 8), st.integers(1, 4096)),
    ),
    prompt=st.integers(1, 8192),
    output=st.integers(1, 1000),
)
def test_every_change_has_words_a_reason_and_bounds_in_order(layout, prompt, output):
    for change in changes(Pool(layouts=(layout,)), Shape(prompt, output), FLAGS):
        assert change.words.startswith("--")
        assert change.rests_on
        assert 0 <= change.capacity.guaranteed <= change.capacity.possible


# --- Catalogs ------------------------------------------------------------------------------------------------------------------------


def catalog(body, raw=None):
    return read_catalog(Reply(Route("/catalog.json"), 200, {}, json.dumps(body).encode() if raw is None else raw, 100.0))


def test_a_catalog_is_read_and_compared():
    (model,) = catalog({"models": [{"id": "llama-8b", "revision": "main", "quant": "q8_0", "requiredMemGB": 9.5, "maxContext": 8192}]}).models
    assert (model.id.value, model.revision.value, model.quant.value) == ("llama-8b", "main", "q8_0")
    assert (model.required_memory_gb.value, model.max_context.value) == (9.5, 8192)
    assert (model.allows(Shape(8000, 192)), model.allows(Shape(8000, 193))) == (True, False)


BAD = [None, "", "8192", -1, 0, True, 1.5, [], {}, "x\x1b[2J", 10**40]


@pytest.mark.parametrize("value", BAD, ids=repr)
def test_a_context_that_cannot_be_is_unknown_and_compares_with_nothing(value):
    (model,) = catalog({"models": [{"id": "m", "maxContext": value}]}).models
    assert isinstance(model.max_context, Unknown)
    assert model.allows(Shape(1, 1)) is None


def test_a_missing_field_is_unknown():
    (model,) = catalog({"models": [{}]}).models
    for reading in (model.id, model.revision, model.quant, model.required_memory_gb, model.max_context):
        assert reading.reason is Reason.NOT_REPORTED


def test_entries_that_are_no_objects_are_counted():
    found = catalog({"models": [7, None, {"id": "m"}, []]})
    assert (len(found.models), found.unreadable) == (1, 3)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"models": {}}', b"<html>", b"[" * 200_000, b"\xff" * 100])
def test_what_is_no_catalog_is_refused_with_a_remedy(raw):
    with pytest.raises(CatalogError, match="; name the URL of a catalog"):
        catalog(None, raw)


KEYS = st.sampled_from(["models", "id", "quant", "requiredMemGB", "maxContext"])
SCALARS = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8)


@given(st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4)))
def test_any_body_is_a_catalog_or_is_refused(body):
    with suppress(CatalogError):
        for model in catalog(body).models:
            assert isinstance(model.id, Known | Unknown)


# --- The picture ---------------------------------------------------------------------------------------------------------------------

POINTS = [Point(1, 8192, 8192, 100, "context"), Point(2, 4096, 8192, 100, "memory"), Point(4, 0, None, None, "memory")]


@needs_matplotlib
def test_a_picture_says_what_it_shows(tmp_path):
    file = tmp_path / "frontier.svg"
    plot(POINTS, file, "toy under fake, 24 GiB for weights and KV cache", 8192)
    drawn = file.read_text()
    for words in ("toy under fake", "sessions at once", "tokens of a session", "8,192 tokens", "most tokens of each session"):
        assert words in drawn
    plot(POINTS, tmp_path / "frontier.png", "toy", None)
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")


@needs_matplotlib
def test_a_picture_that_cannot_be_made_says_why(tmp_path):
    with pytest.raises(PlotError, match=r"neither \.svg nor \.png"):
        check_plot(tmp_path / "frontier.gif")
    with pytest.raises(PlotError, match="nothing to show"):
        plot(POINTS[2:], tmp_path / "frontier.svg", "toy", None)
    with pytest.raises(PlotError, match="cannot be written"):
        plot(POINTS, tmp_path / "absent" / "frontier.svg", "toy", None)


def test_without_matplotlib_the_remedy_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PlotError, match=r"inference-inspector\[plot\]"):
        check_plot(tmp_path / "frontier.svg")
