"""`vllm serve` for a build that is installed under another name: `python vllm_serve.py serve MODEL [FLAGS]`.

The `vllm` command asks for its version by the name vllm, which the CPU build does not bear, and ends. Several API servers are to be had from `serve` only.
Runs in vLLM's own environment; started anew by each of its processes.
"""

from __future__ import annotations

from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.entrypoints.serve.utils.api_utils import cli_env_setup
from vllm.logger import configure_logging_from_args
from vllm.utils.argparse_utils import FlexibleArgumentParser


def main() -> None:
    cli_env_setup()
    serve = ServeSubcommand()
    parser = FlexibleArgumentParser()
    serve.subparser_init(parser.add_subparsers(dest="subparser"))
    args = parser.parse_args()
    configure_logging_from_args(args)
    serve.validate(args)
    serve.cmd(args)


if __name__ == "__main__":
    main()
