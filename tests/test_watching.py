"""Tasks of targets: one for each, restarted after a bug, swapped whole."""

from dataclasses import dataclass, replace

import anyio
import pytest

from board_fixtures import NOW, snapshot
from inspector.board import Board, TargetInfo
from inspector.metrics import OwnStatus
from inspector.watching import Watching

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Job:
    name: str
    url: str = "http://127.0.0.1:1"


class FakeWatcher:
    """Publishes one snapshot, then waits. `bugs` exceptions are raised first."""

    def __init__(self, job, bugs=(), events=None):
        self.job, self.bugs, self.polls, self.closed = job, list(bugs), 0, False
        self.events = [] if events is None else events
        self.published = anyio.Event()

    @property
    def info(self):
        return TargetInfo(self.job.name, "", self.job.url, stale_after=15.0)

    async def run(self, publish, *, delay=0.0):
        self.events.append(f"run {self.job.url}")
        if self.bugs:
            raise self.bugs.pop(0)
        publish(await self.poll())
        self.published.set()
        await anyio.sleep_forever()

    async def poll(self):
        self.polls += 1
        return snapshot(self.job.name, at=NOW + self.polls)

    async def aclose(self):
        self.closed = True
        self.events.append(f"closed {self.job.url}")


class Setup:
    def __init__(self, tasks, bugs=None):
        self.made, self.events, self.own = {}, [], OwnStatus()
        self.bugs = bugs or {}
        self.board = Board(clock=lambda: NOW + 1)
        self.watching = Watching(tasks, self.board, self.build, self.own, restart_delay=0.001)

    def build(self, job):
        watcher = FakeWatcher(job, self.bugs.pop(job.name, ()), self.events)
        self.made.setdefault(job.name, []).append(watcher)
        return watcher

    async def published(self, *names):
        with anyio.fail_after(5):
            for name in names:
                await self.made[name][-1].published.wait()


async def test_what_a_target_publishes_stands_on_the_board():
    async with anyio.create_task_group() as tasks:
        setup = Setup(tasks)
        await setup.watching.apply([Job("a"), Job("b")])
        assert setup.watching.not_polled() == 2
        await setup.published("a", "b")
        assert setup.watching.not_polled() == 0
        assert [e.snapshot.target for e in setup.board.entries()] == ["a", "b"]
        tasks.cancel_scope.cancel()
    assert all(w.closed for watchers in setup.made.values() for w in watchers)


async def test_a_bug_in_one_target_is_counted_and_restarted_and_touches_no_other():
    async with anyio.create_task_group() as tasks:
        setup = Setup(tasks, {"a": [RuntimeError("x"), ExceptionGroup("y", [ValueError("z")])]})
        await setup.watching.apply([Job("a"), Job("b")])
        await setup.published("a", "b")
        assert setup.own.task_failures == 2
        assert setup.made["b"][0].polls == 1
        tasks.cancel_scope.cancel()


async def test_an_unchanged_target_keeps_its_task_and_what_is_known_of_it():
    async with anyio.create_task_group() as tasks:
        setup = Setup(tasks)
        await setup.watching.apply([Job("a"), Job("gone")])
        await setup.published("a", "gone")
        before = setup.board.entry("a")
        await setup.watching.apply([Job("a"), Job("new")])
        await setup.published("new")
        assert setup.board.entry("a") == before
        assert len(setup.made["a"]) == 1
        assert setup.watching.names == ("a", "new")
        assert setup.board.entry("gone") is None
        assert setup.made["gone"][0].closed
        tasks.cancel_scope.cancel()


async def test_a_changed_target_ends_whole_before_it_begins_anew():
    async with anyio.create_task_group() as tasks:
        setup = Setup(tasks)
        await setup.watching.apply([Job("a", "old")])
        await setup.published("a")
        await setup.watching.apply([Job("a", "new")])
        assert setup.board.entry("a").snapshot is None, "nothing of the old server is shown for the new one"
        await setup.published("a")
        assert setup.events == ["run old", "closed old", "run new"]
        tasks.cancel_scope.cancel()


async def test_a_probe_puts_a_fresh_snapshot_on_the_board():
    async with anyio.create_task_group() as tasks:
        setup = Setup(tasks)
        await setup.watching.apply([Job("a")])
        await setup.published("a")
        assert await setup.watching.probe("a") is True
        assert setup.board.entry("a").snapshot.observed_at == NOW + 2
        assert setup.board.entry("a").polls == 2
        assert await setup.watching.probe("nobody") is False
        tasks.cancel_scope.cancel()


async def test_a_poll_that_several_waited_for_counts_once():
    async with anyio.create_task_group() as tasks:
        setup = Setup(tasks)
        await setup.watching.apply([Job("a")])
        await setup.published("a")
        shared = snapshot("a", at=NOW + 5)

        async def joined():
            return shared

        setup.made["a"][0].poll = joined
        await setup.watching.probe("a")
        await setup.watching.probe("a")
        assert setup.board.entry("a").polls == 2
        tasks.cancel_scope.cancel()


async def test_a_clock_that_was_set_back_hides_no_snapshot():
    async with anyio.create_task_group() as tasks:
        setup = Setup(tasks)
        await setup.watching.apply([Job("a")])
        await setup.published("a")
        watcher = setup.made["a"][0]
        earlier = replace(snapshot("a"), observed_at=NOW - 3)

        async def poll():
            return earlier

        watcher.poll = poll
        await setup.watching.probe("a")
        assert setup.board.entry("a").snapshot.observed_at == NOW - 3
        tasks.cancel_scope.cancel()


async def test_a_probe_under_way_when_its_target_is_removed_puts_nothing_on_the_board():
    async with anyio.create_task_group() as tasks:
        setup = Setup(tasks)
        await setup.watching.apply([Job("a")])
        await setup.published("a")
        asked, answer = anyio.Event(), anyio.Event()

        async def poll():
            asked.set()
            await answer.wait()
            return snapshot("a", at=NOW + 9)

        setup.made["a"][0].poll = poll
        tasks.start_soon(setup.watching.probe, "a")
        await asked.wait()
        await setup.watching.apply([Job("a", "new")])
        await setup.published("a")
        answer.set()
        await anyio.wait_all_tasks_blocked()
        assert setup.board.entry("a").snapshot.observed_at == NOW + 1
        tasks.cancel_scope.cancel()


async def test_a_watcher_that_cannot_be_closed_is_counted_and_the_rest_goes_on():
    async with anyio.create_task_group() as tasks:
        setup = Setup(tasks)
        await setup.watching.apply([Job("a")])
        await setup.published("a")

        async def aclose():
            raise OSError

        setup.made["a"][0].aclose = aclose
        await setup.watching.apply([Job("b")])
        await setup.published("b")
        assert setup.own.task_failures == 1
        tasks.cancel_scope.cancel()
