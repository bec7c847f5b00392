"""What `explain` may show of a reply."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from asking import load_case
from inspector.masking import HIDDEN, LEFT_OUT, masked_body, masked_headers, masked_json, telling
from inspector.reading import Unknown
from inspector_llamacpp import ADAPTER as LLAMACPP
from inspector_vllm import ADAPTER as VLLM

PROMPT = "My password is hunter2"


@pytest.mark.parametrize(
    "value",
    [
        {"prompt": PROMPT},
        {"params": {"stop": [PROMPT], "grammar": PROMPT}},
        [{"id": 0, "prompt": PROMPT, "next_token": [{"text": PROMPT}]}],
        {PROMPT: 1},
        {"a": {PROMPT: {"b": PROMPT}}},
        {"model": PROMPT * 10},
        {"status": "/home/someone/" + PROMPT + "!"},
        PROMPT,
        [PROMPT],
    ],
)
def test_no_text_of_a_prompt_is_shown(value):
    shown = masked_body(json.dumps(value).encode())
    assert "hunter2" not in shown


def test_tokens_of_a_prompt_are_text_too():
    assert masked_json({"id": 0, "data": [15043, 29892, 3186], "prompt_tokens": [15043]}) == {"id": 0, "data": [], LEFT_OUT: 1}


def test_known_structure_numbers_and_truth_values_stay():
    slots = [{"id": 0, "n_ctx": 1024, "is_processing": False, "next_token": [{"n_decoded": 0, "has_next_token": True}], "speculative": None}]
    assert masked_json(slots) == slots


SCHEMA = {"properties": {"hunter2": {"const": "hunter2"}, "id": {"const": "hunter2"}, "model": "hunter2"}, "model": "hunter2", "type": "hunter2"}


@pytest.mark.parametrize(
    "value",
    [
        {"params": {"grammar_triggers": [{"type": 1, "value": "hunter2"}], "id": "hunter2", "model": "hunter2"}},
        {"grammar_triggers": [{"type": 1, "value": "hunter2"}]},
        [{"id": 0, "hunter2": 1, "response_format": SCHEMA, "json_schema": SCHEMA}],
        {"params": SCHEMA},
        {"status": {"args": ["--api-key", "hunter2"], "value": "hunter2", "hunter2": None}},
        {"status": "hunter2", "type": "hunter2", "object": "hunter2", "role": "hunter2", "build_info": "hunter2", "version": "hunter2"},
        {"error": {"message": "hunter2", "type": "HUNTER hunter2", "hunter2": 1}},
        "hunter2",
    ],
)
def test_a_key_that_is_not_known_is_left_out_with_all_below_it(value):
    assert "hunter2" not in masked_body(json.dumps(value).encode())


@pytest.mark.parametrize(
    "line",
    [
        "# HELP vllm:x at /srv/hunter2/model",
        'vllm:x{hunter2="1"} 1',
        'vllm:x{engine="hunter2/a"} 1',
        'vllm:x{engine="0"} 1 # {trace_id="hunter2"} 1.0',
        'vllm:x{running_lora_adapters="hunter2"} 1',
        'vllm:x{model_name="/srv/hunter2/model"} 1',
        'vllm:x{model_name="\\"hunter2"} 1',
        "hunter2_total 1",
        "# TYPE hunter2 gauge",
        "# TYPE vllm:x HUNTER2",
    ],
)
def test_no_label_help_or_exemplar_that_is_not_known_is_shown(line):
    shown = masked_body(f'{line}\nvllm:num_requests_running{{engine="0"}} 1\n'.encode())
    assert "hunter2" not in shown.lower()
    assert shown.endswith('vllm:num_requests_running{engine="0"} 1\n'), "the rest of the page stays"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"server": "llama.cpp"}, {"server": "llama.cpp"}),
        ({"server": "BaseHTTP/0.6 Python/3.11.2"}, {"server": "BaseHTTP/0.6"}),
        ({"server": "nginx on /srv/hunter2"}, {"server": "other"}),
        ({"content-type": "application/json; charset=hunter2"}, {"content-type": "application/json"}),
        ({"content-type": "hunter2"}, {"content-type": HIDDEN}),
        ({"process-start-time-unix": "1700000000.5", "x-hunter2": "1"}, {"process-start-time-unix": "1700000000.5"}),
    ],
)
def test_headers_are_shown_as_far_as_they_are_known(said, shown):
    assert masked_headers(said) == shown


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("b11434-abc1234", "b11434-abc1234"),
        ("/home/someone/models/Tiny-Q4_K_M.gguf", "Tiny-Q4_K_M.gguf"),
        ("C:\\Users\\someone\\tiny.gguf", "tiny.gguf"),
        ("org/model", "model"),
        ("", HIDDEN),
        ("sk-secret\nkey", HIDDEN),
        ("x" * 101, HIDDEN),
    ],
)
def test_a_telling_text_is_a_base_name(said, shown):
    assert telling(said) == shown


def test_known_metrics_are_shown_as_they_are_but_for_paths():
    body = b'# HELP vllm:x y\n# TYPE vllm:x gauge\nvllm:x{model_name="/home/someone/models/tiny",engine="0"} 1.5\nvllm:x{le="+Inf"} NaN\nllamacpp:y 3\n'
    assert masked_body(body) == '# TYPE vllm:x gauge\nvllm:x{model_name="tiny",engine="0"} 1.5\nvllm:x{le="+Inf"} NaN\nllamacpp:y 3\n'


@pytest.mark.parametrize("body", [b"", b"<html>secret</html>", b"\xff\xfe", b"File Not Found", b"just words here and more words"])
def test_another_body_is_not_shown(body):
    assert masked_body(body) is None


def test_deep_nesting_is_not_shown():
    assert masked_body(b"[" * 100_000) is None


# --- A bundle is a test case --------------------------------------------------------------------------------------------------------

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.mark.anyio
@pytest.mark.parametrize("adapter", [LLAMACPP, VLLM], ids=lambda adapter: adapter.name)
async def test_a_masked_reply_becomes_what_the_reply_did(adapter):
    """The command line that a router shows of its models, and the mark that tells one process from the next, are read by the adapter and not in a bundle."""
    compared = 0
    for case in sorted((FIXTURES / adapter.name / "cases").iterdir()):
        real = load_case(case, adapter.routes, adapter.log_patterns)
        if any(path == "/models" for path in real.replies):
            continue
        masked = replace(real, replies={path: as_masked(reply) for path, reply in real.replies.items()}, asked=[])
        said, shown = [await adapter.observe(ask, adapter.start()) for ask in (real, masked)]
        assert replace(shown, identity=said.identity) == said, case.name
        compared += 1
    assert compared > 10


def as_masked(reply):
    return reply if isinstance(reply, Unknown) else (reply[0], (masked_body(reply[1]) or "").encode())


def test_the_folder_of_an_adapter_is_not_shown():
    """vLLM lists LoRA adapters by the path that they were loaded from: not even its last part is anyone's business."""
    listed = {"object": "list", "data": [{"id": "m", "object": "model", "root": "/adapters/MARK", "parent": "m", "max_model_len": 4096}]}
    assert "MARK" not in json.dumps(masked_json(listed))
