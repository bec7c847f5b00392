"""llama.cpp's KV and RS buffers against our formulas, for tiny models of many architectures in a real server.

    python bench/kv_accuracy/llamacpp.py [seen|unseen|FOLDER]

FOLDER holds GGUF files of others, such as those of llama.cpp's own `test-llama-archs -o FOLDER`; each is served twice, split and shared. Exits with 1 when a
prediction is wrong.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests")]

from tally import Tally  # noqa: E402

from engines.builds import Build, build_10434  # noqa: E402
from engines.gguf_models import Model  # noqa: E402
from engines.kv_cases import Case, ask, seen, unseen  # noqa: E402
from inspector.contract import ModelFile, PlanSettings  # noqa: E402
from inspector.demo.model import write_tiny_model  # noqa: E402
from inspector.reading import Unknown  # noqa: E402
from inspector_llamacpp import ADAPTER  # noqa: E402

SEED = 20261202
UNSEEN = 120


def main(which: str) -> int:
    tally = Tally()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build = build_10434(write_tiny_model(folder / "trial.gguf"))
        if which in ("", "seen"):
            for case in seen():
                hold(tally, "seen", build, case, folder)
        if which in ("", "unseen"):
            for case in unseen(SEED, UNSEEN):
                hold(tally, "unseen", build, case, folder)
        if which not in ("", "seen", "unseen"):
            for file, model in files(Path(which)):
                for unified in (False, True):
                    hold(tally, "files", build, Case(model.architecture, model, context=8192, unified=unified), folder, file)
    return tally.report("llama.cpp")


def hold(tally: Tally, half: str, build: Build, case: Case, folder: Path, file: Path | None = None) -> None:
    settings = PlanSettings(case.context, case.slots, case.unified, case.keys, case.values, more=case.more)
    predicted = ADAPTER.cache_bytes(ModelFile("gguf", case.model.architecture, case.model.prefixed()), settings)
    told = ask(build, case, folder, file)
    kind = f"{case.kind} {'shared' if case.shared else 'split'}"
    if isinstance(told, str):
        tally.add(half, kind, "refused", f"{case}: {told}")
    elif isinstance(predicted, Unknown):
        tally.add(half, kind, "unknown", f"{case.model.architecture}: {predicted.detail}; the log says {told.mebibytes:.2f} MiB")
    else:
        verdict = "exact" if told.agrees(predicted) else "wrong"
        tally.add(half, kind, verdict, f"{predicted / 2**20:.3f} MiB, the log says {told.mebibytes:.2f} MiB: {case}")


def files(folder: Path) -> Iterator[tuple[Path, Model]]:
    import gguf  # noqa: PLC0415

    for path in sorted(folder.glob("*.gguf")):
        fields = gguf.GGUFReader(path).fields
        values: dict[str, Any] = {key: field.contents() for key, field in fields.items() if not key.startswith(("GGUF.", "tokenizer."))}
        architecture = values.pop("general.architecture")
        yield path, Model(architecture, {key.removeprefix(f"{architecture}."): value for key, value in values.items()})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
