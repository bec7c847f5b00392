"""`inspector plan`: its three forms, what they print, their exit codes, and what they refuse with which remedy."""

import json
import sys
from dataclasses import dataclass
from importlib.util import find_spec

import pytest

from inspector.cli import main
from inspector.demo.model import write_tiny_model
from recorded_server import recorded_server

CONFIG = {
    "model_type": "llama", "torch_dtype": "bfloat16", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32,
    "head_dim": 128, "max_position_embeddings": 131072, "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip
"""Llama-3.1-8B: 131,072 bytes a token in 16-bit floats."""
ROOM = ("--memory", "40GiB", "--weights", "16GiB")
VLLM = ("--engine", "vllm", *ROOM)
CATALOG = {
    "models": [
        {"id": "llama-8b", "revision": "main", "quant": "q8_0", "requiredMemGB": 9.5, "maxContext": 8192},
        {"id": "[red]small[/red]", "maxContext": 4096},
        {"id": "silent"},
    ]
}
needs_gguf = pytest.mark.skipif(find_spec("gguf") is None, reason="gguf is not installed: pip install -e '.[demo]'")


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str

    @property
    def json(self):
        return json.loads(self.stdout)


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs `inspector plan` in this process."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["inspector", "plan", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(ended.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG))
    return file


@pytest.fixture(scope="module")
def busy():
    with recorded_server() as server:
        yield server


def target_file(folder, url, **fields):
    file = folder / "inspector.yaml"
    file.write_text(f"sessions: {{chat: {{prompt: 200, output: 100}}}}\ntargets:\n  - {json.dumps({'name': 'chat', 'url': url, 'launch': 'none', **fields})}\n")
    return file


# --- A live server -------------------------------------------------------------------------------------------------------------------


def test_a_live_server_of_unknown_layout_has_bounds_and_says_what_they_rest_on(run, busy):
    done = run(f"llamacpp={busy.url}", "--session", "chat=200+100", "--json")
    (target,) = done.json["targets"]
    (pool,) = target["pools"]
    chat = pool["sessions"]["chat"]
    assert (target["engine"], target["state"], len(pool["layouts"]) > 1) == ("llamacpp", "ready", True)
    assert chat["capacity"]["guaranteed"] < chat["capacity"]["possible"]
    assert chat["changes"] == []
    assert pool["rests_on"]["slots"] == "http:/props"
    assert pool["rests_on"]["kv_unified"].startswith("unknown (")
    assert {method for method, _, _ in busy.asked} == {"GET"}


def test_a_stated_layout_closes_the_bounds_and_shows_what_one_flag_would_change(run, busy, tmp_path):
    file = target_file(tmp_path, busy.url, engine="llamacpp", facts={"kv_unified": False})
    done = run("--config", file, "chat", "--session", "long=1500+500", "--json")
    (pool,) = done.json["targets"][0]["pools"]
    assert set(pool["sessions"]) == {"chat", "long"}
    chat, long = pool["sessions"]["chat"], pool["sessions"]["long"]
    assert chat["capacity"]["guaranteed"] == chat["capacity"]["possible"]
    assert (long["capacity"], long["limited_by"]) == ({"guaranteed": 0, "possible": 0}, "context")
    unified = next(change for change in long["changes"] if change["with"] == "--kv-unified")
    assert unified["capacity"]["possible"] > 0
    assert unified["rests_on"]


def test_for_people_a_live_plan_is_lines(run, busy, tmp_path):
    done = run("--config", target_file(tmp_path, busy.url, engine="llamacpp", facts={"kv_unified": False}), "chat", "--session", "long=1500+500")
    assert "an empty server holds 0, limited by context" in done.stdout
    assert "with --kv-unified: 0 guaranteed, " in done.stdout
    assert "rests on slots from http:/props" in done.stdout


def test_a_server_that_cannot_be_reached_is_unknown(run):
    done = run("llamacpp=http://127.0.0.1:9", "--session", "chat=200+100", "--json")
    assert done.returncode == 3
    assert done.json["targets"][0]["pools"] == []


def test_without_a_kind_of_session_there_is_nothing_to_plan(run, busy):
    done = run(f"llamacpp={busy.url}")
    assert (done.returncode, done.stdout) == (3, "")
    assert "--session chat=6000+800" in done.stderr


@pytest.mark.parametrize("word", ["chat", "chat=1", "chat=0+5", "chat=5+0", "=1+1", "chat=-1+5", "chat=1+1+1", "a b=1+1", "chat=9999999999999999+1"])
def test_a_session_that_cannot_be_read_is_refused(run, word):
    done = run("http://127.0.0.1:9", "--session", word)
    assert done.returncode == 3
    assert "write --session chat=6000+800" in done.stderr


# --- Files ---------------------------------------------------------------------------------------------------------------------------


def test_the_largest_context_and_the_most_sessions_of_a_config(run, config):
    """24 GiB are 12,288 blocks of 16 x 131,072 bytes, one of them the null block: 12 sessions have 1023 each, 24 have 511."""
    done = run("--model-config", config, *VLLM, "--parallel", 12, "--ctx", 8192, "--json")
    told = done.json
    assert done.returncode == 0
    assert told["cache"] == {"token_bytes": 131072, "window_bytes": 0, "window_tokens": 0, "session_bytes": 0}
    assert (told["largest_context"]["sessions"], told["largest_context"]["context_tokens"]) == (12, 1023 * 16 + 1)
    assert told["most_sessions"] == {"context_tokens": 8192, "sessions": 23}
    assert told["needed"]["kv_bytes"] == 12 * 8192 * 131072
    assert [row["sessions"] for row in told["table"]] == [1, 2, 4, 8, 12, 16, 32, 64]
    tokens = [row["context_tokens"] for row in told["table"]]
    assert tokens == sorted(tokens, reverse=True)
    assert (tokens[0], told["table"][0]["limited_by"]) == (131072, "context")


def test_for_people_a_plan_is_a_table(run, config):
    done = run("--model-config", config, *VLLM, "--parallel", 12)
    assert "131,072 bytes a token" in done.stdout
    assert "12 x 16,369 tokens" in done.stdout
    assert "compute buffers" in done.stdout


@needs_gguf
def test_a_gguf_file_is_for_llama_cpp_unless_said_otherwise(run, tmp_path):
    file = write_tiny_model(tmp_path / "tiny.gguf")
    done = run("--gguf", file, "--ctx", 2000, "--parallel", 3, "--json")
    assert (done.returncode, done.json["engine"], done.json["architecture"]) == (0, "llamacpp", "llama")
    assert done.json["needed"]["context_tokens"] == 2000
    assert done.json["needed"]["kv_bytes"] == 3 * 2048 * 256
    assert str(tmp_path) not in done.stdout


def test_an_architecture_that_is_not_in_the_table_is_unknown_by_name(run, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**CONFIG, "model_type": "never-heard-of"}))
    for words in ((*VLLM, "--parallel", 2), ("--engine", "mlx", *ROOM, "--ctx", 4096)):
        done = run("--model-config", file, *words, "--json")
        assert done.returncode == 3
        assert done.json["cache"]["token_bytes"] is None
        assert "never-heard-of" in done.json["cache"]["detail"]
        assert "never-heard-of" in run("--model-config", file, *words).stdout


REFUSED = {
    "no memory, no context": (("--engine", "vllm"), "--memory 24GiB"),
    "memory is no size": (("--engine", "vllm", "--memory", "lots"), "--memory: is not a size"),
    "memory is nothing": (("--engine", "vllm", "--memory", "0GiB"), "--memory: is not a size"),
    "weights are no size": ((*VLLM, "--weights", "1 stone"), "--weights: is not a size"),
    "no engine": (("--memory", "24GiB"), "--engine: not given; it can be "),
    "another engine": (("--engine", "abacus", "--memory", "24GiB"), "--engine: is none that can be planned for"),
    "a setting without a number": ((*VLLM, "--set", "block_size"), "--set block_size=32"),
    "a picture of nothing": (("--engine", "vllm", "--ctx", "10", "--plot", "x.svg"), "--plot: needs a limit"),
    "a picture in words": ((*VLLM, "--plot", "x.txt"), "--plot: is neither .svg nor .png"),
    "two questions": ((*VLLM, "--catalog", "http://127.0.0.1:9/c.json"), "ask them one by one"),
}


@pytest.mark.parametrize(("words", "remedy"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_planned_is_refused_with_the_field_and_the_remedy(run, config, words, remedy):
    done = run("--model-config", config, *words)
    assert (done.returncode, done.stdout) == (3, "")
    assert remedy.replace("--set block_size=32", "--set: is not NAME=NUMBER") in done.stderr


def test_files_that_cannot_be_read_are_refused_without_their_path(run, tmp_path, config):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    for option, name in (("--gguf", "broken.gguf"), ("--gguf", "absent"), ("--model-config", "")):
        done = run(option, tmp_path / name, "--memory", "1GiB")
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith(f"inspector: {option}: ")
        assert str(tmp_path) not in done.stderr
    assert "give one of the two" in run("--gguf", config, "--model-config", config, "--memory", "1GiB").stderr


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed: pip install matplotlib")
def test_a_frontier_is_drawn(run, config, tmp_path):
    done = run("--model-config", config, *VLLM, "--plot", tmp_path / "frontier.svg")
    assert done.returncode == 0
    assert "llama under vllm, 40 GiB for weights and KV cache" in (tmp_path / "frontier.svg").read_text()


# --- A catalog -----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def published():
    with recorded_server({"/pub/catalog.json": (200, json.dumps(CATALOG).encode())}) as server:
        yield server


def test_a_catalog_is_told_as_what_it_is_and_compared_with_the_shapes(run, published):
    done = run("--catalog", f"{published.url}/pub/catalog.json", "--session", "chat=4000+800", "--json")
    assert done.returncode == 0
    assert done.json["basis"] == "published settings, not measured concurrency"
    large, small, silent = done.json["models"]
    assert (large["maxContext"], large["sessions"]["chat"]["within_max_context"], large["unknown"]) == (8192, True, {})
    assert small["sessions"]["chat"]["within_max_context"] is False
    assert (silent["maxContext"], silent["sessions"]["chat"]["within_max_context"]) == (None, None)
    assert silent["unknown"]["maxContext"]["reason"] == "not_reported"
    assert published.asked == [("GET", "/pub/catalog.json", "")], "one GET, of that URL only, and no key"


def test_for_people_a_catalog_is_a_table_and_its_words_are_no_markup(run, published):
    done = run("--catalog", f"{published.url}/pub/catalog.json", "--session", "chat=4000+800")
    assert "published settings, not measured concurrency" in done.stdout
    assert "[red]small[/red]" in done.stdout
    assert "too long" in done.stdout


BODIES = {
    "not JSON": (200, b"<html>"),
    "no list": (200, b'{"models": 7}'),
    "not there": (404, b"{}"),
    "elsewhere": (302, b""),
    "too large": (200, b'{"models": []' + b" " * 5_000_000 + b"}"),
}


@pytest.mark.parametrize("answer", BODIES.values(), ids=BODIES)
def test_a_hostile_catalog_is_refused(run, answer):
    with recorded_server({"/c.json": answer}) as server:
        done = run("--catalog", f"{server.url}/c.json")
        assert len(server.asked) == 1
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("inspector: --catalog: ")


URLS = (
    "", "file:///etc/passwd", "ftp://h/x", "http://", "http://u:p@h/x", "http://h/x?key=1", "http://h:99999/x", "http://h/a b", "unix:/x", "http://[/x",
)  # fmt: skip


@pytest.mark.parametrize("url", URLS)
def test_a_url_that_cannot_be_asked_is_refused_and_not_repeated(run, url):
    done = run("--catalog", url)
    assert (done.returncode, done.stdout) == (3, "")
    assert "--catalog: is not a URL that can be asked" in done.stderr
    assert not any(part in done.stderr for part in ("passwd", "u:p", "key=1", "99999"))


def test_a_catalog_that_cannot_be_reached_is_refused(run):
    done = run("--catalog", "http://127.0.0.1:9/c.json")
    assert done.returncode == 3
    assert "--catalog: could not be read (unreachable)" in done.stderr
