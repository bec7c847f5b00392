"""The HTTP surface over a board that a test filled."""

import base64
import gzip
import hashlib
import re
from html.parser import HTMLParser

import anyio
import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from board_fixtures import NOW, UNTOLD, board, known, pool, snapshot
from gallery import gallery
from inspector.alerts.status import AlertState, AlertStatus
from inspector.board import TargetInfo
from inspector.metrics import OwnStatus
from inspector.model import State
from inspector.notify import Deliveries
from inspector.web.app import Services, accepts_gzip, application, time_left
from inspector.web.page import Page

pytestmark = pytest.mark.anyio

GET_PATHS = ["/", "/metrics", "/probe?target=chat", "/api/v1/targets", "/sd", "/-/healthy", "/-/ready"]


async def no_probe(_):
    return True


def client(of_board, **services):
    app = application(of_board, Services(**{"probe": no_probe, "missing": lambda: "", **services}))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://inspector.test:9836")


async def get(of_board, path, headers=None, **services):
    async with client(of_board, **services) as asking:
        return await asking.get(path, headers=headers)


def samples(text):
    return {(s.name, s.labels.get("target", ""), s.labels.get("pool", "")): s.value for family in parse_text(text) for s in family.samples}


# --- Metrics ------------------------------------------------------------------------------------------------------------------------


async def test_metrics_has_a_sample_for_what_is_known_and_none_for_what_is_not():
    reply = await get(board(snapshot()), "/metrics", {"Accept-Encoding": "identity"})
    shown = samples(reply.text)
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert shown["inspector_kv_used_tokens", "chat", "0"] == 903
    assert shown["inspector_kv_reclaimable_tokens", "chat", "0"] == 0
    assert not [key for key in shown if key[0] == "inspector_requests_waiting"]


async def test_metrics_speaks_openmetrics_to_a_scraper_that_asks_for_it():
    reply = await get(board(snapshot()), "/metrics", {"Accept": "application/openmetrics-text; version=1.0.0"})
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    assert "inspector_kv_used_tokens" in {family.name for family in parse_openmetrics(reply.text)}


async def test_metrics_is_compressed_only_when_asked():
    async with client(board(snapshot())) as asking:
        async with asking.stream("GET", "/metrics", headers={"Accept-Encoding": "gzip"}) as reply:
            packed = b"".join([chunk async for chunk in reply.aiter_raw()])
        plain = await asking.get("/metrics", headers={"Accept-Encoding": "identity"})
    assert gzip.decompress(packed) == plain.content
    assert "content-encoding" not in plain.headers


@pytest.mark.parametrize(
    ("header", "accepted"),
    [("gzip", True), ("deflate, GZIP;q=0.5", True), ("gzip;q=0", False), ("gzip; q=0.0", False), ("", False), ("br", False), ("gzip;q=0.01", True)],
)
def test_gzip_is_accepted_as_the_header_says(header, accepted):
    assert accepts_gzip(header) is accepted


async def test_metrics_can_be_limited_to_names():
    reply = await get(board(snapshot()), "/metrics?name[]=inspector_slots")
    assert {name for name, _, _ in samples(reply.text)} == {"inspector_slots"}


async def test_metrics_tells_of_the_daemon_itself():
    own = OwnStatus(reloaded=False, reloaded_at=None)
    assert "inspector_config_last_reload_successful 0.0" in (await get(board(), "/metrics", own=own)).text


# --- Probe --------------------------------------------------------------------------------------------------------------------------


async def test_probe_shows_the_poll_that_it_made_and_that_target_alone():
    made = board(snapshot("chat", pools=(pool(slots=known(1)),)), snapshot("other"))

    async def probe(name):
        made.put(snapshot(name, pools=(pool(slots=known(8)),)))
        return True

    shown = samples((await get(made, "/probe?target=chat", probe=probe)).text)
    assert shown["inspector_slots", "chat", "0"] == 8
    assert {target for _, target, _ in shown} == {"chat"}


async def test_probe_of_a_server_that_is_down_is_an_answer():
    reply = await get(board(snapshot("chat", State.UNREACHABLE)), "/probe?target=chat")
    assert reply.status_code == 200
    assert samples(reply.text)["inspector_target_up", "chat", ""] == 0


@pytest.mark.parametrize("query", ["", "?target=", "?target=nobody", "?target=http://127.0.0.1:8080", "?target=169.254.169.254"])
async def test_probe_takes_configured_names_only(query):
    asked = []

    async def probe(name):
        asked.append(name)
        return True

    reply = await get(board(snapshot()), "/probe" + query, probe=probe)
    assert (reply.status_code, asked) == (400, [])
    assert reply.headers["content-type"].startswith("text/plain")
    assert "target" in reply.text


async def test_probe_that_takes_longer_than_the_scrape_may_is_no_old_answer():
    async def probe(_):
        await anyio.sleep_forever()

    reply = await get(board(snapshot()), "/probe?target=chat", {"X-Prometheus-Scrape-Timeout-Seconds": "0.05"}, probe=probe)
    assert reply.status_code == 504
    assert "inspector_" not in reply.text


@pytest.mark.parametrize(("header", "seconds"), [(None, None), ("10", 9.5), ("10.25", 9.75), ("0.6", 0.3)])
def test_a_probe_leaves_time_for_its_answer_to_travel(header, seconds):
    assert time_left(header) == seconds


@pytest.mark.parametrize("header", ["nan", "inf", "-1", "0", "soon", ""])
async def test_a_scrape_timeout_that_is_none_is_refused(header):
    reply = await get(board(snapshot()), "/probe?target=chat", {"X-Prometheus-Scrape-Timeout-Seconds": header})
    assert reply.status_code == 400


# --- JSON ---------------------------------------------------------------------------------------------------------------------------


async def test_targets_gives_an_unknown_as_null_with_reason_and_remedy():
    body = (await get(board(snapshot()), "/api/v1/targets")).json()
    fields = body["targets"][0]["pools"][0]["fields"]
    assert body["schema"] == 1
    assert fields["requests_waiting"] == {"value": None, "reason": "endpoint_disabled", "detail": UNTOLD.detail, "bounds": [3, 9]}
    assert fields["kv_used_tokens"]["value"] == 903


async def test_targets_can_be_limited_to_one():
    made = board(snapshot("a"), snapshot("b"))
    assert [t["target"] for t in (await get(made, "/api/v1/targets?target=b")).json()["targets"]] == ["b"]
    assert (await get(made, "/api/v1/targets?target=c")).status_code == 404


async def test_service_discovery_lists_every_target_as_a_probe_of_ours():
    groups = (await get(board(snapshot("a"), unpolled=["b"]), "/sd")).json()
    assert groups == [
        {"targets": ["inspector.test:9836"], "labels": {"__metrics_path__": "/probe", "__param_target": name, "instance": name}} for name in ("a", "b")
    ]


async def test_service_discovery_of_nothing_is_an_empty_list():
    reply = await get(board(), "/sd")
    assert (reply.headers["content-type"], reply.json()) == ("application/json", [])


# --- Health -------------------------------------------------------------------------------------------------------------------------


async def test_ready_says_what_is_missing_until_it_is_not():
    async with client(board(), missing=lambda: "1 of 2 targets has not been polled yet") as asking:
        waiting = await asking.get("/-/ready")
        healthy = await asking.get("/-/healthy")
    assert (waiting.status_code, waiting.text) == (503, "not ready: 1 of 2 targets has not been polled yet\n")
    assert healthy.status_code == 200
    assert (await get(board(), "/-/ready")).status_code == 200


async def test_ours_is_healthy_while_an_engine_is_down():
    made = board(snapshot("chat", State.UNREACHABLE))
    assert [(await get(made, path)).status_code for path in ("/-/healthy", "/-/ready")] == [200, 200]


# --- Reload -------------------------------------------------------------------------------------------------------------------------


async def test_reload_is_off_unless_it_is_switched_on():
    async with client(board()) as asking:
        reply = await asking.post("/-/reload")
    assert reply.status_code == 403
    assert "SIGHUP" in reply.text


@pytest.mark.parametrize(("problems", "status"), [([], 200), (["/etc/secret/inspector.yaml:3: unknown key"], 500)])
async def test_reload_tells_success_but_never_a_path(problems, status):
    async def reload():
        return problems

    async with client(board(), reload=reload) as asking:
        reply = await asking.post("/-/reload")
        by_get = await asking.get("/-/reload")
    assert reply.status_code == status
    assert "/etc" not in reply.text
    assert by_get.status_code == 405


# --- Guard --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", GET_PATHS)
@pytest.mark.parametrize("given", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic token-1", "token-1", "Bearer token-1 x", "Bearer tokén"])
async def test_without_the_token_only_the_health_routes_answer(path, given):
    headers = {} if given is None else {"Authorization": given.encode()}
    reply = await get(board(snapshot()), path, headers, token=lambda: "token-1")
    assert reply.status_code == (200 if path.startswith("/-/") else 401)
    if reply.status_code == 401:
        assert reply.headers["www-authenticate"].startswith("Bearer")
        assert "chat" not in reply.text


@pytest.mark.parametrize("path", GET_PATHS)
async def test_with_the_token_every_route_answers(path):
    assert (await get(board(snapshot()), path, {"Authorization": "bearer token-1"}, token=lambda: "token-1")).status_code == 200


@pytest.mark.parametrize("path", ["/nowhere", "/-/reload", "/-/healthy/"])
async def test_the_token_guards_what_is_not_there_as_well(path):
    assert (await get(board(), path, token=lambda: "token-1")).status_code == 401


@pytest.mark.parametrize("path", GET_PATHS)
async def test_head_works_wherever_get_does_and_nothing_else_does(path):
    async with client(board(snapshot())) as asking:
        assert (await asking.head(path)).status_code == 200
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            reply = await asking.request(method, path)
            assert (reply.status_code, reply.headers["content-type"]) == (405, "text/plain; charset=utf-8")


async def test_an_unknown_path_is_plain_text():
    reply = await get(board(), "/nowhere")
    assert (reply.status_code, reply.headers["content-type"]) == (404, "text/plain; charset=utf-8")


@pytest.mark.parametrize("path", [*GET_PATHS, "/nowhere"])
async def test_every_answer_forbids_sniffing_and_keeping(path):
    reply = await get(board(snapshot()), path)
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["cache-control"] == "no-store"


# --- Page ---------------------------------------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """Tags with their attributes, visible text, and what is never closed."""

    VOID = frozenset({"meta", "link", "br", "img", "input"})

    def __init__(self, html):
        super().__init__()
        self.tags, self.open, self.text = [], [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.text += " "
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data


def page(of_board, now=NOW):
    return Page(lambda: now).render(of_board.entries(), now, 5)


def text_of(html):
    return re.sub(r"\s+", " ", Tags(html).text)


def test_the_page_is_well_formed_and_shows_what_matters():
    html = page(board(snapshot()))
    assert Tags(html).open == []
    for told in ("chat", "fake b1", "127.0.0.1:8080", "903", "4,096", "shared: 4 slots on one pool of 4,096 tokens", "4 against 8", "answers 501", "78% free"):
        assert told in text_of(html)


def test_the_page_shows_an_unknown_with_reason_bounds_and_remedy_and_no_number_for_it():
    shown = text_of(page(board(snapshot(pools=(pool(kv_used_tokens=UNTOLD),)))))
    assert re.search(r"unknown \(endpoint_disabled\), 3 to 9: requests_waiting, kv_used_tokens; [^:]+ of slot 1 .*start the server with --metrics", shown)
    assert "kv_used_tokens unknown (endpoint_disabled), 3 to 9" in shown
    assert "Waiting unknown" in shown


def test_the_page_shows_a_measured_zero_as_zero():
    shown = text_of(page(board(snapshot())))
    assert "kv_reclaimable_tokens 0 http:/slots, now" in shown
    assert "903 used 0 reclaimable 3,193 free of 4,096 tokens" in shown


def test_a_target_that_was_not_polled_shows_no_number_at_all():
    html = page(board(unpolled=["chat"]))
    card = text_of(html).split("chat", 1)[1].split("metrics", 1)[0]
    assert "not polled yet" in card
    assert not re.search(r"\d", card.replace("127.0.0.1:8080", ""))


@pytest.mark.parametrize("state", [s for s in State if s is not State.READY])
def test_every_state_is_named_with_its_detail(state):
    assert f"the server is {state}" in text_of(page(board(snapshot(state=state))))


def test_a_stale_target_is_not_shown_as_ready():
    html = page(board(snapshot(at=NOW - 60), now=NOW))
    card = text_of(html).split("chat", 1)[1]
    assert card.split()[:2] == ["unknown", "stale"]
    assert "903" not in card
    assert "ready" not in card


def test_every_kind_of_target_makes_a_well_formed_page_with_its_alerts_in_words():
    html = page(gallery(NOW))
    shown = text_of(html)
    assert Tags(html).open == []
    assert "InspectorKvHeadroomLow on batch (pool 0, kv), firing for 4 min, held: what it watches is unknown now" in shown
    assert re.search(r"InspectorHeadroomUnknown \(warning\) ?: kv headroom has been unknown for 12 min", shown)
    ids = [attributes["id"] for _, attributes in Tags(html).tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_the_age_of_a_target_does_not_jump_with_the_wall_clock():
    html = Page(lambda: NOW + 4).render(board(snapshot()).entries(), NOW + 86400, 5)
    assert "seen 4 s ago" in text_of(html)
    assert "1 d ago" not in text_of(html)


def test_a_fleet_links_to_the_values_of_each_target_and_a_single_target_shows_them():
    alone, fleet = page(board(snapshot())), page(board(snapshot("a"), snapshot("b")))
    assert "source and age" in text_of(alone)
    assert "http:/slots, now" in text_of(alone)
    assert "http:/slots, now" not in text_of(fleet)
    assert [attributes["href"] for _, attributes in Tags(fleet).tags if attributes.get("href", "").startswith("?")] == ["?target=a", "?target=b"]


async def test_the_page_of_one_target_shows_it_alone_and_asks_for_itself_again():
    made = board(snapshot("a"), snapshot("b&c"))
    html = (await get(made, "/?target=b%26c")).text
    assert [attributes["id"] for tag, attributes in Tags(html).tags if tag == "article"] == ["t-b&c"]
    assert ("meta", {"http-equiv": "refresh", "content": "5; url=?target=b%26c"}) in Tags(html).tags
    assert ("a", {"href": "."}) in Tags(html).tags


async def test_the_page_of_a_target_that_is_not_watched_says_so():
    assert "There is no target of this name" in text_of((await get(board(snapshot()), "/?target=nobody")).text)


def test_what_a_server_says_cannot_become_markup():
    evil = '<script>alert("x")</script>'
    html = page(board(snapshot(evil, pools=(pool(model=known(evil)),), state_detail=evil)))
    assert "script" not in {tag for tag, _ in Tags(html).tags}


async def test_the_page_needs_nothing_from_outside_and_its_policy_forbids_it():
    reply = await get(board(snapshot(), unpolled=["later"]), "/")
    tags = Tags(reply.text).tags
    links = [value for _, attributes in tags for name, value in attributes.items() if name in ("href", "src", "action")]
    assert links
    assert not [link for link in links if ":" in link or link.startswith("/")]
    assert not [tag for tag, attributes in tags if tag in ("script", "iframe", "img", "link") or "style" in attributes]
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


async def test_the_policy_names_the_style_sheet_that_is_in_the_page():
    reply = await get(board(), "/")
    style = re.search(r"<style>(.*?)</style>", reply.text, re.DOTALL)[1]
    assert base64.b64encode(hashlib.sha256(style.encode()).digest()).decode() in reply.headers["content-security-policy"]


def test_without_a_target_the_page_says_so():
    assert "No server is watched" in text_of(page(board()))


def test_no_label_or_address_of_a_configuration_is_needed():
    made = board()
    made.add(TargetInfo("bare", "", "", 15.0))
    assert "bare" in text_of(page(made))


async def test_a_card_says_in_words_what_its_colour_says():
    """An alert that fires on makes a target urgent though its newest value is good again."""
    made = board(snapshot())
    made.put_alerts("chat", (AlertStatus("InspectorKvHeadroomLow", "critical", "0", "kv", "", AlertState.FIRING, 0, "kv headroom 90%"),))
    page = (await get(made, "/")).text
    assert re.search(r'<article class="card critical".*?<span class="badge">critical</span>', page, re.DOTALL)


@pytest.mark.parametrize(
    ("own", "told"),
    [
        (OwnStatus(), ()),
        (OwnStatus(reloaded=True, deliveries=Deliveries()), ()),
        (OwnStatus(reloaded=False), ("configuration was refused",)),
        (OwnStatus(reloaded=False, deliveries=Deliveries(failing=True)), ("configuration was refused", "Alertmanager does not take alerts")),
    ],
)
async def test_what_is_wrong_with_the_inspector_itself_stands_on_its_page(own, told):
    page = (await get(board(snapshot()), "/", own=own)).text
    assert page.count('role="alert"') == len(told)
    assert all(words in page for words in told)
