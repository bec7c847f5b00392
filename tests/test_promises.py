"""The promises as rules over the source: what the code must not even contain. Each rule is tried on a piece of code that breaks it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted([*(ROOT / "inspector").rglob("*.py"), *(ROOT / "adapters").rglob("*.py")])
TREES = {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}

Rule = Callable[[ast.AST, Path], Iterator[ast.AST]]


def is_number(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def name_of(node: ast.AST) -> str:
    """The dotted name of an expression, or what there is of it."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


# --- Promise 1: unknown is never zero -----------------------------------------------------------------------------------------------

NO_DEFAULT = ("get", "pop", "setdefault", "getattr", "next")
"""Calls whose last argument stands in for what is not there."""


NOT_OF_A_SERVER = {
    "inspector/config/errors.py",  # Lines and columns of the operator's file.
    "inspector/config/yaml_file.py",
    "inspector/follow/lines.py",  # A time stamp without a fraction of a second.
    "inspector/testing/recordings.py",  # A recorded answer without a status is a 200.
}


def reads_no_server(path: Path) -> bool:
    """The demo makes load and the command line reads options; what they leave out is no measurement."""
    return path.parts[:2] in (("inspector", "demo"), ("inspector", "cli")) or str(path) in NOT_OF_A_SERVER


def no_number_for_what_is_missing(tree: ast.AST, path: Path) -> Iterator[ast.AST]:
    """No `x or 0`, no `.get(key, 0)`, `getattr(x, name, 0)`, `next(x, 0)`: a figure that was not measured is an Unknown."""
    if reads_no_server(path):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and is_number(node.values[-1]):
            yield node
        if isinstance(node, ast.Call) and stands_in(node):
            yield node


def stands_in(call: ast.Call) -> bool:
    """Whether a call gives a number for what is not there."""
    called = name_of(call.func).rpartition(".")[2] or getattr(call.func, "attr", "")
    if called in ("min", "max"):
        return any(keyword.arg == "default" and is_number(keyword.value) for keyword in call.keywords)
    if called == "defaultdict":
        return any(name_of(made) in ("int", "float") or (isinstance(made, ast.Lambda) and is_number(made.body)) for made in call.args)
    return called in NO_DEFAULT and len(call.args) > 1 and is_number(call.args[-1])


# --- Promise 2: read-only -----------------------------------------------------------------------------------------------------------

CLIENTS = {"httpx", "urllib.request", "urllib3", "requests", "http.client", "aiohttp", "ftplib", "smtplib", "telnetlib"}
MAY_CONNECT = {"inspector/fetch/client.py", "inspector/fetch/errors.py", "inspector/notify/client.py"}
SENDING = {"post", "put", "patch", "delete"}


def may_connect(path: Path) -> bool:
    return str(path) in MAY_CONNECT or path.parts[:2] == ("inspector", "demo")


def imports(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node, node.module
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)


def no_client_but_fetch(tree: ast.AST, path: Path) -> Iterator[ast.AST]:
    """One file opens connections to servers, one delivers alerts; the demo puts load on its own engine."""
    if may_connect(path):
        return
    for node, module in imports(tree):
        if any(module == client or module.startswith(f"{client}.") for client in CLIENTS):
            yield node


CONNECTING = {"connect", "connect_ex", "connect_tcp", "connect_unix", "open_connection", "create_connection", "urlopen", "sendto", "socket"}


def no_connection_by_hand(tree: ast.AST, path: Path) -> Iterator[ast.AST]:
    if may_connect(path):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", name_of(node.func)) in CONNECTING:
            yield node


def nothing_but_get(tree: ast.AST, path: Path) -> Iterator[ast.AST]:
    """The client towards servers names no other method, and adapters call nothing that sends."""
    if path.parts[0] != "adapters" and str(path) not in (
        "inspector/fetch/client.py",
        "inspector/asking.py",
        "inspector/collector.py",
        "inspector/discovery.py",
    ):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in ("POST", "PUT", "PATCH", "DELETE"):
            yield node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SENDING:
            yield node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("request", "stream", "build_request", "Request"):
            method = node.args[0] if node.args else None
            if not (isinstance(method, ast.Constant) and method.value == "GET"):
                yield node


# --- Promise 5: nothing is written past the journal ---------------------------------------------------------------------------------


def nothing_printed_below_the_command_line(tree: ast.AST, path: Path) -> Iterator[ast.AST]:
    """The journal masks keys; `print` and `logging` do not."""
    if path.parts[:2] in (("inspector", "cli"), ("inspector", "demo")) or path.name in ("journal.py", "__main__.py"):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name_of(node.func) in ("print", "sys.stdout.write", "sys.stderr.write", "warnings.warn"):
            yield node
    for node, module in imports(tree):
        if module == "logging" or module.startswith("logging."):
            yield node


# --- Promise 6 and the way the code is kept -----------------------------------------------------------------------------------------


def no_threads_of_our_own(tree: ast.AST, path: Path) -> Iterator[ast.AST]:
    """One task group; a blocking read goes through anyio's threads, and `ending` looks which of them are left. The demo runs another project's server."""
    if path.parts[:2] == ("inspector", "demo") or path.parts == ("inspector", "cli", "ending.py"):
        return
    for node, module in imports(tree):
        if module.partition(".")[0] in ("threading", "multiprocessing", "concurrent", "_thread"):
            yield node


def no_sleep_that_blocks(tree: ast.AST, path: Path) -> Iterator[ast.AST]:
    if path.parts[:2] == ("inspector", "demo"):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name_of(node.func) == "time.sleep":
            yield node
    for node, module in imports(tree):
        if module == "time.sleep":
            yield node


CONSTANT_ANNOTATIONS = ("Mapping", "Final", "tuple", "frozenset", "Sequence", "TypeAlias")
MAKES_A_CHANGEABLE = {"list", "dict", "set", "bytearray", "Counter", "deque", "defaultdict", "OrderedDict", "ContextVar", "WeakKeyDictionary", "Lock", "Event"}
CHANGING = {"append", "extend", "insert", "add", "update", "pop", "popitem", "setdefault", "clear", "remove", "discard", "subtract"}


def no_state_of_a_module(tree: ast.AST, path: Path) -> Iterator[ast.AST]:
    """A module holds constants: a table that is filled where it stands, in capitals or annotated as one that nobody changes, and that nobody does change."""
    for node in getattr(tree, "body", []):
        if isinstance(node, ast.Assign):
            names = [name_of(target) for target in node.targets]
            if is_changeable(node.value) and names != ["__all__"] and not (is_table(node.value) and all(name.isupper() for name in names)):
                yield node
        if isinstance(node, ast.AnnAssign) and node.value is not None and is_changeable(node.value):
            annotation = node.annotation.value if isinstance(node.annotation, ast.Subscript) else node.annotation
            if not name_of(annotation).endswith(CONSTANT_ANNOTATIONS):
                yield node


def is_table(value: ast.AST) -> bool:
    return not isinstance(value, ast.Call) and bool(getattr(value, "elts", None) or getattr(value, "keys", None) or getattr(value, "generators", None))


def is_changeable(value: ast.AST) -> bool:
    if isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
        return True
    return isinstance(value, ast.Call) and name_of(value.func).rpartition(".")[2] in MAKES_A_CHANGEABLE


def no_constant_is_changed(tree: ast.AST, path: Path) -> Iterator[ast.AST]:
    """Nobody writes into a name in capitals, of this module or another; and no `global`, no cache that outlives its owner."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield node
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del) and is_constant(node.value):
            yield node
        if isinstance(node, ast.AugAssign) and is_constant(node.target):
            yield node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING and is_constant(node.func.value):
            yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from (each for each in node.decorator_list if name_of(each.func if isinstance(each, ast.Call) else each).endswith(("cache", "lru_cache")))


def is_constant(node: ast.AST) -> bool:
    return name_of(node).rpartition(".")[2].isupper()


def no_broad_silence(tree: ast.AST, path: Path) -> Iterator[ast.AST]:
    """No `except: pass`: an error becomes data or goes up."""
    for node in ast.walk(tree):
        broad = isinstance(node, ast.ExceptHandler) and (node.type is None or name_of(node.type) in ("Exception", "BaseException"))
        if broad and all(isinstance(statement, ast.Pass) for statement in node.body):
            yield node
        if isinstance(node, ast.Call) and name_of(node.func).endswith("suppress") and any(name_of(a) in ("Exception", "BaseException") for a in node.args):
            yield node


# --- The rules, tried ---------------------------------------------------------------------------------------------------------------

BREACHES: list[tuple[Rule, str, str]] = [
    (no_number_for_what_is_missing, "adapters/inspector_x/payloads.py", "slots = body.get('slots') or 0"),
    (no_number_for_what_is_missing, "adapters/inspector_x/payloads.py", "slots = a or b or 0.0"),
    (no_number_for_what_is_missing, "inspector/model.py", "slots = body.get('slots', 0)"),
    (no_number_for_what_is_missing, "inspector/model.py", "slots = body.pop('slots', 0)"),
    (no_number_for_what_is_missing, "inspector/model.py", "slots = getattr(pool, 'slots', 0)"),
    (no_number_for_what_is_missing, "inspector/model.py", "slots = next((s for s in x), 0)"),
    (no_number_for_what_is_missing, "inspector/model.py", "slots = max(x, default=0)"),
    (no_number_for_what_is_missing, "inspector/model.py", "x = f()['slots'].get('busy', 0)"),
    (no_number_for_what_is_missing, "inspector/model.py", "x = collections.defaultdict(int)"),
    (no_number_for_what_is_missing, "inspector/model.py", "x = defaultdict(lambda: 0)"),
    (no_client_but_fetch, "adapters/inspector_x/__init__.py", "import httpx"),
    (no_client_but_fetch, "inspector/board.py", "from urllib.request import urlopen"),
    (no_client_but_fetch, "inspector/board.py", "from urllib import request"),
    (no_client_but_fetch, "inspector/board.py", "import requests"),
    (no_connection_by_hand, "inspector/board.py", "anyio.connect_tcp('a', 1)"),
    (no_connection_by_hand, "inspector/board.py", "socket.socket().bind(x)"),
    (no_connection_by_hand, "inspector/board.py", "urlopen('http://a')"),
    (no_connection_by_hand, "inspector/board.py", "self.open().connect(x)"),
    (nothing_but_get, "inspector/fetch/client.py", "client.post(url)"),
    (nothing_but_get, "inspector/fetch/client.py", "client.request('POST', url)"),
    (nothing_but_get, "inspector/fetch/client.py", "client.stream(method, url)"),
    (nothing_but_get, "inspector/fetch/client.py", "httpx.Request('POST', url)"),
    (nothing_but_get, "inspector/fetch/client.py", "httpx.Request(method, url)"),
    (nothing_but_get, "adapters/inspector_x/__init__.py", "ask.delete(route)"),
    (nothing_printed_below_the_command_line, "inspector/fetch/client.py", "print(key)"),
    (nothing_printed_below_the_command_line, "adapters/inspector_x/__init__.py", "import logging"),
    (no_threads_of_our_own, "inspector/board.py", "import threading"),
    (no_threads_of_our_own, "inspector/board.py", "from concurrent.futures import ThreadPoolExecutor"),
    (no_sleep_that_blocks, "inspector/board.py", "import time\ntime.sleep(1)"),
    (no_sleep_that_blocks, "inspector/board.py", "from time import sleep"),
    (no_state_of_a_module, "inspector/board.py", "SEEN = {}"),
    (no_state_of_a_module, "inspector/board.py", "seen: dict[str, int] = {}"),
    (no_state_of_a_module, "inspector/board.py", "seen = [1]"),
    (no_state_of_a_module, "inspector/board.py", "TABLE: dict[str, int] = {'a': 1}"),
    (no_state_of_a_module, "inspector/board.py", "COUNTS = collections.Counter()"),
    (no_constant_is_changed, "inspector/board.py", "def f():\n    global x"),
    (no_constant_is_changed, "inspector/board.py", "@functools.cache\ndef f(body): ..."),
    (no_constant_is_changed, "inspector/board.py", "@lru_cache(maxsize=None)\ndef f(body): ..."),
    (no_constant_is_changed, "inspector/board.py", "TABLE['a'] = 1"),
    (no_constant_is_changed, "inspector/board.py", "del other.TABLE['a']"),
    (no_constant_is_changed, "inspector/board.py", "TABLE.update(a=1)"),
    (no_constant_is_changed, "inspector/board.py", "TABLE |= {'a': 1}"),
    (no_broad_silence, "inspector/board.py", "try:\n    f()\nexcept Exception:\n    pass"),
    (no_broad_silence, "inspector/board.py", "try:\n    f()\nexcept:\n    pass"),
    (no_broad_silence, "inspector/board.py", "with contextlib.suppress(Exception):\n    f()"),
]

ALLOWED: list[tuple[Rule, str, str]] = [
    (no_number_for_what_is_missing, "inspector/model.py", "name = x.get('name', '') or 'unnamed'"),
    (no_number_for_what_is_missing, "inspector/model.py", "slots = body.get('slots')"),
    (no_client_but_fetch, "inspector/fetch/client.py", "import httpx"),
    (no_client_but_fetch, "inspector/asking.py", "from urllib.parse import urlencode"),
    (nothing_but_get, "inspector/fetch/client.py", "client.stream('GET', url)"),
    (nothing_but_get, "inspector/fetch/client.py", "httpx.Request('GET', url)"),
    (no_number_for_what_is_missing, "inspector/model.py", "x = defaultdict(list)"),
    (no_number_for_what_is_missing, "inspector/cli/main.py", "x = seconds or 0"),
    (no_state_of_a_module, "inspector/board.py", "TABLE = {'a': 1}"),
    (no_constant_is_changed, "inspector/board.py", "x = TABLE['a']"),
    (no_constant_is_changed, "inspector/board.py", "table.update(a=1)"),
    (no_state_of_a_module, "inspector/board.py", "TABLE: Mapping[str, int] = {'a': 1}"),
    (no_state_of_a_module, "inspector/board.py", "NAMES = ('a', 'b')"),
    (no_state_of_a_module, "inspector/board.py", "__all__ = ['a']"),
]

RULES = list(dict.fromkeys(rule for rule, _, _ in BREACHES))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_source_keeps_the_rule(rule):
    found = [f"{path}:{node.lineno}: {ast.unparse(node)[:100]}" for path, tree in TREES.items() for node in rule(tree, path)]
    assert found == [], rule.__doc__


@pytest.mark.parametrize(("rule", "path", "code"), BREACHES, ids=[code for _, _, code in BREACHES])
def test_a_rule_finds_its_breach(rule, path, code):
    assert list(rule(ast.parse(code), Path(path)))


@pytest.mark.parametrize(("rule", "path", "code"), ALLOWED, ids=[code for _, _, code in ALLOWED])
def test_a_rule_lets_good_code_be(rule, path, code):
    assert not list(rule(ast.parse(code), Path(path)))


def test_there_is_source_to_look_at():
    """Otherwise every rule would hold."""
    assert len(TREES) > 20
    assert any(path.parts[0] == "adapters" for path in TREES)


LOOK_AT_IMPORTS = """
import importlib, pkgutil, sys
import inspector
names = ["inspector"] + [m.name for m in pkgutil.walk_packages(inspector.__path__, "inspector.") if not m.name.endswith("__main__")]
happened = []
doing = "socket.connect socket.bind socket.getaddrinfo subprocess.Popen os.system os.mkdir os.remove os.rename _thread.start_new_thread".split()
def look(event, args):
    writes = event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+") and "__pycache__" not in str(args[0])
    if event in doing or writes:
        happened.append((event, repr(args)[:80]))
sys.addaudithook(look)
for name in names:
    importlib.import_module(name)
print(len(names), happened)
"""


def test_importing_the_inspector_does_nothing():
    """No connection, no process, no thread, no file written: what happens, happens when it is called."""
    run = subprocess.run([sys.executable, "-c", LOOK_AT_IMPORTS], capture_output=True, text=True, check=False, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    number, _, happened = run.stdout.strip().partition(" ")
    assert int(number) > 20
    assert happened == "[]"
