"""The systemd unit and the property list for launchd: understood by what reads them, and each starts an inspector that its configuration is good for."""

from __future__ import annotations

import plistlib
import shutil
import subprocess
from pathlib import Path

from deployments import DEPLOY, KEY, loaded, option, understood
from inspector.registry import load_adapters
from tools import tool

UNIT = DEPLOY / "systemd" / "inference-inspector.service"
PLIST = plistlib.loads((DEPLOY / "launchd" / "local.inference-inspector.plist").read_bytes())
ADAPTERS = load_adapters().adapters


def unit_folder(folder: Path, *more: str) -> Path:
    """The unit with its drop-in, as systemd would find them, with a program that is there."""
    program = shutil.copy(shutil.which("true"), folder / "inspector")
    unit = folder / UNIT.name
    text = UNIT.read_text(encoding="utf-8").replace("/opt/inference-inspector/bin/inspector", str(program))
    unit.write_text(text.replace("[Service]\nType", "\n".join(["[Service]", *more, "Type"])), encoding="utf-8")
    (folder / f"{UNIT.name}.d").mkdir()
    shutil.copy(DEPLOY / "systemd" / "keys.conf", folder / f"{UNIT.name}.d")
    return unit


def analyzed(*words) -> tuple[int, str]:
    done = subprocess.run([tool("systemd-analyze"), *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_unit_is_understood_whole(tmp_path):
    (tmp_path / "right").mkdir()
    assert analyzed("verify", unit_folder(tmp_path / "right")) == (0, "")
    (tmp_path / "wrong").mkdir()
    assert "ProtectHomes" in analyzed("verify", unit_folder(tmp_path / "wrong", "ProtectHomes=yes"))[1]


def test_the_unit_is_exposed_less_than_two(tmp_path):
    code, said = analyzed("security", "--offline=yes", "--threshold=19", "--no-pager", unit_folder(tmp_path))
    assert code == 0, said


def test_the_unit_starts_an_inspector_that_its_configuration_is_good_for(tmp_path):
    lines = dict(line.split("=", 1) for line in UNIT.read_text(encoding="utf-8").splitlines() if "=" in line and line[0] != "#")
    program, *words = lines["ExecStart"].split()
    assert program == PLIST["ProgramArguments"][0]
    assert understood(words)
    assert lines["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert f"deploy/systemd/inspector.yaml {option(words, '--config')} " in UNIT.read_text(encoding="utf-8")
    credential, _, origin = (DEPLOY / "systemd" / "keys.conf").read_text(encoding="utf-8").split("\nLoadCredential=")[1].strip().partition(":")
    assert Path(origin).parent == Path(option(words, "--config")).parent
    (tmp_path / credential).write_text(KEY, encoding="utf-8")
    config = loaded(DEPLOY / "systemd" / "inspector.yaml", tmp_path, {f"/run/credentials/{UNIT.name}": tmp_path})
    assert lines["SocketBindAllow"] == f"tcp:{config.listen_address[1]}"
    assert lines["IPAddressAllow"] == "localhost"
    assert all(target.address.is_local for target in config.targets)


LAUNCHD_KEYS = {
    "Label": str, "ProgramArguments": list, "RunAtLoad": bool, "KeepAlive": dict, "ThrottleInterval": int, "ProcessType": str, "WorkingDirectory": str,
    "Umask": int, "StandardOutPath": str, "StandardErrorPath": str,
}  # fmt: skip
"""As launchd.plist(5) has them; it passes over keys that it does not know."""


def test_the_property_list_says_what_launchd_understands(tmp_path):
    assert {key: type(value) for key, value in PLIST.items()} == LAUNCHD_KEYS
    assert (DEPLOY / "launchd" / f"{PLIST['Label']}.plist").is_file()
    assert PLIST["KeepAlive"] == {"SuccessfulExit": False}
    assert PLIST["ProcessType"] in {"Background", "Standard", "Adaptive", "Interactive"}
    assert PLIST["Umask"] == 0o077
    program, *words = PLIST["ProgramArguments"]
    assert understood(words)
    folder = PLIST["WorkingDirectory"]
    assert all(path.startswith(folder + "/") for path in (program, option(words, "--config"), PLIST["StandardOutPath"], PLIST["StandardErrorPath"]))
    installed = (DEPLOY / "launchd" / f"{PLIST['Label']}.plist").read_text(encoding="utf-8")
    assert f"deploy/launchd/inspector.yaml {Path(option(words, '--config')).parent}/ " in installed
    assert f"{Path(PLIST['StandardErrorPath']).parent}\n" in installed, "the folder of its log is made"
    config = loaded(DEPLOY / "launchd" / "inspector.yaml", tmp_path, {})
    assert {target.engine for target in config.targets} <= set(ADAPTERS)
    assert all(target.address.is_local for target in config.targets)
