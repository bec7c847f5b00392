"""The live screen: what it shows of a board, in windows of several sizes, and a real session of it in a terminal."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path

import psutil
import pytest
from rich.cells import cell_len
from rich.console import Console

from board_fixtures import NOW, board, known, pool, snapshot
from inspector.alerts.status import AlertState, AlertStatus
from inspector.board import Board, TargetInfo
from inspector.budget import Shape
from inspector.cli.bars import DRAWN, draw
from inspector.cli.screen import Screen
from inspector.config import Config, Target
from inspector.judge import Rules, assess
from inspector.layout import Shared, Split
from inspector.model import Memory, Slot, State
from inspector.reading import NOT_OFFERED, Reason, Unknown
from inspector.views import kv_bar
from recorded_server import BODIES, BUSY, DISABLED, recorded_server
from tmux import terminal

watch_module = import_module("inspector.cli.watch")
interval_of, paced = watch_module._interval, watch_module._paced

INSPECTOR = [sys.executable, "-m", "inspector"]

AMBIGUOUS = Unknown(Reason.AMBIGUOUS, "state facts: {kv_unified: …}", (1024, 4096))
ASLEEP = Unknown(Reason.SLEEPING, "wait until someone wakes it")
DISABLED_SLOTS = Unknown(Reason.ENDPOINT_DISABLED, "start the server with --slots")
LIVE = ("slots_busy", "requests_waiting", "kv_used_tokens", "kv_reclaimable_tokens", "generation_tokens_total")


def console(width=80, height=24, encoding="utf-8"):
    with Path(os.devnull).open("w", encoding=encoding) as file:
        return Console(width=width, height=height, file=file, force_terminal=True, highlight=False, markup=False, emoji=False)


def rows(of_board, width=80, height=24, *, first=0, encoding="utf-8", now=NOW, **more):
    screen = Screen(of_board.entries, first=first, clock=lambda: now, monotonic=lambda: now, **more)
    return [row.plain for row in screen.rows(console(width, height, encoding), width, height)]


def seen(of_board, width=80, height=60, **more):
    """The screen with its lines put together again, however they were wrapped."""
    return " ".join(" ".join(rows(of_board, width, height, **more)).split())


def line(of_board, label, **more):
    """The one line that has this label, with what it was wrapped into."""
    shown = rows(of_board, height=60, **more)
    (start,) = (number for number, row in enumerate(shown) if row.startswith(f"  {label} "))
    rest = [shown[start][12:]]
    for row in shown[start + 1 :]:
        if not row.startswith(" " * 12):
            break
        rest.append(row[12:])
    return " ".join(" ".join(rest).split())


def unknown_live(why, **fields):
    return pool(**dict.fromkeys(LIVE, why), slots_detail=(), **fields)


def one(**fields):
    return board(snapshot(pools=(pool(**{"slots_detail": (), "requests_waiting": known(0), **fields}),), drift=(), faults=()))


# --- Each state in words ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "level", "words"),
    [
        (State.READY, "OK", "ready"),
        (State.LOADING, "UNKNOWN", "loading"),
        (State.SLEEPING, "OK", "sleeping"),
        (State.STALLED, "CRITICAL", "stalled"),
        (State.UNAUTHORIZED, "UNKNOWN", "unauthorized"),
        (State.NOT_RECOGNIZED, "UNKNOWN", "not recognized"),
        (State.UNREACHABLE, "CRITICAL", "unreachable"),
    ],
)
def test_a_target_has_its_level_and_its_state_in_words(state, level, words):
    shown = seen(board(snapshot(state=state, state_detail="because of this", drift=(), faults=())))
    assert f"chat {level} {words}" in shown
    assert "because of this" in shown


def test_a_target_that_was_never_polled_says_so():
    assert "chat UNKNOWN not polled yet" in seen(board(unpolled=["chat"]))


def test_an_old_snapshot_is_stale_with_its_age_and_without_its_live_numbers():
    told = board(snapshot(at=NOW - 60), now=NOW)
    shown = seen(told)
    assert "chat UNKNOWN stale, 1 min ago" in shown
    assert "unknown (stale)" in shown
    assert "903" not in shown


def test_the_title_counts_the_targets_by_level_and_the_alerts_that_fire():
    told = board(snapshot("a"), snapshot("b"), snapshot("c", State.UNREACHABLE), unpolled=["d"])
    told.put_alerts("c", (AlertStatus("InspectorTargetDown", "critical", "", "reachability", "", AlertState.FIRING, NOW - 240, "it is gone"),))
    assert rows(told)[0].startswith("inspector watch  4 targets: 1 critical, 1 unknown, 2 ok; 1 alert firing")


def test_the_worst_target_is_the_first():
    told = board(snapshot("fine"), snapshot("full", pools=(pool(kv_used_tokens=known(4000)),)), snapshot("gone", State.UNREACHABLE), unpolled=["new"])
    heads = [row.split()[0] for row in rows(told, height=80)[1:-1] if row and row[0] != " "]
    assert heads == ["full", "gone", "new", "fine"] or heads == ["gone", "full", "new", "fine"]


# --- Bars and numbers -------------------------------------------------------------------------------------------------------------------


def bar_of(told):
    return line(told, "KV cache").split()[0]


def test_the_kv_bar_is_in_proportion_and_told_in_numbers():
    told = one(kv_used_tokens=known(1024), kv_reclaimable_tokens=known(512))
    bar = bar_of(told)
    cells = len(bar)
    assert [bar.count(sign) for sign in "█░·"] == pytest.approx([cells / 4, cells / 8, cells * 5 / 8], abs=0.99)
    assert bar == "█" * bar.count("█") + "░" * bar.count("░") + "·" * bar.count("·")
    assert "1,024 used, 512 reclaimable, 2,560 free" in line(told, "KV cache")


@pytest.mark.parametrize("cells", [4, 7, 24])
@pytest.mark.parametrize(("used", "kept"), [(0, 0), (1, 0), (0, 1), (1, 1), (4095, 1), (4095, 0), (4096, 0), (2048, 2047), (1000, 3)])
def test_a_bar_fills_its_cells_and_hides_no_part_that_is_there(used, kept, cells):
    snap = snapshot(pools=(pool(kv_used_tokens=known(used), kv_reclaimable_tokens=known(kept)),))
    bar = draw(kv_bar(snap.pools[0], assess(snap).pools["0"][0]), DRAWN, cells).plain
    amounts = {"█": used, "░": kept, "·": 4096 - used - kept}
    assert len(bar) == cells
    for sign, amount in amounts.items():
        assert (bar.count(sign) > 0) == (amount > 0)


def test_what_was_measured_as_zero_is_a_zero_and_an_empty_bar():
    told = one(kv_used_tokens=known(0), slots_busy=known(0))
    assert set(bar_of(told)) == {"·"}
    assert "0 used, 0 reclaimable, 4,096 free" in line(told, "KV cache")
    assert "0 of 4 busy" in line(told, "slots")


@pytest.mark.parametrize(
    "fields",
    [
        {"kv_used_tokens": DISABLED_SLOTS, "kv_reclaimable_tokens": DISABLED_SLOTS},
        {"kv_capacity_tokens": DISABLED_SLOTS, "layouts": ()},
        {
            "kv_used_tokens": NOT_OFFERED,
            "kv_reclaimable_tokens": NOT_OFFERED,
            "kv_capacity_tokens": NOT_OFFERED,
            "kv_usage_ratio": DISABLED_SLOTS,
            "layouts": (),
        },
    ],
)
def test_where_the_kv_cache_is_unknown_there_is_no_bar_but_the_reason(fields):
    told = line(one(**fields), "KV cache")
    assert "unknown (endpoint_disabled)" in told
    assert not set(told) & set("█▓░·")


def test_what_may_be_free_or_not_is_a_part_of_its_own():
    told = one(kv_capacity_tokens=AMBIGUOUS, layouts=(Shared(4, 4096, 1024), Shared(4, 1024, 1024)))
    bar = bar_of(told)
    assert bar.count("█") == pytest.approx(len(bar) * 903 / 4096, abs=0.5)
    assert bar.count("·") == pytest.approx(len(bar) * 121 / 4096, abs=1)
    assert bar.count("?") == pytest.approx(len(bar) * 3072 / 4096, abs=1)


def test_a_slot_has_a_sign_of_its_own():
    slots = tuple(Slot(n, busy, known(1024), known(7), known(0)) for n, busy in enumerate([known(True), known(False), DISABLED_SLOTS, known(True)]))
    assert line(one(slots=known(4), slots_busy=known(2), slots_detail=slots), "slots").startswith("■□?■ 2 of 4 busy")


def test_slots_that_are_busy_without_it_being_known_which_are_counted():
    assert line(one(slots_busy=known(3)), "slots").startswith("■■■□ 3 of 4 busy, 0 waiting")


def test_slots_whose_work_is_unknown_are_neither_busy_nor_idle():
    told = line(one(slots_busy=DISABLED_SLOTS, requests_waiting=DISABLED_SLOTS), "slots")
    assert "4 slots, busy and waiting unknown (endpoint_disabled)" in told
    assert not set(told) & set("■□")


def test_many_slots_are_numbers_only():
    assert line(one(slots=known(256), slots_busy=known(37)), "slots") == "37 of 256 busy, 0 waiting"


def test_requests_without_slots_are_told_as_requests():
    gone = dict.fromkeys(("slots", "slots_busy", "requests_waiting"), NOT_OFFERED)
    assert line(one(**gone, requests_in_flight=known(2)), "requests") == "2 running or waiting"


def test_headroom_is_told_in_shares_and_an_unknown_one_is_not_called_free():
    assert line(one(), "headroom") == "kv 78% free, slots 75% free, context unknown (not_reported)"
    assert re.fullmatch(r"kv(, | and )slots( and context)? unknown \(\w+\)", line(one(kv_used_tokens=DISABLED_SLOTS, slots_busy=DISABLED_SLOTS), "headroom"))


@pytest.mark.parametrize(("layouts", "told"), [((Shared(4, 4096, 1024),), "3 more fit now"), ((), "how many more fit is unknown (")])
def test_sessions_that_still_fit_are_told_or_why_not(layouts, told):
    rules = Rules(shapes={"chat": Shape(900, 101)}, sessions={})
    made = Board(lambda snap: assess(snap, rules), clock=lambda: NOW)
    made.add(TargetInfo("chat", "fake", "127.0.0.1:8080", stale_after=15.0))
    busy = known(1)
    slots = (Slot(0, known(True), known(1024), known(903), known(0), known(121)), *(Slot(n, known(False), known(1024)) for n in (1, 2, 3)))
    made.put(snapshot(pools=(pool(slots_busy=busy, layouts=layouts, slots_detail=slots, requests_waiting=known(0)),)))
    shown = line(made, "sessions")
    assert shown.startswith(f"chat: {told}")
    assert ("an empty server holds 4, limited by slots" in shown) == bool(layouts)


def test_memory_has_a_bar_and_its_sizes():
    memory = Memory(known(8 << 30), known(4 << 30), known(1 << 30))
    told = board(snapshot(memory=memory))
    bar = line(told, "memory").split()[0]
    assert bar.count("█") == pytest.approx(len(bar) / 4, abs=0.5)
    assert "1.00 GiB used, 3.00 GiB free" in line(told, "memory")


def test_unknown_memory_is_told_as_unknown():
    elsewhere = Unknown(Reason.NO_SOURCE, "run the inspector beside the server")
    told = board(snapshot(memory=Memory(elsewhere, elsewhere, elsewhere), drift=(), faults=()))
    assert line(told, "memory") == "used and ceiling unknown (no_source)"
    assert "run the inspector beside the server" in seen(told)


# --- Unknowns, alerts, drift ------------------------------------------------------------------------------------------------------------


def test_every_unknown_has_its_reason_and_its_remedy_and_no_zero_stands_for_it():
    told = board(snapshot("asleep", State.SLEEPING, pools=(unknown_live(ASLEEP, kv_capacity_tokens=AMBIGUOUS),), drift=(), faults=()))
    shown = seen(told)
    assert "(sleeping): wait until someone wakes it" in shown
    assert "kv_capacity_tokens (ambiguous), 1,024 to 4,096" in shown
    assert "state facts: {kv_unified: …}" in shown
    assert " 0 " not in shown
    assert "0%" not in shown
    assert not set("█▓░■□") & set(" ".join(rows(told, height=60)[:-1]))


def test_fields_with_one_remedy_stand_together_and_the_remedy_is_told_once():
    told = board(snapshot(pools=(unknown_live(DISABLED_SLOTS),)))
    assert seen(told).count("start the server with --slots") == 1


def test_alerts_that_fire_or_wait_are_told_and_those_that_are_ok_are_not():
    told = board(snapshot())
    told.put_alerts(
        "chat",
        (
            AlertStatus("InspectorMemoryHeadroomLow", "warning", "", "memory", "", AlertState.OK, NOW - 9, "memory is fine"),
            AlertStatus("InspectorSlotsExhausted", "warning", "0", "slots", "", AlertState.PENDING, NOW - 30, "all slots are busy"),
            AlertStatus("InspectorKvHeadroomLow", "critical", "0", "kv", "", AlertState.FIRING, NOW - 240, "kv headroom 3%", held=True),
        ),
    )
    shown = seen(told)
    assert "chat CRITICAL ready" in shown
    assert shown.index("InspectorKvHeadroomLow (critical, pool 0, kv) firing for 4 min, held") < shown.index(
        "InspectorSlotsExhausted (warning, pool 0, slots) pending"
    )
    assert shown.count("kv headroom 3%") == 1
    assert "InspectorMemoryHeadroomLow" not in shown


def test_an_alert_says_once_what_a_finding_says_too():
    told = board(snapshot(pools=(pool(kv_used_tokens=known(4000)),)))
    (detail,) = (finding.detail for finding in told.entry("chat").assessment.findings if finding.resource == "kv")
    assert f"critical {detail}" in seen(told)
    told.put_alerts("chat", (AlertStatus("InspectorKvHeadroomLow", "critical", "0", "kv", "", AlertState.FIRING, NOW - 240, detail),))
    assert seen(told).count(detail) == 1


def test_only_what_is_marked_is_coloured():
    """A label's style must not run on into the text beside it."""
    screen = Screen(board(snapshot(state=State.UNREACHABLE, state_detail="plain words")).entries, clock=lambda: NOW, monotonic=lambda: NOW)
    (row,) = (row for row in screen.rows(console(), 80, 24) if "plain words" in row.plain)
    assert not [span for span in row.spans if span.end > 12 and span.style]
    assert not row.style


def test_drift_and_faults_are_told():
    shown = seen(board(snapshot()))
    assert "drift slots: http:/slots and launch:unit disagree" in shown
    assert "fault /metrics: answers 501" in shown


# --- Any text, any window ---------------------------------------------------------------------------------------------------------------

HOSTILE = [
    "[bold red]tiny[/bold red]",
    "[/]",
    ":smile: tiny",
    "tiny\x1b[2J\x1b[H",
    "tiny\r\n\tgone",
    "tiny\u202egpj.exe",
    "tiny\u200b\u2028\x85\x9b31m",
    "模型" * 60,
    "e\u0301" * 90,
    "x" * 200,
    "\ud800tiny",
]


def crowd():
    """Targets of every kind, with a name of every kind."""
    states = list(State)
    many = [
        snapshot(
            f"t{n}" + "-long" * n, states[n % len(states)], pools=(pool(model=known(model)), pool(id=f"b{model}", model=AMBIGUOUS, layouts=(Split(4, 1024),)))
        )
        for n, model in enumerate(HOSTILE)
    ]
    many.append(snapshot("hostile", State.UNREACHABLE, state_detail="".join(HOSTILE)))
    return board(*many, unpolled=["never"])


@pytest.mark.parametrize("model", HOSTILE)
def test_what_a_server_says_is_text_and_nothing_else(model):
    told = board(snapshot(pools=(pool(model=known(model), slots_detail=()),), state_detail=f"it says {model}"))
    shown = "".join(rows(told, height=60))
    assert shown.isprintable()
    printable = "".join(character for character in model if character.isprintable() and character != " ")
    assert shown.replace(" ", "").replace("\N{REPLACEMENT CHARACTER}", "").count(printable) == 2


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 24), (40, 12), (200, 70), (79, 500), (20, 10), (13, 5), (5, 3), (2, 2), (1, 1)])
@pytest.mark.parametrize("first", [0, 1, 99])
def test_no_line_is_wider_than_the_window_and_none_too_many(width, height, first):
    shown = rows(crowd(), width, height, first=first)
    assert len(shown) == height
    assert all(cell_len(row) <= width for row in shown)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_those_signs_gets_plain_ones(encoding):
    told = one(kv_used_tokens=known(1024), kv_reclaimable_tokens=known(512), slots_busy=known(3))
    shown = rows(told, height=60, encoding=encoding)
    bar = next(row for row in shown if "KV cache" in row)[12:].split()[0]
    assert set(bar) == set("#=.")
    assert any("###- 3 of 4 busy" in row for row in shown)


def test_with_more_targets_than_rows_the_worst_are_shown_and_the_others_counted():
    told = board(*(snapshot(f"fine{n}") for n in range(40)), snapshot("gone", State.UNREACHABLE, state_detail="it does not answer"))
    shown = rows(told)
    assert shown[1].startswith("gone  CRITICAL")
    assert "it does not answer" in shown[2]
    told_of = sum(row.startswith("fine") for row in shown)
    assert f"… and {40 - told_of} more: {40 - told_of} ok" in "\n".join(shown)
    assert 5 < told_of < 40


def test_a_target_that_is_too_long_for_the_window_says_how_much_is_missing():
    pools = tuple(pool(id=f"p{n}") for n in range(9))
    shown = rows(board(snapshot(pools=pools)))
    assert "more lines; for all of them: inspector check chat" in shown[-2]


def test_scrolling_reaches_the_last_target_and_no_further():
    told = board(*(snapshot(f"t{n:02}") for n in range(30)))
    screen = Screen(told.entries, clock=lambda: NOW, monotonic=lambda: NOW)
    for _ in range(99):
        screen.scroll(1)
        shown = [row.plain for row in screen.rows(console(), 80, 24)]
    assert any(row.startswith("t29  OK  ready, now") for row in shown)
    assert "above" in shown[-1]
    screen.scroll(-99)
    assert screen.rows(console(), 80, 24)[1].plain.startswith("t00")


def test_a_window_that_grew_shows_again_what_was_scrolled_away():
    told = board(*(snapshot(f"t{n}") for n in range(3)))
    assert not any(row.startswith("t0") for row in rows(told, height=24, first=2))
    assert any(row.startswith("t0") for row in rows(told, height=90, first=2))


def test_without_a_target_it_says_what_it_waits_for():
    assert "none found yet" in seen(board(), empty="none found yet")


# --- The command ------------------------------------------------------------------------------------------------------------------------


def run(*words, **environment):
    return subprocess.run(
        [*INSPECTOR, "watch", *words], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}, stdin=subprocess.DEVNULL
    )


def test_without_a_terminal_it_refuses_and_names_the_way_out():
    done = run("http://127.0.0.1:9")
    assert done.returncode == 3
    assert "needs a terminal" in done.stderr
    assert "inspector check" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("every", "why"), [("soon", "is not a duration"), ("-1s", "is not a duration"), ("0.2s", "at least 1s"), ("300h", "at most 24h"), ("0", "above zero")]
)
def test_a_pace_that_cannot_be_kept_is_refused(every, why):
    done = run("http://127.0.0.1:9", f"--every={every}")
    assert done.returncode == 3
    assert done.stderr.startswith("inspector: --every ")
    assert why in done.stderr


@pytest.mark.parametrize(("every", "seconds"), [(None, None), ("2", 2), ("1.5", 1.5), ("2s", 2), ("1m", 60)])
def test_a_pace_is_seconds_or_a_time_with_its_unit(every, seconds):
    assert interval_of(every) == seconds


def test_a_pace_counts_for_every_target_whatever_the_file_says():
    target = Target.model_validate({"name": "chat", "url": "http://127.0.0.1:9", "interval": "30s"})
    config = paced(Config(targets=(target,)), 2.0)
    assert config.interval_of(config.targets[0], 15.0) == 2.0
    assert paced(Config(targets=(target,)), None).interval_of(target, 15.0) == 30.0


# --- A real session ---------------------------------------------------------------------------------------------------------------------

SLEEPING = {path: (200, (BODIES.parent / "b11434" / f"sleeping-{name}.json").read_bytes()) for path, name in (("/health", "health"), ("/props", "props"))}
KEY = "sk-only-in-the-file"


@contextmanager
def four_targets(folder, key=""):
    """A configuration of a healthy, a sleeping, a down target and one whose KV cache is unknown."""
    with ExitStack() as servers:
        healthy = servers.enter_context(recorded_server(BUSY, key))
        bare = servers.enter_context(recorded_server({**BUSY, "/slots": DISABLED, "/metrics": DISABLED}))
        asleep = servers.enter_context(recorded_server(SLEEPING))
        refusing = servers.enter_context(socket.socket())
        refusing.bind(("127.0.0.1", 0))  # Bound and not listening: connections are refused, and nobody else takes the port.
        (folder / "key").write_text(key or "none")
        targets = [
            {"name": "healthy", "url": healthy.url, "facts": {"kv_unified": True, "kv_capacity_tokens": 2048}, **({"api_key_file": "key"} if key else {})},
            {"name": "bare", "url": bare.url},
            {"name": "asleep", "url": asleep.url},
            {"name": "gone", "url": f"http://127.0.0.1:{refusing.getsockname()[1]}"},
        ]
        file = folder / "inspector.yaml"
        file.write_text("targets:\n" + "".join(f"  - {json.dumps({'engine': 'llamacpp', 'launch': 'none', **target})}\n" for target in targets))
        yield file, (healthy, bare, asleep)


def start(tmux, *words):
    """Types the command, and what tells afterwards how it ended and whether the terminal is as it was."""
    shell = " ".join([*INSPECTOR, "watch", *map(str, words)])
    tmux.wait(lambda shown: shown.startswith(("$", "#")))
    tmux.type(f'before=$(stty -g); {shell}; echo ended $?; test "$before" = "$(stty -g)" && echo as it was')
    tmux.press("Enter")


def ended(tmux):
    shown = tmux.wait(lambda shown: re.search(r"\nended \d+\n(as it was\n)?[$#]", shown))
    assert "\nended 0\nas it was\n" in shown
    assert tmux.about("alternate_on") == "0"
    assert tmux.about("cursor_flag") == "1"
    return shown


def all_polled(shown):
    return "4 targets: 1 critical" in shown and "not polled" not in shown


def flat(shown):
    return " ".join(shown.split())


def inspector_in(tmux):
    (process,) = [p for p in psutil.Process(int(tmux.about("pane_pid"))).children(recursive=True) if "watch" in p.cmdline()]
    return process


@pytest.mark.stack
def test_a_session_in_a_terminal_of_80_columns(tmp_path):
    with four_targets(tmp_path, KEY) as (file, servers), terminal(80, 24) as tmux:
        start(tmux, "--config", file)
        shown = tmux.wait(all_polled)
        assert "gone CRITICAL unreachable" in flat(shown)
        assert "connection refused" in shown
        assert "bare UNKNOWN ready" in flat(shown)
        assert "healthy OK ready" in flat(shown)
        assert "asleep OK sleeping" in flat(shown)
        assert all(len(row) <= 80 for row in tmux.screen())

        tmux.press("j")
        shown = flat(tmux.wait(lambda shown: "\nbare" in shown and "\ngone" not in shown))
        assert "KV cache used and reclaimable unknown (would_wake), capacity unknown (ambiguous), 512 to 2,048" in shown
        assert "???? 4 slots, busy unknown (would_wake), running and waiting unknown (endpoint_disabled)" in shown
        assert "may_wake: true" in shown
        assert "start llama-server with --metrics" in shown
        assert " 0 " not in shown.split("healthy")[0]

        tmux.press("Down")
        shown = flat(tmux.wait(lambda shown: "\nhealthy" in shown and "\nbare" not in shown))
        assert "3 of 4 busy, 3 running, 0 waiting" in shown
        # The recorded slots hold 389 + 390 + 389 tokens.
        bar = re.search(r"KV cache (\S+) 1,168 used, 0 reclaimable, 880 free", shown)[1]
        assert bar.count("█") == pytest.approx(len(bar) * 1168 / 2048, abs=0.5)
        assert set(bar) == {"█", "·"}
        asleep = shown.split("asleep OK sleeping")[1]
        assert "2 slots, busy, running and waiting unknown (sleeping)" in asleep
        assert "the server is sleeping" in asleep

        tmux.resize(60, 24)
        narrow = tmux.wait(lambda shown: "healthy  OK" in shown and "reclaimable · free" not in shown)
        assert all(len(row) <= 60 for row in narrow.split("\n"))
        tmux.resize(80, 24)
        tmux.wait(lambda shown: "reclaimable · free" in shown)
        tmux.resize(20, 4)
        tmux.wait(lambda shown: "inspector watch" in shown)
        tmux.resize(80, 50)
        tall = flat(tmux.wait(lambda shown: "sleeping" in shown and "1,168 used" in shown))
        assert KEY not in tall

        tmux.press("q")
        assert "inspector watch  4 targets" not in ended(tmux)
    assert {method for server in servers for method, _, _ in server.asked} == {"GET"}


@pytest.mark.stack
def test_control_c_ends_it_too_and_control_s_and_z_do_not_halt_it(tmp_path):
    with four_targets(tmp_path) as (file, _), terminal() as tmux:
        start(tmux, "--config", file)
        assert "q quit" in tmux.wait(all_polled)
        tmux.press("C-s", "C-z")
        before = tmux.screen()[0]
        tmux.wait(lambda shown: shown.split("\n")[0] != before and "4 targets" in shown)
        tmux.press("C-c")
        ended(tmux)


@pytest.mark.stack
def test_without_a_keyboard_it_is_ended_by_control_c(tmp_path):
    with four_targets(tmp_path) as (file, _), terminal() as tmux:
        start(tmux, "--config", file, "</dev/null")
        assert "Ctrl-C quit" in tmux.wait(all_polled)
        tmux.press("C-c")
        ended(tmux)


@pytest.mark.stack
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_it_with_the_terminal_as_it_was(tmp_path, number):
    with four_targets(tmp_path) as (file, _), terminal() as tmux:
        start(tmux, "--config", file, "--every", "2s")
        tmux.wait(all_polled)
        inspector_in(tmux).send_signal(number)
        ended(tmux)


@pytest.mark.stack
def test_a_bug_ends_it_with_the_terminal_as_it_was(tmp_path):
    """Whatever is raised while the screen is up, the shell gets its terminal back, and one line says what happened."""
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import inspector.cli.screen as s\ndef rows(*_):\n    raise ValueError('a secret')\ns.Screen.rows = rows\nfrom inspector.cli import main\nmain()\n"
    )
    with terminal() as tmux:
        tmux.wait(lambda shown: shown.startswith(("$", "#")))
        tmux.type(f'before=$(stty -g); {sys.executable} {broken} watch http://127.0.0.1:9; echo ended $?; test "$before" = "$(stty -g)" && echo as it was')
        tmux.press("Enter")
        shown = tmux.wait(lambda shown: re.search(r"\nended \d+\n(as it was\n)?[$#]", shown))
        assert "\nended 1\nas it was\n" in shown
        assert "broken off: ValueError" in flat(shown)
        assert "a secret" not in shown
        assert tmux.about("alternate_on") == "0"


@pytest.mark.stack
def test_without_colour_nothing_is_lost(tmp_path):
    with four_targets(tmp_path) as (file, _), terminal(80, 24, NO_COLOR="1") as tmux:
        start(tmux, "--config", file, "healthy", "gone")
        shown = tmux.wait(lambda shown: "1,168 used" in shown and "unreachable" in shown)
        painted = tmux("capture-pane", "-p", "-e")
        assert not any(f"\x1b[{code}m" in painted for code in (31, 32, 33, 34, 35, 36))
        assert "█" in shown
        tmux.press("q")
        ended(tmux)


@pytest.mark.stack
def test_a_terminal_that_has_no_screen_is_refused(tmp_path):
    with terminal() as tmux:
        tmux.wait(lambda shown: shown.startswith(("$", "#")))
        tmux.type(f"TERM=dumb {' '.join(INSPECTOR)} watch http://127.0.0.1:9; echo ended $?")
        tmux.press("Enter")
        assert "inspector check" in flat(tmux.wait(lambda shown: "\nended 3" in shown))
