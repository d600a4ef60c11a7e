"""Submitting: exactly once, uploading only missing files, with an exit code that says how the run ended."""

from __future__ import annotations

import hashlib
import json
import random
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from support.person import Person
from support.pool import Pool

HELLO = "run: echo hello\n"
MIXED = "run: exit ${{ code }}\nsweep: {grid: {code: [0, 3]}}\n"


def test_in_a_pipe_submit_prints_the_number_of_the_run_and_nothing_else(anna: Person) -> None:
    first = int(anna.submit(HELLO))
    assert int(anna.submit(HELLO)) == first + 1


def test_wait_and_the_exit_code_say_how_it_ended(anna: Person) -> None:
    anna.submit(HELLO, "--wait")
    anna.submit("run: exit 3\n", "--wait", code=10)
    anna.submit("run: exit ${{ code }}\nsweep: {grid: {code: [1, 2]}}\n", "--wait", code=10)
    anna.submit(MIXED, "--wait", code=14)


def test_with_wait_the_json_says_how_it_ended(anna: Person) -> None:
    """Seen to fail in release 0.1, which printed the state at submission."""
    anna.write("job.yml", "run: exit 3\n")
    run = json.loads(anna.out("submit", "job.yml", "--json", "--wait", code=10))["run"]
    assert run["state"] == "failed"


def test_an_image_and_a_number_of_attempts_replace_those_of_the_file_and_of_its_steps(anna: Person) -> None:
    steps = "steps:\n  - {id: a, run: 'true', image: alpine}\n  - {id: b, run: 'true', max_attempts: 9}\n"
    run = anna.submit(steps, "--image", "busybox:1", "--max-attempts", "4")
    jobs = [json.loads(anna.out("show", f"{run}.{index}", "--json"))["job"] for index in (1, 2)]
    assert [(job["spec"]["image"], job["max_attempts"]) for job in jobs] == [("busybox:1", 4)] * 2
    anna.out("cancel", run)
    said = anna.err("submit", "job.yml", "--image", "Ubuntu:1", code=2)
    assert "'Ubuntu:1' is not the name of an image: it has capital letters; write ubuntu:1" in said


def test_a_command_takes_a_number_of_attempts(anna: Person) -> None:
    run = anna.out("run", "--max-attempts", "7", "--detach", "--", "true").strip()
    assert json.loads(anna.out("show", f"{run}.1", "--json"))["job"]["max_attempts"] == 7


def test_a_parameter_with_a_typing_mistake_is_a_warning(anna: Person) -> None:
    """Seen to fail in release 0.1, which added the axis silently."""
    anna.write("job.yml", "run: 'true'\nsweep: {grid: {seed: [1]}, exclude: [{seed: 7}]}\n")
    said = anna.err("check", "job.yml", "-p", "sed=1..3", code=0)
    assert "warning: -p sed adds a parameter that the job file does not use; did you mean seed?" in said
    assert "warning: no combination matches the exclude {seed: 7}" in said


def test_a_range_that_is_empty_points_at_the_option(anna: Person) -> None:
    """Seen to fail in release 0.1, which pointed at a line of the job file that is right."""
    anna.write("job.yml", "run: 'true'\nsweep: {grid: {seed: [1]}}\n")
    said = anna.err("submit", "job.yml", "-p", "seed=5..1", code=2)
    assert "'-p' / '--param': seed: the range 5..1 is empty: write 1..5, or 5..1..-1" in said


def test_an_unclosed_lookup_is_reported_where_it_opens(anna: Person) -> None:
    """Seen to fail when the last text that looks like it was reported: the lookup on the next line, which is closed."""
    anna.write("job.yml", "run: |\n  echo ${{ seed\n  echo ${{ seed }}\nsweep: {grid: {seed: [1]}}\n")
    said = anna.err("check", "job.yml", code=3)
    assert said.startswith("job.yml:2:8: a ${{ in 'run' is never closed\n  2|   echo ${{ seed\n   |        ^^^ ")


def test_words_that_can_never_work_are_refused_by_check(anna: Person) -> None:
    """Seen to fail in release 0.1: the image was an error of the worker, and unknown keys had no suggestion."""
    anna.write("job.yml", "run: ls\nimage: Ubuntu:Latest\n")
    said = anna.err("check", "job.yml", code=3)
    assert "job.yml:2:8: 'Ubuntu:Latest' is not the name of an image: it has capital letters" in said
    assert "write ubuntu:Latest" in said
    anna.write("job.yml", "run: ls\nsweep: {grid: {a: {start: 1, stop: 4}}}\n")
    said = anna.err("check", "job.yml", code=3)
    assert "write from: instead" in said
    assert "write to: instead" in said


def test_a_parameter_that_is_given_twice_is_refused(anna: Person) -> None:
    """Seen to fail when the last one silently won."""
    anna.write("job.yml", "run: 'true'\nsweep: {grid: {seed: [1]}}\n")
    for words in (["submit", "job.yml"], ["check", "job.yml"], ["run"]):
        said = anna.err(*words, "-p", "seed=1", "-p", "seed=2", *(["--", "true"] if words == ["run"] else []), code=2)
        assert "'-p' / '--param': seed is given twice: write all its values once, as in seed=1,2" in said


def test_a_wrong_value_of_run_names_its_option(anna: Person) -> None:
    """Seen to fail in release 0.1, which named a key of a job file that does not exist."""
    said = anna.err("run", "--memory", "4G", "--", "true", code=3)
    assert "--memory is not a size; write 4GiB" in said


def test_the_end_of_a_watch_speaks_of_files_only_if_there_are_some(anna: Person) -> None:
    """Seen to fail in release 0.1, which always spoke of files."""
    anna.write("without.yml", "run: 'true'\n")
    anna.write("with.yml", "run: touch out\nartifacts: [out]\n")
    assert "artifacts pull" not in anna.err("submit", "without.yml", "--watch", code=0)
    assert "artifacts pull" in anna.err("submit", "with.yml", "--watch", code=0)


def test_files_may_be_patterns(anna: Person) -> None:
    """Seen to fail in release 0.1, which looked for a file of that name."""
    for name in ("tables/a.csv", "tables/b.csv", "tables/c.txt"):
        anna.write(name, name)
    run = anna.submit("run: ls tables\nfiles: ['tables/*.csv']\n", "--wait")
    assert anna.out("logs", run).split() == ["a.csv", "b.csv"]
    anna.write("nothing.yml", "run: ls\nfiles: ['tables/*.pdf']\n")
    assert "'tables/*.pdf' matches nothing" in anna.err("check", "nothing.yml", code=3)


def test_a_failure_is_reported_with_the_next_command(anna: Person) -> None:
    anna.write("job.yml", MIXED)
    said = anna.err("submit", "job.yml", "--wait", code=14)
    assert "error: 1 of 2 jobs of run" in said
    assert "deborgen logs" in said


def test_standard_input_is_a_job_file_too(anna: Person) -> None:
    run = anna.out("submit", "-", "--wait", stdin=b"run: echo from stdin\n").strip()
    assert anna.out("logs", run) == "from stdin\n"
    assert json.loads(anna.out("show", run, "--json"))["run"]["name"] == "stdin"


def test_parameters_override_and_add_axes(anna: Person) -> None:
    text = "run: echo ${{ seed }} $DEBORGEN_PARAM_X\nsweep: {grid: {seed: [1, 2]}}\n"
    run = anna.submit(text, "-p", "seed=5..7", "-p", "x=a,b", "--wait")
    rows = anna.rows("results", run)
    assert [(row["seed"], row["x"]) for row in rows] == [(s, x) for s in "567" for x in "ab"]
    assert anna.out("logs", f"{run}.6") == "7 b\n"


def test_follow_prints_what_the_job_writes(anna: Person) -> None:
    anna.write("job.yml", "run: for i in 1 2 3; do echo line $i; sleep 0.2; done\n")
    assert anna.out("submit", "job.yml", "--follow").splitlines()[1:] == ["line 1", "line 2", "line 3"]


def test_following_several_jobs_puts_the_job_before_each_line(anna: Person) -> None:
    anna.write("job.yml", "run: echo a; echo b\nsweep: {grid: {x: [1, 2, 3]}}\n")
    run, *lines = anna.out("submit", "job.yml", "--follow").splitlines()
    assert sorted(lines) == sorted(f"{run}.{x} | {text}" for x in (1, 2, 3) for text in "ab")


def test_watch_in_a_pipe_is_plain_lines_on_stderr(anna: Person) -> None:
    anna.write("job.yml", MIXED)
    done = anna.run("submit", "job.yml", "--watch")
    run = done.stdout.decode().strip()
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 14
    assert f"run {run}: 2/2 done (1 succeeded, 1 failed)" in lines
    assert any(line.startswith(f"{run}.2 (code=3) failed: ") for line in lines)
    assert b"\x1b" not in done.stderr


def test_only_missing_files_are_uploaded(anna: Person) -> None:
    anna.write("data/a.txt", "content of a\n")
    anna.write("data/b.txt", "content of b\n")
    anna.write("data/ignored.tmp", "x" * 1000)
    anna.write("data/.gitignore", "*.tmp\n")
    text = "run: cat data/*\nfiles: [data/]\n"
    anna.write("job.yml", text)
    before = json.loads(anna.out("check", "job.yml", "--json"))["plan"]
    assert (before["files"], before["bytes"], before["missing_bytes"]) == (3, 32, 32)
    run = anna.submit(text, "--wait")
    assert anna.out("logs", run) == "content of a\ncontent of b\n"
    assert json.loads(anna.out("check", "job.yml", "--json"))["plan"]["missing_bytes"] == 0
    anna.write("data/b.txt", "other content\n")
    assert json.loads(anna.out("check", "job.yml", "--json"))["plan"]["missing_bytes"] == 14


def test_a_wrong_file_submits_nothing(anna: Person) -> None:
    newest = anna.submit(HELLO)
    anna.write("job.yml", "run: ls\nfiles: [nothing.txt]\ntimeout: 5\n")
    said = anna.err("submit", "job.yml", code=3)
    assert "job.yml:2:9: the file 'nothing.txt' does not exist" in said
    assert "job.yml:3:10: 'timeout' is not a duration" in said
    assert said.endswith("2 problems, nothing was submitted.\n")
    assert anna.rows("list", "-n", "1")[0]["run"] == newest


def test_a_job_that_no_worker_can_run_is_a_warning(pool: Pool, anna: Person) -> None:
    anna.write("job.yml", "run: ls\nrequires: {gpu: rtx*}\n")
    assert "warning: no worker can run this: box has no label 'gpu'" in anna.run("check", "job.yml").stderr.decode()
    run = anna.submit("run: ls\nrequires: {gpu: rtx*}\n")
    assert "has no label 'gpu', the job requires gpu: rtx*" in anna.out("why", run)
    anna.out("cancel", run)


def test_a_sweep_over_the_limit_is_refused_before_anything_is_sent(anna: Person) -> None:
    anna.write("job.yml", "run: ls\nsweep: {grid: {a: {from: 1, to: 1000}, b: {from: 1, to: 1000}}}\n")
    assert "job.yml:2" in anna.err("submit", "job.yml", code=3)


def test_the_same_key_is_the_same_run(anna: Person) -> None:
    first = anna.submit(HELLO, "--key", "once")
    assert anna.submit(HELLO, "--key", "once") == first
    anna.write("job.yml", "run: echo other\n")
    assert "error:" in anna.err("submit", "job.yml", "--key", "once", code=7)


@contextmanager
def lossy_proxy(port: int, lose: Callable[[bytes], bool], cut_after: int = 0) -> Iterator[str]:
    """A proxy to the coordinator. It loses the answers to the requests that `lose` selects; with `cut_after`, it cuts
    the connection once, after this many bytes of a request."""
    server = socket.create_server(("127.0.0.1", 0))
    state = {"cut": cut_after}

    def carry(here: socket.socket) -> None:
        with here, socket.create_connection(("127.0.0.1", port)) as there:
            lost = threading.Event()

            def back() -> None:
                with suppress(OSError):
                    while data := there.recv(65536):
                        if lost.is_set():
                            here.shutdown(socket.SHUT_RDWR)
                            return
                        here.sendall(data)

            answers = threading.Thread(target=back, daemon=True)
            answers.start()
            carried = 0
            with suppress(OSError):
                while data := here.recv(65536):
                    if lose(data):
                        lost.set()
                    carried += len(data)
                    there.sendall(data)
                    if state["cut"] and carried > state["cut"]:
                        state["cut"] = 0
                        # Return nothing, and close the connection once the coordinator has stored what it received.
                        lost.set()
                        there.shutdown(socket.SHUT_WR)
                        answers.join(20)
                        return

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=carry, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.close()


def port_of(pool: Pool) -> int:
    return int(pool.coordinator.url.rsplit(":", 1)[1])


def test_fault_04_a_submit_whose_answer_was_lost_is_one_run(pool: Pool) -> None:
    """Seen to fail when the idempotency key is ignored."""
    ben = pool.person("ben")
    seen: list[bytes] = []

    def is_the_first_submit(data: bytes) -> bool:
        if data.startswith(b"POST /v1/runs"):
            seen.append(data)
        return len(seen) == 1

    with lossy_proxy(port_of(pool), is_the_first_submit) as url:
        ben.environment["DEBORGEN_URL"] = url
        run = ben.submit(HELLO)
        assert len(seen) == 2
        assert [row["run"] for row in ben.rows("list", "--submitter", "ben")] == [run]


def test_fault_19_an_upload_that_is_cut_is_resumed(pool: Pool) -> None:
    """Seen to fail when an interrupted upload is discarded."""
    gina = pool.person("gina")
    content = random.Random(1).randbytes(6_000_000)
    (gina.folder / "big.bin").write_bytes(content)
    offsets: list[bytes] = []

    def note_the_offset(data: bytes) -> bool:
        offsets.extend(re.findall(rb"(?i)^PATCH .*?^Upload-Offset: (\d+)", data, re.DOTALL | re.MULTILINE))
        return False

    with lossy_proxy(port_of(pool), note_the_offset, cut_after=3_000_000) as url:
        gina.environment["DEBORGEN_URL"] = url
        run = gina.submit("run: sha256sum big.bin\nfiles: [big.bin]\n", "--wait")
    assert log_of(pool, gina, run).split()[0] == hashlib.sha256(content).hexdigest()
    assert len(offsets) == 1
    assert 0 < int(offsets[0]) < len(content), "it went on where it was cut, and not from the start"


def log_of(pool: Pool, person: Person, run: str) -> str:
    person.environment["DEBORGEN_URL"] = pool.coordinator.url
    return person.out("logs", run)


def test_a_one_off_command_runs_and_its_output_comes_back(anna: Person) -> None:
    assert anna.out("run", "--", "echo", "two words", "$HOME;") == "two words $HOME;\n"
    assert anna.out("run", "-e", "WHO=me", "--", "sh", "-c", "echo $WHO") == "me\n"
    anna.out("run", "--", "false", code=10)
    anna.write("tool.sh", "echo made > out.txt; cat out.txt\n")
    assert anna.out("run", "-F", "tool.sh", "-a", "out.txt", "--", "sh", "tool.sh") == "made\n"
    assert anna.rows("artifacts", "list", "last")[0]["path"] == "out.txt"
    assert anna.out("run", "-d", "--", "true").strip().isdigit()


def test_a_one_off_can_be_swept(anna: Person) -> None:
    lines = anna.out("run", "-p", "x=1..3", "--", "echo", "x is ${{ x }}").splitlines()
    assert sorted(line.split(" | ")[1] for line in lines) == ["x is 1", "x is 2", "x is 3"]


@pytest.mark.parametrize(
    "words", [["run"], ["submit"], ["submit", "-p", "x", "f"], ["run", "--cpus", "many", "--", "ls"]]
)
def test_wrong_usage_is_exit_code_2(anna: Person, words: list[str]) -> None:
    assert "Usage:" in anna.err(*words, code=2)
