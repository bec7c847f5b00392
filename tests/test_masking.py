"""What `explain` may show of a reply."""

import json

import pytest

from inspector.masking import HIDDEN, masked_body, masked_json, telling

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
    assert masked_json({"prompt_tokens": [15043, 29892, 3186]}) == {"prompt_tokens": []}


def test_structure_numbers_and_truth_values_stay():
    slots = [{"id": 0, "n_ctx": 1024, "is_processing": False, "next_token": [{"n_decoded": 0, "has_next_token": True}], "speculative": None, "p": 0.5}]
    assert masked_json(slots) == slots


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


def test_an_exposition_is_shown_whole_but_for_paths():
    body = b'# HELP x y\n# TYPE x gauge\nx{model_name="/home/someone/models/tiny",q="a\\"b/c"} 1.5\nx{engine="0"} NaN\n'
    assert masked_body(body) == '# HELP x y\n# TYPE x gauge\nx{model_name="tiny",q="c"} 1.5\nx{engine="0"} NaN\n'


@pytest.mark.parametrize("body", [b"", b"<html>secret</html>", b"\xff\xfe", b"File Not Found", b"just words here and more words"])
def test_another_body_is_not_shown(body):
    assert masked_body(body) is None


def test_deep_nesting_is_not_shown():
    assert masked_body(b"[" * 100_000) is None
