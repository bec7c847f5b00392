"""The command line: what can be typed. What a command does stands in the file of its name, which is loaded only when it runs."""

# ruff: noqa: PLC0415 - so that `--help` is quick and a running daemon holds nothing of the other commands.

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from inspector.cli.refusal import RefusedError
from inspector.verbosity import Format, LogLevel

USAGE_EXIT = 3
"""Of every usage and configuration error. 1 and 2 are verdicts of `check`."""

app = typer.Typer(
    name="inspector",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(no_args_is_help=True, help="Check or show a configuration file.")
app.add_typer(config_app, name="config")

TARGET_HELP = "http://host:port[/base], https://…, unix:/path, or ENGINE= before one of them"
NAME_HELP = f"{TARGET_HELP}; or a name of the configuration"
ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", metavar="FILE", help="The YAML configuration.", show_default=False)]
ListenOption = Annotated[str | None, typer.Option("--listen", metavar="HOST:PORT", help="Where to answer; the default is 127.0.0.1:9836.", show_default=False)]


def main() -> None:
    """Runs what was typed, and exits: 0 done, 3 not understood, 1 broken off; `check` and `demo` have more to say. Never a traceback."""
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except RefusedError as refusal:
        _say(*refusal.lines)
        code = refusal.exit_code
    except typer.Abort:
        code = 130
    except (BrokenPipeError, SystemExit):
        code = _broken_off()  # The reader has gone. rich and click end the process then.
    except Exception as error:
        # Typer brings its own copy of click, or uses yours: its usage errors are known by being able to show themselves.
        if hasattr(error, "show"):
            error.show()
            code = USAGE_EXIT
        else:
            _say(f"broken off: {_told(error)}")
            code = _broken_off()
    sys.exit(code)


def _say(*lines: str) -> None:
    printable = ("".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line) for line in lines)
    with contextlib.suppress(OSError):
        sys.stderr.write("".join(f"inspector: {line}\n" for line in printable))


def _told(error: BaseException) -> str:
    """An exception's kind and place. Its own text may hold a path or a key; the system's word for an error does not."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        (error,) = error.exceptions
    frames = list(traceback.walk_tb(error.__traceback__))
    place = f" at {Path(frames[-1][0].f_code.co_filename).name}:{frames[-1][1]}" if frames else ""
    said = f" ({error.strerror})" if isinstance(error, OSError) and isinstance(error.strerror, str) else ""
    return f"{type(error).__name__}{said}{place}"


def _broken_off() -> int:
    """The exit code: to `check` it is an unknown. What is left to be written is dropped, or Python would fail over it once more at its end."""
    with contextlib.suppress(OSError, ValueError):
        stdout = sys.stdout.fileno()
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
    return 3 if sys.argv[1:2] == ["check"] else 1


@app.callback(invoke_without_command=True)
def inspector(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    """A read-only inspector for LLM inference servers: what fits, what is left, what is the limit, and how do we know.

    It asks llama.cpp, vLLM and MLX LM servers with GET requests only. It never generates a token, never loads a model, and what it could not measure it
    calls unknown, with the reason.
    """
    if version:
        from inspector import __version__

        typer.echo(f"inference-inspector {__version__}")
        raise typer.Exit


@app.command()
def serve(
    targets: Annotated[list[str] | None, typer.Argument(metavar="URL", help=TARGET_HELP, show_default=False)] = None,
    config: ConfigOption = None,
    listen: ListenOption = None,
    log_format: Annotated[Format, typer.Option(help="auto: for people on a terminal, JSON lines elsewhere.")] = Format.AUTO,
    log_level: Annotated[LogLevel, typer.Option(help="debug tells of every poll.")] = LogLevel.INFO,
) -> None:
    """Watch servers and answer over HTTP: a status page, /metrics for Prometheus, JSON.

    Without targets it watches the model servers of this machine that it finds. SIGHUP loads a configuration file again; a bad one is refused and the
    old one stays. Without a file SIGHUP ends it, as closing the terminal should.

    **Examples**

    * `inspector serve`
    * `inspector serve http://127.0.0.1:8080`
    * `inspector serve vllm=http://10.0.0.5:8000 unix:/run/llama.sock`
    * `inspector serve --config /etc/inspector.yaml --listen 127.0.0.1:9836`
    """
    from inspector.cli.lean import TERMINAL_EXTRAS, without

    with without(*TERMINAL_EXTRAS):
        from inspector.cli.serve import serve as run

    raise typer.Exit(run(targets or [], config, listen, log_format, log_level))


@app.command()
def check(
    targets: Annotated[list[str] | None, typer.Argument(metavar="URL|NAME", help=NAME_HELP, show_default=False)] = None,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False,
) -> None:
    """Look once, and tell by the exit code what was found.

    0 ok, 1 warning, 2 critical or unreachable, 3 unknown or not understood: the convention of Nagios plug-ins. Of several targets the worst counts, and a
    certain warning is worse than an unknown.

    **Examples**

    * `inspector check http://127.0.0.1:8080`
    * `inspector check --config inspector.yaml --json`
    * `inspector check --config inspector.yaml chat`
    """
    from inspector.cli.check import check as run

    raise typer.Exit(run(targets or [], config, as_json=as_json))


@app.command()
def watch(
    targets: Annotated[list[str] | None, typer.Argument(metavar="URL|NAME", help=NAME_HELP, show_default=False)] = None,
    config: ConfigOption = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="TIME", help="Poll each target this often, such as 2s; the default is its own pace.", show_default=False)
    ] = None,
) -> None:
    """A live screen in the terminal: headroom, KV cache, slots and sessions of each server, the worst first, and what is unknown and why.

    It polls by itself, as `serve` does, and needs no daemon. Without targets it watches the model servers of this machine that it finds. Keys: q quits,
    j and k (or the arrows) go to the next and the previous target.

    **Examples**

    * `inspector watch`
    * `inspector watch http://127.0.0.1:8080 --every 2s`
    * `inspector watch --config inspector.yaml chat`
    """
    from inspector.cli.watch import watch as run

    raise typer.Exit(run(targets or [], config, every))


@app.command()
def explain(
    target: Annotated[str, typer.Argument(metavar="URL|NAME", help=NAME_HELP)],
    config: ConfigOption = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a masked bundle, for a bug report or as a test case.", show_default=False)] = None,
) -> None:
    """Show how a server's values came about: what was asked, what came back, what it became, and what is unknown and why.

    Prompts, keys and paths are masked, on the screen and in the bundle.

    **Examples**

    * `inspector explain http://127.0.0.1:8080`
    * `inspector explain --config inspector.yaml chat --save chat.json`
    """
    from inspector.cli.explain import explain as run

    raise typer.Exit(run(target, config, save))


@app.command()
def plan(  # noqa: PLR0913, PLR0917 (what is typed for three forms of one question)
    targets: Annotated[list[str] | None, typer.Argument(metavar="URL|NAME", help=NAME_HELP, show_default=False)] = None,
    config: ConfigOption = None,
    session: Annotated[
        list[str] | None,
        typer.Option("--session", metavar="NAME=PROMPT+OUTPUT", help="A kind of session, in tokens; may be given several times.", show_default=False),
    ] = None,
    gguf: Annotated[Path | None, typer.Option(metavar="FILE", help="Plan from a GGUF file.", show_default=False)] = None,
    model_config: Annotated[Path | None, typer.Option("--model-config", metavar="FILE", help="Plan from a model's config.json.", show_default=False)] = None,
    engine: Annotated[str | None, typer.Option(metavar="ENGINE", help="Whose server it will be; llamacpp for a GGUF file.", show_default=False)] = None,
    ctx: Annotated[int | None, typer.Option("--ctx", min=1, metavar="TOKENS", help="Tokens of each session.", show_default=False)] = None,
    parallel: Annotated[int | None, typer.Option("--parallel", min=1, max=4096, metavar="N", help="Sessions at once.", show_default=False)] = None,
    unified: Annotated[bool | None, typer.Option("--kv-unified/--no-kv-unified", help="Whether sessions share one pool.", show_default=False)] = None,
    cache_type_k: Annotated[str | None, typer.Option(metavar="TYPE", help="Of keys in the KV cache: f16, q8_0, fp8, …", show_default=False)] = None,
    cache_type_v: Annotated[str | None, typer.Option(metavar="TYPE", help="Of values in the KV cache.", show_default=False)] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="For weights and KV cache together, such as 24GiB.", show_default=False)] = None,
    weights: Annotated[str | None, typer.Option(metavar="SIZE", help="Of the weights, where they are not beside the file.", show_default=False)] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=NUMBER", help="Another launch setting that counts, such as ubatch_size=512.", show_default=False)
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw sessions against tokens into a .svg or .png file.", show_default=False)] = None,
    catalog: Annotated[str | None, typer.Option(metavar="URL", help="Compare with a public compute catalog.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The plan as JSON.")] = False,
) -> None:
    """How many sessions fit: on a live server, on one that is yet to be started, or beside what a catalog publishes.

    Exits with 0, or with 3 when something that was asked for is not known or was not understood.

    **Examples**

    * `inspector plan http://127.0.0.1:8080 --session chat=6000+800`
    * `inspector plan --gguf model.gguf --memory 24GiB --parallel 4 --plot frontier.svg`
    * `inspector plan --model-config config.json --engine vllm --memory 24GiB --ctx 8192`
    * `inspector plan --catalog https://example.org/catalog.json --session chat=6000+800`
    """
    from inspector.cli.plan import FileOptions, plan_catalog, plan_files, plan_live

    if sum((bool(targets), gguf is not None or model_config is not None, catalog is not None)) > 1:
        raise RefusedError(["a target, a model's file (--gguf, --model-config) and --catalog are three questions: ask them one by one"])
    if catalog is not None:
        raise typer.Exit(plan_catalog(catalog, config, session or [], as_json=as_json))
    if gguf is None and model_config is None:
        raise typer.Exit(plan_live(targets or [], config, session or [], as_json=as_json))
    options = FileOptions(gguf, model_config, engine, ctx, parallel, unified, cache_type_k, cache_type_v, memory, weights, setting or [], plot)
    raise typer.Exit(plan_files(options, as_json=as_json))


@app.command()
def adapters() -> None:
    """List the adapters that are installed, one an engine: what they may ask, what they offer, and which of them are broken."""
    from inspector.cli.adapters import adapters as run

    raise typer.Exit(run())


@config_app.command("check")
def config_check(file: Annotated[Path, typer.Argument(metavar="FILE", help="The YAML configuration.", show_default=False)]) -> None:
    """Check a configuration file, and tell everything that is wrong with it: file, line, field, remedy. Exits with 0 or 3."""
    from inspector.cli.config import check as run

    raise typer.Exit(run(file))


@config_app.command("show")
def config_show(file: Annotated[Path, typer.Argument(metavar="FILE", help="The YAML configuration.", show_default=False)]) -> None:
    """Show a configuration as it is understood, with all defaults, keys masked."""
    from inspector.cli.config import show as run

    raise typer.Exit(run(file))


@app.command()
def demo(
    seconds: Annotated[float | None, typer.Option(min=1, help="End by itself after this long.", show_default=False)] = None,
    listen: ListenOption = None,
) -> None:
    """Try it: a real llama.cpp server with a tiny model, a little load on it, and the inspector on top. Ctrl-C ends all of it.

    **Examples**

    * `inspector demo`
    * `inspector demo --seconds 20`
    """
    from inspector.cli.demo import demo as run

    raise typer.Exit(run(seconds, listen))
