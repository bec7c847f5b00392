"""KV cache bytes against the engines that run here: `python bench/kv_accuracy.py [llamacpp|vllm|mlx …]`.

Runs the script of each engine in `kv_accuracy/` and prints its table: cases, exact, unknown by name, wrong; the cases that the formulas had met while they were
written and those that they had not, apart. vLLM needs VLLM_PYTHON. Exit 1 if any is wrong.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).with_name("kv_accuracy")
ENGINES = ("llamacpp", "vllm", "mlx")


def main(engines: list[str]) -> int:
    codes = []
    for engine in engines or ENGINES:
        print(f"== {engine}", flush=True)
        codes.append(subprocess.run([sys.executable, FOLDER / f"{engine}.py"], check=False).returncode)
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
