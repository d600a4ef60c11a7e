"""Checks the `${{ name }}` lookups of a job file: each is well formed, and its name is defined."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote
from typing import Any, NamedTuple

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.builds import explain_step_image
from deborgen_shared.jobfile.globs import check_glob
from deborgen_shared.jobfile.images import check_image
from deborgen_shared.jobfile.paths import check_path
from deborgen_shared.jobfile.problems import Path, Problem, Problems, did_you_mean, show, subject
from deborgen_shared.jobfile.sweep import Sweep
from deborgen_shared.jobfile.template import FACTS, GIT_FACTS, OPEN, references, replace_texts, text_of
from deborgen_shared.jobfile.values import image_with

#: No value of a parameter becomes longer than this, even if the shell needs each of its characters in quotes.
_LONGEST_VALUE = 5 * limits.PARAMETER_TEXT


class Reference(NamedTuple):
    """A lookup: its text, its name, its path, the key that it belongs to (`run`, `env.HOME`), and the whole value."""

    written: str
    name: str
    path: Path
    key: str
    value: str


def find(data: dict[Any, Any], path: Path, problems: Problems) -> list[Reference]:
    """All lookups in the values of a job. A name counts once per text. A malformed `${{` adds a problem."""
    found = []

    def look(text: Any, where: Path) -> None:
        if isinstance(text, str) and OPEN in text:
            key = f"env.{where[1]}" if where[0] == "env" else str(where[0])
            seen = set()
            for nth, (written, name) in enumerate(references(text)):
                if (name or written) in seen:
                    continue
                if written.endswith("}}"):
                    seen.add(name or written)
                if name:
                    found.append(Reference(written, name, (*path, *where), key, text))
                else:
                    problems.append(_not_a_lookup(written, (*path, *where), nth))

    replace_texts(data, look)  # only to visit each text: the copy is not used
    return found


class Known(NamedTuple):
    """What can be looked up in a job or step besides its parameters.

    `place` is what messages call the job or step. `git` tells whether `git.sha` and the like are known there. `others`
    maps each parameter of any step to that step. `images` has the lookups of images that steps build, each with what is
    wrong with it here.
    """

    place: str
    git: bool
    others: dict[str, str]
    images: dict[str, str]


def check(
    found: Iterable[Reference], sweep: Sweep | None, known: Known, within_limit: bool, problems: Problems
) -> None:
    """Add a problem for each undefined lookup, and for each parameter value that is not valid where it is used.

    Values are checked only if the number of jobs is `within_limit`.
    """
    names = sweep.names if sweep else ()
    seen: set[tuple[str, str]] = set()
    for reference in found:
        name = reference.name
        if (name, reference.key) in seen:
            continue
        seen.add((name, reference.key))
        if sweep and name in names:
            is_argument = reference.key == "build" and reference.path[-2] == "args"
            if within_limit and reference.key in ("image", "artifacts", "result", "build") and not is_argument:
                _check_values(reference, sweep, problems)
        elif name not in FACTS and not (known.git and name in GIT_FACTS) and known.images.get(name) != "":
            message, hint = explain_step_image(name, known.images) or _explain_missing(name, names, known)
            # Steps inherit keys from the file, so an undefined lookup there is found once per step. Report it once.
            if not any(p.path == reference.path and p.find == reference.written for p in problems):
                problems.add(reference.path, message, hint, find=reference.written)


def check_size(found: Iterable[Reference], sweep: Sweep, place: str, problems: Problems) -> None:
    """Add a problem if the lookups of parameters could make the texts of one job too long."""
    texts = {reference.path: reference for reference in found}
    lookups = sum(reference.value.count(OPEN) for reference in texts.values())
    if lookups * _LONGEST_VALUE <= limits.FILLED_BYTES:
        return
    longest: dict[tuple[str, bool], int] = {}
    sizes = {
        path: sum(_longest(name, path[-1] == "run", sweep, longest) for _, name in references(reference.value))
        for path, reference in texts.items()
    }
    total = sum(sizes.values())
    if total > limits.FILLED_BYTES:
        path = max(sizes, key=lambda path: sizes[path])
        took = f"{total / limits.MIB:,.1f} MiB, but the limit is {limits.FILLED_BYTES // limits.MIB} MiB"
        name = texts[path].name
        message = f"with its parameters filled in, {place} has texts of up to {took}"
        problems.add(path, message, f"read the environment instead: $DEBORGEN_PARAM_{name.upper()}", key=True)


def _longest(name: str, quoted: bool, sweep: Sweep, known: dict[tuple[str, bool], int]) -> int:
    """How many bytes a lookup of this name can become."""
    if name not in sweep.names:
        return 0
    if (name, quoted) not in known:
        spell = quote if quoted else str
        known[name, quoted] = max((len(spell(text_of(value)).encode()) for value in sweep.values(name)), default=0)
    return known[name, quoted]


def _not_a_lookup(written: str, where: Path, nth: int) -> Problem:
    """The problem of the nth `${{` in a text."""
    if not written.endswith("}}"):
        message = f"a ${{{{ in {subject(where)} is never closed"
        return Problem(where, message, "write ${{ name }}", find=OPEN, nth=nth)
    hint = "write ${{ name }}: there are no expressions"
    return Problem(where, f"'{show(written)}' is not a lookup of a name", hint, find=written)


def _explain_missing(name: str, names: tuple[str, ...], known: Known) -> tuple[str, str]:
    """Message and hint for a name that is not defined."""
    family, _, rest = name.partition(".")
    if name in GIT_FACTS:
        return (
            f"'{name}' is known only in a job that has a repository, in 'build' or 'workspace'",
            "add one, or write the value",
        )
    if family == "git":
        return f"there is no '{show(name)}'", did_you_mean(name, GIT_FACTS, f"known: {', '.join(GIT_FACTS)}")
    if family in ("env", "secrets") and rest:
        return f"'{show(name)}' cannot be looked up", f"the script can read it from its environment: ${show(rest)}"
    if rest in names:
        return f"'{show(name)}' cannot be looked up", f"write ${{{{ {rest} }}}}"
    message = f"'{show(name)}' is not a parameter of {known.place}"
    if name in known.others:
        return message, f"only step '{known.others[name]}' has it"
    listed = f"parameters: {', '.join(names[:20])}" if names else f"add sweep: {{grid: {{{show(name)}: [1, 2, 3]}}}}"
    if family in ("run", "job") and rest:
        listed = f"known: {', '.join(FACTS)}"
    return message, did_you_mean(name, [*names, *FACTS], listed)


def _check_values(reference: Reference, sweep: Sweep, problems: Problems) -> None:
    """Check the values of a parameter that becomes part of a path or of an image name."""
    for value in sweep.values(reference.name):
        text = text_of(value)
        if reference.key in ("image", "build"):
            name = image_with(reference.value, lambda other: text if other == reference.name else "1")  # noqa: B023
            reason = "is not valid in the name of an image" if check_image(name) else None
        else:
            reason = check_path(text) or next(iter(check_glob(text) or ()), None)
        if reason:
            message = f"the value '{show(text)}' of '{reference.name}' {reason}"
            hint = f"it becomes part of {subject(reference.path)}: change it"
            problems.add(reference.path, message, hint, find=reference.written)
            return
