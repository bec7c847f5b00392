"""Looking for the servers of this machine, again and again."""

import pytest

from inspector.config import Target
from inspector.discovering import Discovering
from inspector.metrics import OwnStatus

pytestmark = pytest.mark.anyio

FIRST, SECOND = (Target.model_validate({"name": name, "url": f"http://127.0.0.1:{port}"}) for name, port in (("first", 8), ("second", 9)))


class EndOfTestError(Exception):
    pass


async def test_servers_that_come_later_are_found_and_those_that_went_stay_for_a_while():
    looks = iter([(), (FIRST,), RuntimeError("a look that fails"), (SECOND,)])
    names, own = [], OwnStatus()

    async def discover():
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        return found

    async def watch(targets):
        names.append([target.name for target in targets])
        if len(names) == 4:
            raise EndOfTestError

    with pytest.raises(EndOfTestError):
        await Discovering(discover, watch, own, every=0).run()
    assert names == [[], ["first"], ["first"], ["first", "second"]]
    assert own.task_failures == 1
