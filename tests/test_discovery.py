"""Finding servers without touching strangers."""

import socket
import subprocess
import sys
import textwrap
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from inspector import discovery
from inspector.contract import FlagTable, Reply, Route
from inspector.discovery import RECOGNITION_ROUTES, Found, find_servers, recognize
from inspector.local.process import Listener, Process
from inspector.reading import Reason, Unknown

pytestmark = pytest.mark.anyio

# --- The processes of this machine --------------------------------------------------------------------------------------------------


class Engine:
    """An adapter as far as discovery looks at it."""

    def __init__(self, *commands: str) -> None:
        self.flags = FlagTable(frozenset(commands), ())


LLAMA, VLLM = Engine("llama-server"), Engine("vllm serve")
ADAPTERS: dict[str, Any] = {"llamacpp": LLAMA, "vllm": VLLM, "blind": object()}


class Machine:
    """Processes and their listening sockets; every process descends from 1 unless told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.listeners: list[Listener] = []
        self.argvs: dict[int, str] = {}
        self.parents: dict[int, int] = {}
        monkeypatch.setattr(discovery, "tcp_listeners", lambda: tuple(self.listeners))
        monkeypatch.setattr(discovery, "process_of", self.process)
        monkeypatch.setattr(discovery, "parent_of", lambda pid: self.parents.get(pid, 1))

    def process(self, pid: int) -> Process | Unknown:
        if pid not in self.argvs:
            return Unknown(Reason.UNAUTHORIZED, "it may not be looked at")
        return Process(pid, 0.0, tuple(self.argvs[pid].split()), {})

    def add(self, pid: int, argv: str, *addresses: tuple[str, int], parent: int = 1) -> None:
        self.argvs[pid], self.parents[pid] = argv, parent
        self.listeners += [Listener(ip_address(host), port, pid) for host, port in addresses]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_known_commands_are_found_and_strangers_are_not(machine):
    machine.add(10, "/opt/llama-server -c 1", ("127.0.0.1", 8080))
    machine.add(11, "python /venv/bin/vllm serve m --port 8000", ("0.0.0.0", 8000))
    machine.add(12, "nginx", ("0.0.0.0", 80))
    machine.add(13, "vim llama-server")
    machine.listeners.append(Listener(ip_address("127.0.0.1"), 9000, None))
    machine.listeners.append(Listener(ip_address("127.0.0.1"), 9001, 99))
    assert find_servers(ADAPTERS) == (Found("vllm", "http://127.0.0.1:8000", 11), Found("llamacpp", "http://127.0.0.1:8080", 10))


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080"),
        ("0.0.0.0", "http://127.0.0.1:8080"),
        ("::", "http://[::1]:8080"),
        ("::1", "http://[::1]:8080"),
        ("192.0.2.7", "http://192.0.2.7:8080"),
        ("2001:db8::7", "http://[2001:db8::7]:8080"),
    ],
)
def test_the_url_of_a_listen_address(machine, address, url):
    machine.add(10, "llama-server", (address, 8080))
    assert [found.url for found in find_servers(ADAPTERS)] == [url]


def test_a_server_with_tls(machine):
    machine.add(10, "llama-server --ssl-key-file k --ssl-cert-file c", ("127.0.0.1", 8080))
    assert find_servers(ADAPTERS)[0].url == "https://127.0.0.1:8080"


def test_the_models_of_a_router_are_left_out(machine):
    machine.add(20, "llama-server --models-dir d --port 8080", ("127.0.0.1", 8080))
    machine.add(21, "llama-server -m a --port 41217", ("127.0.0.1", 41217), parent=20)
    machine.add(22, "llama-server -m b --port 41218", ("127.0.0.1", 41218), parent=20)
    machine.add(30, "llama-server -m c --port 8090", ("127.0.0.1", 8090), parent=5)
    assert [found.pid for found in find_servers(ADAPTERS)] == [20, 30]


def test_a_server_behind_a_wrapper_that_does_not_listen_is_found(machine):
    machine.add(40, "uv run vllm serve m")
    machine.add(41, "python /venv/bin/vllm serve m", ("127.0.0.1", 8000), parent=40)
    assert [found.pid for found in find_servers(ADAPTERS)] == [41]


def test_a_server_that_another_engine_started_is_found(machine):
    machine.add(50, "vllm serve m", ("127.0.0.1", 8000))
    machine.add(51, "llama-server -m a", ("127.0.0.1", 8080), parent=50)
    assert [found.pid for found in find_servers(ADAPTERS)] == [50, 51]


@pytest.mark.parametrize(
    ("argv", "port"),
    [
        ("vllm serve m --port 8000", 8000),
        ("vllm serve m --port=9000", 9000),
        ("vllm serve m --port 1 --port 9000", 9000),
        ("vllm serve m", 8000),
        ("vllm serve m --port x", 8000),
    ],
)
def test_of_several_ports_the_one_that_serves_http(machine, argv, port):
    machine.add(10, argv, ("127.0.0.1", 41000), ("0.0.0.0", 9000), ("0.0.0.0", 8000), ("::", 8000))
    assert [found.url for found in find_servers(ADAPTERS)] == [f"http://127.0.0.1:{port}"]


def test_workers_that_share_a_port_are_one_server(machine):
    machine.add(10, "llama-server", ("127.0.0.1", 8080))
    machine.add(11, "llama-server", ("127.0.0.1", 8080))
    assert [found.pid for found in find_servers(ADAPTERS)] == [10]


def test_a_system_that_does_not_show_its_sockets_has_no_servers_to_find(monkeypatch):
    monkeypatch.setattr(discovery, "tcp_listeners", lambda: Unknown(Reason.UNAUTHORIZED, "not shown"))
    assert find_servers(ADAPTERS) == ()


def test_what_a_launch_line_holds_is_in_no_result(machine):
    machine.add(10, "llama-server -m /srv/SECRET.gguf --api-key SECRET", ("127.0.0.1", 8080))
    assert "SECRET" not in repr(find_servers(ADAPTERS))
    assert "SECRET" not in repr(discovery._server(10, ADAPTERS))


def test_a_real_process_is_found_and_gets_no_connection(tmp_path: Path):
    script = tmp_path / "llama-server"
    script.write_text(
        textwrap.dedent("""
        import select, socket, sys
        server = socket.create_server(("127.0.0.1", 0))
        print(server.getsockname()[1], flush=True)
        sys.stdin.read()
        touched = bool(select.select([server], [], [], 0)[0])
        print("touched" if touched else "untouched", flush=True)
        """)
    )
    with subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        port = int(child.stdout.readline())
        found = find_servers(ADAPTERS)
        child.stdin.close()
        verdict = child.stdout.readline().strip()
    assert Found("llamacpp", f"http://127.0.0.1:{port}", child.pid) in found
    assert verdict == "untouched"


def test_looking_connects_to_nothing(monkeypatch):
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    find_servers(ADAPTERS)


# --- Recognition of an address ------------------------------------------------------------------------------------------------------


class Knows:
    """An adapter that says yes once a path was answered by its engine."""

    def __init__(self, path: str, body: bytes) -> None:
        self.path, self.body = path, body
        self.offered: list[list[str]] = []

    def recognize(self, replies: Any) -> bool:
        self.offered.append(list(replies))
        return self.path in replies and replies[self.path].body == self.body


class Server:
    def __init__(self, answers: dict[str, tuple[int, bytes] | Unknown]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def get(self, route: Route) -> Reply | Unknown:
        query = "&".join(f"{name}={value}" for name, value in route.required)
        self.asked.append(f"{route.path}?{query}" if query else route.path)
        answer = self.answers.get(route.path, (404, b""))
        return answer if isinstance(answer, Unknown) else Reply(route, answer[0], {}, answer[1], 0.0)


TIMEOUT = Unknown(Reason.TIMEOUT, "no answer in time")
ALL = ["/health", "/props?autoload=false", "/version", "/v1/models"]


def test_only_harmless_routes_in_this_order():
    assert [(route.path, route.required, route.allowed) for route in RECOGNITION_ROUTES] == [
        ("/health", (), frozenset()),
        ("/props", (("autoload", "false"),), frozenset()),
        ("/version", (), frozenset()),
        ("/v1/models", (), frozenset()),
    ]


@pytest.mark.parametrize(("path", "asked"), [("/health", 1), ("/props", 2), ("/version", 3), ("/v1/models", 4)])
async def test_asking_stops_at_the_first_yes(path, asked):
    server, engine, other = Server({path: (200, b"mine")}), Knows(path, b"mine"), Knows("/health", b"other")
    assert await recognize(server.get, {"other": other, "engine": engine, "blind": object()}) is engine
    assert server.asked == ALL[:asked]
    assert engine.offered == [["/health", "/props", "/version", "/v1/models"][: n + 1] for n in range(asked)]


async def test_a_server_that_does_not_answer_health_is_asked_nothing_else():
    server = Server({"/health": TIMEOUT})
    assert await recognize(server.get, {"engine": Knows("/props", b"mine")}) is TIMEOUT
    assert server.asked == ["/health"]


async def test_a_later_silence_is_passed_over():
    server, engine = Server({"/props": TIMEOUT, "/version": (200, b"mine")}), Knows("/version", b"mine")
    assert await recognize(server.get, {"engine": engine}) is engine


async def test_a_server_that_nobody_knows_is_invalid_with_the_remedy():
    server = Server({"/health": (200, b"")})
    unknown = await recognize(server.get, {"engine": Knows("/health", b"mine")})
    assert unknown.reason is Reason.INVALID
    assert "ENGINE=URL" in unknown.detail
    assert server.asked == ALL


async def test_a_server_that_wants_a_key_is_unauthorized():
    server = Server({"/health": (200, b"ok"), "/props": (401, b""), "/v1/models": (401, b"")})
    assert (await recognize(server.get, {"engine": Knows("/props", b"mine")})).reason is Reason.UNAUTHORIZED


async def test_two_adapters_that_both_say_yes_are_named():
    server = Server({"/health": (200, b"mine")})
    unknown = await recognize(server.get, {"one": Knows("/health", b"mine"), "two": Knows("/health", b"mine")})
    assert isinstance(unknown, Unknown)
    assert "one and two" in unknown.detail


async def test_an_adapter_that_raises_or_answers_nonsense_recognizes_nothing():
    class Raises:
        def recognize(self, replies: Any) -> bool:
            raise RuntimeError("bug")

    class Nonsense:
        def recognize(self, replies: Any) -> Any:
            return "yes"

    engine = Knows("/props", b"mine")
    server = Server({"/props": (200, b"mine")})
    assert await recognize(server.get, {"raises": Raises(), "nonsense": Nonsense(), "engine": engine}) is engine


async def test_without_adapters_the_server_is_not_known():
    assert (await recognize(Server({}).get, {})).reason is Reason.INVALID
