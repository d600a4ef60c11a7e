"""The commands of the documents for the organiser, in a fresh checkout, with the Ansible that the document installs.

The stories run every playbook on real hosts. These tests check that the documents name no other plays.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.documents import ROOT, blocks, clone_into, commands, is_for_the_organiser

DOCUMENTS = ("docs/evening.md", "docs/disaster-recovery.md", "docs/fleet.md")
ROLES = sorted((ROOT / "deploy" / "ansible" / "roles").iterdir())


def typed() -> list[str]:
    return [line for document in DOCUMENTS for line in commands(document) if is_for_the_organiser(line)]


def in_sentences() -> list[str]:
    """The plays that stand in sentences and tables."""
    text = "\n".join((ROOT / document).read_text() for document in DOCUMENTS)
    return re.findall(r"`(ansible-playbook [^`]+)`", text)


def shape(words: list[str]) -> tuple[str, ...]:
    """The playbook, and the names of the options and variables that it is given."""
    kept = [words[0]]
    for number, word in enumerate(words):
        if word == "-e":
            kept.append(f"-e {words[number + 1].partition('=')[0]}")
        if word == "--limit":
            kept.append(word)
    return tuple(kept)


def plays_of_the_tests() -> set[tuple[str, ...]]:
    """The plays in the source of the stories."""
    modules = [ast.parse(file.read_text()) for file in (ROOT / "tests" / "fleet").glob("test_*.py")]
    found = set()
    for node in [node for module in modules for node in ast.walk(module)]:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("play", "must_play")
        ):
            words = []
            for argument in node.args:
                if isinstance(argument, ast.JoinedStr):
                    argument = argument.values[0]
                words.append(str(argument.value) if isinstance(argument, ast.Constant) else "")
            found.add(shape(words))
    return found


def test_every_documented_play_is_run_on_real_hosts() -> None:
    """A story runs the playbook with at least the documented options and variables."""
    played = plays_of_the_tests()
    lines = [shlex.split(line)[1:] for line in [*typed(), *in_sentences()] if "ansible-playbook" in line]
    assert len(lines) >= 8
    for words in lines:
        assert any(play[0] == words[0] and {*shape(words)} <= {*play} for play in played), words


@pytest.mark.timeout(900)
def test_the_organiser_can_type_what_is_documented(tmp_path: Path) -> None:
    """Make the checkout and the environment as documented; then check the syntax of each documented play."""
    pytest.importorskip("ansible", reason="the documents were not tried: ansible is missing; `make fleet` installs it")
    origin = clone_into(tmp_path / "origin")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], cwd=origin, check=True, capture_output=True)
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "PYTHON", "GIT_"))
    }
    environment |= {"HOME": str(tmp_path / "home"), "PATH": f"{tmp_path}/home/deborgen-venv/bin:{os.environ['PATH']}"}
    (tmp_path / "home").mkdir()
    lines = typed()
    assert len(lines) >= 7
    script = ["set -eu"]
    for line in lines:
        line = line.replace("git clone … ", f"git clone -q {origin} ").replace("deborgen-….backup", "x.backup")
        script.append(f"{line} --syntax-check" if "ansible-playbook" in line else line)
    # A machine of the example inventory stands in for the reader's.
    script += [f"{line.replace('NAME', 'ada-tower')} --syntax-check" for line in in_sentences()]
    done = subprocess.run(
        ["bash"], input="\n".join(script), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=800,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert len(re.findall(r"^playbook: ", done.stdout, re.MULTILINE)) == sum(
        "--syntax-check" in line for line in script
    )


def documented_inventories() -> list[str]:
    """The inventory of evening.md as it stands; the host of fleet.md where the text puts it."""
    (whole,) = blocks(ROOT / "docs/evening.md", "yaml")
    (host,) = blocks(ROOT / "docs/fleet.md", "yaml")
    return [whole, yaml.safe_dump({"deborgen_workers": {"hosts": yaml.safe_load(host)}})]


@pytest.mark.parametrize("number", range(2))
def test_inventories_are_read_by_ansible(number: int, tmp_path: Path) -> None:
    text = documented_inventories()[number]
    specified = {"deborgen_overlay"} | {
        name
        for role in ROLES
        for entry in yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"].values()
        for name in entry["options"]
    }
    named = set(re.findall(r"\b(deborgen_(?!workers\b|coordinator\b)\w+):", text))
    assert named
    assert named <= specified
    pytest.importorskip("ansible", reason="ansible is missing; `make fleet` installs it")
    (tmp_path / "inventory.yml").write_text(text)
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-inventory", "-i", tmp_path / "inventory.yml", "--list", "--yaml"],
        capture_output=True, text=True, check=True, cwd=tmp_path, timeout=120,
    )  # fmt: skip
    assert done.stderr == ""
    read = yaml.safe_load(done.stdout)["all"]["children"]
    (group,) = set(read) - {"ungrouped"}
    (variables,) = read[group]["hosts"].values()
    assert named <= set(variables)
