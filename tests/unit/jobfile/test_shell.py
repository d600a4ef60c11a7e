"""Lookups in scripts: those in quotes are refused, and the others cannot be made to run as commands."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deborgen_shared.jobfile.shell import find_misplaced
from deborgen_shared.jobfile.template import render

#: In these scripts, A stands for a lookup.
ALLOWED = [
    "echo A",
    "python sim.py --title=A",
    "echo 'plain' A \"plain\"",
    r"echo 'it'\''s' A",
    r"echo \' A \\A",
    'echo "$(echo A)"',
    'echo "${x:-it\'s}" A',
    "echo ${x:-'a}b'} A",
    "# it's a comment\necho A",
    "echo a#b $# ${#x} A",
    "echo a'#'b A",
    "[ A = 3 ] || [[ A = 3 ]]",
    "cat <<EOF >A\nit's \"text\nEOF\necho A",
    "cat <<-'E O F' >A\n\t it's\n\tE O F\necho A",
    "x=$(cat <<EOF\n(\nEOF\n)\necho A",
    "cat <<<A",
    "echo $((1 << 2)) A",
    "for ((i = 0; i < 3; i++)); do echo A; done",
    "case x in a) echo A ;; esac",
    "echo $$A",
    "x=`echo it\\`s`; echo A",
    "echo $'it\\n' A",
    "echo \\\n# it's a comment\necho A",
]
REFUSED = {
    "echo 'A'": "in single quotes",
    "echo $'A'": "in single quotes",
    "awk 'BEGIN { print A }'": "in single quotes",
    'echo "x A"': "in double quotes",
    'echo $"A"': "in double quotes",
    'echo "$(echo "A")"': "in double quotes",
    'echo "$(echo b)A"': "in double quotes",
    'echo "\\"A"': "in double quotes",
    'echo "${x:-A}"': "in double quotes",
    "echo `echo A`": "in backquotes",
    'echo "`echo A`"': "in backquotes",
    "cat <<EOF\nA\nEOF": "in a here-document",
    "cat <<'EOF'\nA\nEOF": "in a here-document",
    "cat <<-EOF | wc\n\tx\nA\n\tEOF\n": "in a here-document",
    "cat <<one <<two\n1\none\nA\ntwo": "in a here-document",
    "cat <<A\nx\n": "in a here-document",
    "x=$(cat <<EOF\nA\nEOF\n)": "in a here-document",
    "echo b # A": "in a comment",
    "#A": "in a comment",
    "echo $((A + 1))": "in arithmetic",
    "echo $((2 * (1 + 1) * A))": "in arithmetic",
    "((A > 1))": "in arithmetic",
    "if((A>1)); then :; fi": "in arithmetic",
    "echo $[A]": "in arithmetic",
    "echo ${x:-A}": "in ${...}",
    "echo ${x:A}": "in ${...}",
    "list[A]=1": "in square brackets",
    "list[(1) + A]=1": "in square brackets",
    "list=([A]=1)": "in square brackets",
    r"echo \A": "after a backslash",
    "echo $A": "after a dollar sign",
    'echo A "b': "in a script with a quote or bracket that is not closed, or is ambiguous",
    r"echo A $'it\'s'": "in a script with a quote or bracket that is not closed, or is ambiguous",
    "echo A $(b": "in a script with a quote or bracket that is not closed, or is ambiguous",
}  # fmt: skip
#: Pieces of scripts, of which random ones are joined.
PIECES = [
    "A", "A", "A", " ", " ", "\n", "echo ", "'", '"', "`", "\\", "$", "$(", "$((", "${x:-", "(", ")", "))", "}", "[",
    "]", "#", " # ", ";", "cat <<E\n", "\nE\n", "<<'E'", "it", "x=", "|", "&",
]  # fmt: skip
BASH_ONLY = ["$'", '$"', "((", "[[ ", " ]]", "<<<", "$[", "a["]
#: Values that run `touch owned` if any part of them is read as code.
VALUES = [
    "x; touch owned",
    "$(touch owned)",
    "`touch owned`",
    "'; touch owned; '",
    '"; touch owned; "',
    "' ; touch owned #",
    "' \" ; touch owned # \" '",
    "x\ntouch owned #",
    "\nE\ntouch owned\n",
    "\\'; touch owned #",
    "a[$(touch owned)]",
    "); touch owned; (",
    "}; touch owned; {",
]


def lookup(script: str) -> str:
    return script.replace("A", "${{ value }}")


@pytest.mark.parametrize("script", ALLOWED)
def test_a_lookup_that_is_a_plain_word_is_allowed(script: str) -> None:
    assert list(find_misplaced(lookup(script))) == []


@pytest.mark.parametrize(("script", "where"), REFUSED.items())
def test_a_lookup_elsewhere_is_refused_with_its_place(script: str, where: str) -> None:
    found = list(find_misplaced(lookup(script)))
    assert [each.explain()[0] for each in found] == [
        f"${{{{ value }}}} stands {where}, where its value could run as a command"
    ]


@pytest.mark.parametrize(
    "script", ["echo 'A'", 'echo "A"', "cat <<E\nA\nE", "# A", ": $((A))", "x=y; : ${x:A}", "a[A]=1"]
)
def test_the_value_of_a_refused_lookup_would_run(script: str, tmp_path: Path) -> None:
    """Why they are refused. If a shell reads one of them differently some day, the rule can become milder."""
    assert list(find_misplaced(lookup(script)))
    assert any(runs(script, value, "bash", tmp_path) for value in VALUES)


@settings(max_examples=150, deadline=None)
@example(pieces=["x=1", "\n", "A"], shell="bash", value=VALUES[0])
@given(
    pieces=st.lists(st.sampled_from(PIECES + BASH_ONLY), max_size=12), shell=st.just("bash"),
    value=st.sampled_from(VALUES),
)  # fmt: skip
def test_no_shell_runs_the_value_of_an_allowed_lookup(
    pieces: list[str], shell: str, value: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    script = "".join(pieces)
    if "A" in script and not list(find_misplaced(lookup(script))):
        assert not runs(script, value, shell, tmp_path_factory.mktemp("script"))


def runs(script: str, value: str, shell: str, folder: Path) -> bool:
    """Whether the shell runs the value as a command."""
    text = render({"run": lookup(script)}, {"value": value}, {})["run"]
    subprocess.run([shell, "-c", text], cwd=folder, capture_output=True, stdin=subprocess.DEVNULL, timeout=20)
    return (folder / "owned").exists()
