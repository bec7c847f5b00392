"""KV cache bytes from GGUF metadata: real models, hand-computed cases, and the sizes that real servers wrote in their logs."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines import gguf_models, kv_cases
from engines.builds import Build, CurrentBuild
from engines.gguf_models import write
from inspector.contract import CacheShape, ModelFile, Plans, PlanSettings
from inspector.layout import Shared, Split
from inspector.planning.model_files import ModelFileError, read_gguf
from inspector.reading import Reason, Unknown
from inspector_llamacpp import ADAPTER
from inspector_llamacpp.cache_table import ARCHITECTURES, EXTRA_CACHES

pytest_plugins = ["engines.fixtures"]

REAL_MODELS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "fixtures" / "kv" / "real_models.json").read_text())
MIB = 2**20


def gguf(architecture: str, **values: object) -> ModelFile:
    """Keys of the architecture, `__` for a dot."""
    return ModelFile("gguf", architecture, {f"{architecture}.{name.replace('__', '.')}": value for name, value in values.items()})


def attention(architecture: str, layers: int, kv_heads: object, head: int, **more: object) -> ModelFile:
    common = {"context_length": 131072, "embedding_length": 4 * head, "attention__head_count": 4, "attention__key_length": head}
    return gguf(architecture, **common, attention__value_length=head, block_count=layers, attention__head_count_kv=kv_heads, **more)


TWO_LAYERS = attention("llama", 2, 2, 128)
GEMMA2 = attention("gemma2", 2, 2, 128, attention__sliding_window=32)
GEMMA3_270M = attention("gemma3", 18, 1, 256, attention__sliding_window=512)
LATENT = {"attention__value_length": 512, "attention__key_length_mla": 192, "attention__value_length_mla": 128}


def latent(architecture: str, **more: object) -> ModelFile:
    model = attention(architecture, 2, 1, 576, **more)
    return ModelFile("gguf", architecture, {**model.values, **{f"{architecture}.{k.replace('__', '.')}": v for k, v in LATENT.items()}})


def told_bytes(model: ModelFile, **settings: Any) -> int:
    found = ADAPTER.cache_bytes(model, PlanSettings(**settings))
    assert isinstance(found, int), found
    return found


def shape(model: ModelFile, **settings: Any) -> CacheShape:
    found = ADAPTER.cache_shape(model, PlanSettings(**settings))
    assert isinstance(found, CacheShape), found
    return found


def why(answer: object) -> str:
    assert isinstance(answer, Unknown), answer
    return answer.detail


@pytest.mark.parametrize("row", REAL_MODELS, ids=lambda row: row["model"])
def test_a_real_models_bytes(row: dict[str, Any]) -> None:
    found = shape(ModelFile("gguf", row["architecture"], row["values"]), context_tokens=131072, slots=1)
    assert (found.token_bytes, found.window_bytes, found.session_bytes) == (row["token_bytes"], row["window_bytes"], row["session_bytes"])
    batch = 512
    assert found.window_tokens == (-(-(row["model_window"] + batch) // 256) * 256 if row["window_bytes"] else 0)


# What llama-server wrote into its log for these models, in MiB to two digits.
LOGGED = [
    (TWO_LAYERS, {"unified": False}, 16.00),
    (TWO_LAYERS, {"unified": True}, 16.00),
    (TWO_LAYERS, {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}, 8.50),
    (TWO_LAYERS, {"cache_type_k": "q4_0", "cache_type_v": "q4_0"}, 4.50),
    (TWO_LAYERS, {"cache_type_k": "q8_0", "cache_type_v": "f16"}, 12.25),
    (TWO_LAYERS, {"cache_type_k": "bf16", "cache_type_v": "f32"}, 24.00),
    (TWO_LAYERS, {"context_tokens": 10000, "slots": 3}, 21.00),
    (TWO_LAYERS, {"context_tokens": 10000, "slots": 3, "unified": True}, 20.00),
    (GEMMA2, {}, 11.00),
    (GEMMA2, {"unified": True}, 8.75),
    (GEMMA2, {"more": {"swa_full": 1}}, 16.00),
    (GEMMA2, {"more": {"ubatch_size": 128}}, 9.00),
    (GEMMA2, {"unified": True, "more": {"ubatch_size": 2048}}, 10.25),
    (GEMMA3_270M, {}, 84.00),
    (GEMMA3_270M, {"unified": True}, 61.50),
    (GEMMA3_270M, {"slots": 1}, 39.00),
    (GEMMA3_270M, {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}, 44.63),
    (GEMMA3_270M, {"cache_type_k": "q4_0", "cache_type_v": "q4_0"}, 23.63),
    (GEMMA3_270M, {"cache_type_k": "q8_0"}, 64.32),
    (GEMMA3_270M, {"context_tokens": 10000, "slots": 3}, 76.50),
    (GEMMA3_270M, {"context_tokens": 10000, "slots": 3, "unified": True}, 60.00),
    (latent("deepseek2"), {}, 18.00),
    (latent("deepseek2"), {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}, 9.56),
    (latent("deepseek2"), {"cache_type_k": "q4_0", "cache_type_v": "q4_0"}, 5.06),
    (latent("deepseek32", attention__indexer__key_length=128), {}, 22.00),
]


@pytest.mark.parametrize(("model", "changed", "mebibytes"), LOGGED)
def test_the_size_that_a_server_logged(model: ModelFile, changed: dict[str, Any], mebibytes: float) -> None:
    found = told_bytes(model, **{"context_tokens": 8192, "slots": 4, **changed})
    assert found / MIB == pytest.approx(mebibytes, abs=0.0101)


def test_states_are_kept_for_each_slot_and_never_shrink_with_the_cache_type() -> None:
    """Hand-computed: (4 - 1) * (64 + 2 * 2 * 16) + 16 * 64 = 1408 floats of four bytes."""
    states = {"ssm__conv_kernel": 4, "ssm__inner_size": 64, "ssm__state_size": 16, "ssm__group_count": 2}
    model = gguf("mamba2", context_length=4096, block_count=3, embedding_length=32, **states)
    assert told_bytes(model, slots=5) == told_bytes(model, slots=5, cache_type_k="q8_0") == 5 * 3 * 1408 * 4
    assert shape(model) == CacheShape(0, 0, 0, 3 * 1408 * 4)


def test_layers_without_kv_heads_have_a_state_and_no_tokens() -> None:
    states = {"ssm__conv_kernel": 4, "ssm__inner_size": 256, "ssm__state_size": 16}
    found = shape(attention("jamba", 4, [0, 2, 0, 0], 32, **states))
    assert (found.token_bytes, found.session_bytes) == (2 * 2 * 32 * 2, 3 * (3 * 256 + 16 * 256) * 4)


def test_a_layer_with_a_feed_forward_part_only_keeps_nothing() -> None:
    states = {"ssm__conv_kernel": 4, "ssm__inner_size": 256, "ssm__state_size": 16, "ssm__group_count": 1}
    found = shape(attention("nemotron_h", 3, [2, 0, 0], 32, feed_forward_length=[0, 0, 384], **states))
    assert (found.token_bytes, found.session_bytes) == (2 * 2 * 32 * 2, (3 * (256 + 2 * 16) + 16 * 256) * 4)


def test_one_architecture_has_its_window_at_one_size_only() -> None:
    assert shape(attention("exaone4", 64, 1, 32)).window_bytes == 48 * 2 * 32 * 2
    assert shape(attention("exaone4", 30, 1, 32, attention__sliding_window=4096)).window_bytes == 0


def test_the_windows_of_a_stated_period() -> None:
    assert shape(attention("gemma3", 6, 1, 32, attention__sliding_window=64, attention__sliding_window_pattern=2)).window_bytes == 3 * 2 * 32 * 2
    same = [True, True, True, True, True, False]
    assert shape(attention("gemma3", 6, 1, 32, attention__sliding_window=64, attention__sliding_window_pattern=same)).window_bytes == 5 * 2 * 32 * 2


def test_layers_that_use_the_keys_and_values_of_others_have_none() -> None:
    """Hand-computed: of four layers with their own, three have a window and heads of 32 elements, one has neither."""
    windows = [True, True, True, False, True, False]
    found = shape(ModelFile("gguf", "gemma4", gguf_models.sharing(6, 2, 4, 1, 64, 32, windows).prefixed()))
    assert (found.token_bytes, found.window_bytes) == (2 * 64 * 2, 3 * 2 * 32 * 2)


def test_a_list_of_windows_that_builds_read_in_two_ways_is_unknown() -> None:
    other = [True, False] * 3
    answer = ADAPTER.cache_shape(attention("gemma3", 6, 1, 32, attention__sliding_window=64, attention__sliding_window_pattern=other), PlanSettings())
    assert "gemma3" in why(answer)


# --- Layouts -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "layout"),
    [
        (PlanSettings(), Shared(4, 8192, 8192)),
        (PlanSettings(context_tokens=2048), Shared(4, 2048, 2048)),
        (PlanSettings(context_tokens=2000, unified=False), Shared(4, 2048, 2048)),
        (PlanSettings(context_tokens=2048, slots=4), Split(4, 512)),
        (PlanSettings(context_tokens=2048, slots=4, unified=True), Shared(4, 2048, 2048)),
        (PlanSettings(context_tokens=2048, slots=1), Split(1, 2048)),
        (PlanSettings(context_tokens=1000, slots=3), Split(3, 512)),
        (PlanSettings(context_tokens=16384, slots=1), Split(1, 8192)),
        (PlanSettings(context_tokens=16384, slots=4, unified=True), Shared(4, 16384, 8192)),
        (PlanSettings(context_tokens=10000, slots=3), Split(3, 3584)),
    ],
)
def test_the_layout_that_a_server_had_with_these_settings(settings: PlanSettings, layout: object) -> None:
    """As real servers of three builds reported them for a model with a trained context of 8192."""
    assert ADAPTER.plan_layout(gguf("llama", context_length=8192), settings) == layout


# --- What stays unknown --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", [*sorted(EXTRA_CACHES), "never-heard-of"])
def test_an_architecture_that_is_not_proved_is_unknown_by_name(architecture: str) -> None:
    model = attention(architecture, 2, 2, 128, attention__sliding_window=512)
    for answer in (ADAPTER.cache_bytes(model, PlanSettings()), ADAPTER.cache_shape(model, PlanSettings())):
        assert isinstance(answer, Unknown)
        assert answer.reason is Reason.NOT_OFFERED
        assert architecture in answer.detail
    assert ADAPTER.plan_layout(model, PlanSettings(slots=2)) == Split(2, 65536)  # sessions need no bytes


def test_what_the_engine_refuses_is_unknown_and_says_so() -> None:
    assert "refuses" in why(ADAPTER.cache_bytes(latent("deepseek2"), PlanSettings(cache_type_k="q8_0")))
    assert "refuses" in why(ADAPTER.cache_bytes(attention("llama", 2, 2, 80), PlanSettings(cache_type_k="q8_0")))
    assert "batch" in why(ADAPTER.cache_bytes(GEMMA2, PlanSettings(more={"ubatch_size": -600})))
    assert "q8_0" in why(ADAPTER.cache_bytes(TWO_LAYERS, PlanSettings(cache_type_k="q3_k")))


def test_a_missing_key_is_named() -> None:
    assert "llama.block_count" in why(ADAPTER.cache_bytes(gguf("llama", context_length=1), PlanSettings()))
    assert "gpt-oss.attention.sliding_window" in why(ADAPTER.cache_bytes(attention("gpt-oss", 2, 2, 64), PlanSettings()))


def test_a_window_that_the_engine_is_not_known_to_use_or_to_leave_is_unknown() -> None:
    """A converter may state one for any architecture; for some it is proved that the engine passes over it."""
    assert "glm4" in why(ADAPTER.cache_bytes(attention("glm4", 2, 2, 64, attention__sliding_window=512), PlanSettings()))
    assert shape(attention("qwen2", 2, 2, 64, attention__sliding_window=512)).window_bytes == 0


def test_lengths_of_latent_attention_that_are_zero_mean_that_there_is_none() -> None:
    """llama.cpp writes them as zero when it saves a model."""
    found = shape(attention("llama", 2, 2, 64, attention__key_length_mla=0, attention__value_length_mla=0))
    assert found.token_bytes == 2 * 2 * 2 * 64 * 2


def test_draft_layers_inside_a_model_are_left_out_where_that_is_proved_only() -> None:
    assert "draft" in why(ADAPTER.cache_bytes(attention("glm4", 3, 2, 64, nextn_predict_layers=1), PlanSettings()))


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 600),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.one_of(st.integers(-1, 9), st.text()), max_size=70),
)
KEYS = (
    "context_length", "block_count", "embedding_length", "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length",
    "attention.sliding_window", "attention.sliding_window_pattern", "attention.key_length_mla", "attention.value_length_mla", "attention.recurrent_layers",
    "attention.indexer.key_length", "nextn_predict_layers", "ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.group_count", "shortconv.l_cache",
    "kda.head_dim", "full_attention_interval", "feed_forward_length",
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([*ARCHITECTURES, "nonsense", ""]), st.dictionaries(st.sampled_from(KEYS), JUNK), st.integers(-3, 300), st.integers(-5, 2**40))
def test_malformed_metadata_never_raises(architecture: str, junk: dict[str, object], slots: int, context: int) -> None:
    good = attention("x", 6, 2, 64, ssm__conv_kernel=4, ssm__inner_size=64, ssm__state_size=16, feed_forward_length=0)
    values = {name.replace("x.", f"{architecture}.", 1): value for name, value in good.values.items()}
    model = ModelFile("gguf", architecture, {**values, **{f"{architecture}.{name}": value for name, value in junk.items()}})
    plan = PlanSettings(context_tokens=context, slots=slots)
    assert isinstance(ADAPTER.cache_bytes(model, plan), int | Unknown)
    assert isinstance(ADAPTER.cache_shape(model, plan), CacheShape | Unknown)
    assert isinstance(ADAPTER.plan_layout(model, plan), Split | Shared | Unknown)


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    pytest.importorskip("gguf")
    path = tmp_path_factory.mktemp("whole") / "model.gguf"
    return write(gguf_models.attention("gemma3", 3, 2, 1, 32, attention__sliding_window=64), path).read_bytes()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 1200), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4), cut=st.integers(0, 1 << 16))
def test_a_damaged_file_is_refused_or_read_within_bounds(changes: list[tuple[int, bytes]], cut: int, whole_file: bytes, tmp_path: Path) -> None:
    damaged = bytearray(whole_file[:cut] if cut < 1200 else whole_file)
    for at, junk in changes:
        damaged[at : at + len(junk)] = junk
    file = tmp_path / "damaged.gguf"
    file.write_bytes(damaged)
    try:
        model = read_gguf(file)
    except ModelFileError:
        return
    assert isinstance(ADAPTER.cache_bytes(model, PlanSettings()), int | Unknown)
    assert isinstance(ADAPTER.plan_layout(model, PlanSettings()), Split | Shared | Unknown)


IMPOSSIBLE = {
    "entries": struct.pack("<4sIQQ", b"GGUF", 3, 0, 2**63),
    "tensors": struct.pack("<4sIQQ", b"GGUF", 3, 2**63, 0),
    "a long key": struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, 2**40),
    "a long text": struct.pack("<4sIQQQ1sIQ", b"GGUF", 3, 0, 1, 1, b"a", 8, 2**40),
    "a long list": struct.pack("<4sIQQQ1sIIQ", b"GGUF", 3, 0, 1, 1, b"a", 9, 0, 2**40),
    "a list of a great many numbers": struct.pack("<4sIQQQ1sIIQ", b"GGUF", 3, 0, 1, 1, b"a", 9, 10, 4_999_999) + bytes(2**20),
    "lists in lists": struct.pack("<4sIQQQ1s", b"GGUF", 3, 0, 1, 1, b"a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 20000,
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_head_that_promises_too_much_takes_little_memory(name: str, tmp_path: Path) -> None:
    file = tmp_path / "damaged.gguf"
    file.write_bytes(IMPOSSIBLE[name])
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError):
            read_gguf(file)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 50 * 10**6


# --- A real server -------------------------------------------------------------------------------------------------------------------


REAL = [
    ("GQA", {}),
    ("GQA", {"keys": "q8_0", "values": "q4_0", "slots": 3, "context": 5000}),
    ("window", {"slots": None}),
    ("window", {"more": {"ubatch_size": 128}}),
    ("latent", {"keys": "q8_0", "values": "q8_0"}),
    ("hybrid", {"unified": True}),
    ("recurrent", {"slots": 2}),
    ("KV reuse", {}),
]


@pytest.mark.engine
@pytest.mark.parametrize(("kind", "runtime"), REAL)
def test_a_real_server_sets_aside_what_is_predicted(kind: str, runtime: dict[str, Any], b10434: Build, tmp_path: Path) -> None:
    case = kv_cases.Case(kind, kv_cases.SEEN[kind][0], **runtime)
    told = kv_cases.ask(b10434, case, tmp_path)
    assert isinstance(told, kv_cases.Logged), told
    plan = PlanSettings(case.context, case.slots, case.unified, case.keys, case.values, more=case.more)
    found = ADAPTER.cache_bytes(ModelFile("gguf", case.model.architecture, case.model.prefixed()), plan)
    assert isinstance(found, int), found
    assert told.agrees(found), f"{found / MIB:.3f} MiB, but the log says {told.mebibytes:.2f}"


@pytest.mark.engine
@pytest.mark.parametrize(("kind", "unified"), [("window", True), ("KV reuse", False), ("hybrid", False)])
def test_the_newest_build_sets_aside_the_same(kind: str, unified: bool, current: CurrentBuild, tmp_path: Path) -> None:
    case = kv_cases.Case(kind, kv_cases.SEEN[kind][-1], unified=unified)
    told = kv_cases.ask(current, case, tmp_path)
    assert isinstance(told, kv_cases.Logged), told
    assert told.mebibytes > 0
    assert told.agrees(told_bytes(ModelFile("gguf", case.model.architecture, case.model.prefixed()), context_tokens=case.context, slots=4, unified=unified))


@pytest.mark.engine
def test_a_real_server_refuses_what_is_called_refused(b10434: Build, tmp_path: Path) -> None:
    case = kv_cases.Case("latent", kv_cases.SEEN["latent"][0], keys="q8_0", values="f16")
    assert isinstance(kv_cases.ask(b10434, case, tmp_path), str)
    narrow = kv_cases.Case("GQA", gguf_models.attention("llama", 2, 2, 2, 48), keys="q8_0", values="q8_0")
    assert isinstance(kv_cases.ask(b10434, narrow, tmp_path), str)


def test_the_adapter_plans() -> None:
    assert isinstance(ADAPTER, Plans)
