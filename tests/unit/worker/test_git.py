"""Repositories on a worker: resolved, fetched and checked out, from real servers, also from hostile ones."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deborgen_worker.git.access import Access, Remote
from deborgen_worker.git.checkout import Source, checkout, make_links
from deborgen_worker.git.command import GitFailed, LimitReached, Unwanted
from deborgen_worker.git.mirrors import Mirrors
from support.git_server import GitServer, Repository, SshServer, http_server, ssh_server
from support.waiting import wait_until

MANY = 1 << 30


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with http_server(tmp_path / "served") as server:
        yield server


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh")) as server:
        yield server


@pytest.fixture
def new_mirrors(tmp_path: Path) -> Callable[..., Mirrors]:
    def make(budget: int = MANY, seconds: float = 120.0, **allowed: object) -> Mirrors:
        defaults: dict[str, object] = {
            "protocols": frozenset({"http", "ssh"}), "hosts": frozenset({"127.0.0.1"}), "state": tmp_path,
            "keys": tmp_path / "keys",
        }  # fmt: skip
        return Mirrors(tmp_path / "mirrors", budget, seconds, Access(**(defaults | allowed)))  # type: ignore[arg-type]

    return make


def files_of(folder: Path) -> dict[str, str]:
    return {
        str(each.relative_to(folder)): each.read_bytes().decode(errors="replace")
        for each in folder.rglob("*")
        if each.is_file()
    }


def check_out(
    mirrors: Mirrors, url: str, commit: str, folder: Path, most: int = MANY, **more: object
) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    key = str(more.pop("key", ""))
    links = checkout(mirrors, Source(Remote(url, key), commit, **more), folder, most)  # type: ignore[arg-type]
    make_links(folder, links)
    return files_of(folder)


def test_a_branch_a_tag_and_a_commit_are_resolved(server: GitServer, new_mirrors: Callable[..., Mirrors]) -> None:
    repository, mirrors = server.repository("r.git"), new_mirrors()
    first = repository.commit({"a": "1"})
    repository.git("tag", "-m", "with a message", "v1", first)
    repository.git("tag", "plain", first)
    second = repository.commit({"a": "2"})
    remote = Remote(server.url_of("r.git"))
    assert mirrors.resolve(remote, "main") == second
    assert mirrors.resolve(remote, "HEAD") == second
    assert mirrors.resolve(remote, "v1") == mirrors.resolve(remote, "plain") == first
    assert mirrors.resolve(remote, first) == first
    with pytest.raises(GitFailed, match="no branch and no tag 'gone'"):
        mirrors.resolve(remote, "gone")


def test_a_commit_is_checked_out_without_a_repository_around_it(
    server: GitServer, new_mirrors: Callable[..., Mirrors], tmp_path: Path
) -> None:
    files = {"run.sh": "echo hi", "src/a b.py": "x", "src/deep/ü.txt": "y"}
    commit = server.repository("r.git").commit(files, scripts=("run.sh",))
    out, mirrors = tmp_path / "out", new_mirrors()
    assert check_out(mirrors, server.url_of("r.git"), commit, out) == files
    assert (out / "run.sh").stat().st_mode & stat.S_IXUSR
    assert not (out / "src/a b.py").stat().st_mode & stat.S_IXUSR
    inner = check_out(mirrors, server.url_of("r.git"), commit, tmp_path / "inner", subdir="src")
    assert inner == {"a b.py": "x", "deep/ü.txt": "y"}
    assert server.fetches == 1
    with pytest.raises(GitFailed, match="no folder 'lib'"):
        check_out(mirrors, server.url_of("r.git"), commit, tmp_path / "no", subdir="lib")


def test_many_attempts_at_once_share_one_fetch(
    server: GitServer, new_mirrors: Callable[..., Mirrors], tmp_path: Path
) -> None:
    commit = server.repository("r.git").commit({"a": "1"})
    mirrors, remote = new_mirrors(), Remote(server.url_of("r.git"))
    server.answers.clear()
    found: list[dict[str, str]] = []

    def work(number: int) -> None:
        assert mirrors.resolve(remote, "main") == commit
        found.append(check_out(mirrors, remote.url, commit, tmp_path / str(number)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for each in threads:
        each.start()
    wait_until(lambda: server.requests, what="the first request")
    server.answers.set()
    for each in threads:
        each.join()
    assert found == [{"a": "1"}] * 6
    assert server.fetches == 1


def test_a_token_opens_a_private_repository_for_those_who_have_it(
    tmp_path: Path, new_mirrors: Callable[..., Mirrors]
) -> None:
    with http_server(tmp_path / "private", "git:s3cret-token") as server:
        commit = server.repository("r.git").commit({"a": "1"})
        mirrors, url = new_mirrors(), server.url_of("r.git")
        for number, key in enumerate(("s3cret-token", "git:s3cret-token\n")):
            assert mirrors.resolve(Remote(url, key), "main") == commit
            assert check_out(mirrors, url, commit, tmp_path / f"with{number}", key=key) == {"a": "1"}
        # The mirror that the key has filled is not for others, who may know the commit.
        for key in ("", "wrong"):
            with pytest.raises(GitFailed, match=r"could not read Username|Authentication failed"):
                check_out(mirrors, url, commit, tmp_path / "without", key=key)


def test_a_deploy_key_opens_a_repository_by_ssh(
    ssh: SshServer, new_mirrors: Callable[..., Mirrors], tmp_path: Path
) -> None:
    commit = Repository(ssh.folder / "r.git").commit({"a": "1"})
    url = ssh.url_of("r.git")
    mirrors = new_mirrors(known_hosts=str(ssh.known_hosts))
    assert mirrors.resolve(Remote(url, ssh.key), "main") == commit
    assert check_out(mirrors, url, commit, tmp_path / "out", key=ssh.key) == {"a": "1"}
    assert list((tmp_path / "keys").iterdir()) == []
    with pytest.raises(GitFailed, match="Permission denied"):
        mirrors.resolve(Remote(url), "main")
    stranger = tmp_path / "stranger"
    stranger.write_text("")
    with pytest.raises(GitFailed, match="Host key verification failed"):
        new_mirrors(known_hosts=str(stranger)).resolve(Remote(url, ssh.key), "main")
    trusting = new_mirrors()
    assert trusting.resolve(Remote(url, ssh.key), "main") == commit
    assert (tmp_path / "known_hosts").read_text()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ext::sh -c touch% /tmp/x", "characters that no address has"),
        ("ext::sh", "is not the URL"),
        ("file:///etc", "does not allow the protocol file"),
        ("http://localhost/x.git", "does not allow the host localhost"),
        ("http://10.1.2.3/x.git", "does not allow the host 10.1.2.3"),
        ("http://inner.example.org/x.git", "does not allow the host inner.example.org"),
        ("ssh://-oProxyCommand=x/y", "names no valid host"),
        ("http://user:word@127.0.0.1/x", "everybody could read"),
    ],
)
def test_the_owner_decides_what_is_contacted(new_mirrors: Callable[..., Mirrors], url: str, words: str) -> None:
    hosts = frozenset({"public", "127.0.0.1"})
    mirrors = new_mirrors(hosts=hosts, lookup=lambda host: ["10.0.0.7" if "inner" in host else "8.8.8.8"])
    with pytest.raises(GitFailed, match=words):
        mirrors.resolve(Remote(url), "main")


def test_a_redirect_is_not_followed(tmp_path: Path, server: GitServer, new_mirrors: Callable[..., Mirrors]) -> None:
    server.repository("r.git").commit({"a": "1"})
    with http_server(tmp_path / "other") as other:
        other.redirect = server.url
        with pytest.raises(GitFailed):
            new_mirrors().resolve(Remote(other.url_of("r.git"), "a-key"), "main")
    assert server.requests == []


def test_hooks_filters_and_attributes_execute_nothing(
    server: GitServer, new_mirrors: Callable[..., Mirrors], tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    commit = server.repository("r.git").commit(
        {
            ".gitattributes": "* filter=evil diff=evil merge=evil\n",
            ".gitconfig": f'[filter "evil"]\n\tsmudge = touch {ran}\n',
            "hooks/post-checkout": f"#!/bin/sh\ntouch {ran}\n",
            "a": "1",
        },
        scripts=("hooks/post-checkout",),
    )
    assert check_out(new_mirrors(), server.url_of("r.git"), commit, tmp_path / "out")["a"] == "1"
    assert not ran.exists()


def test_fault_77_links_stay_inside(server: GitServer, new_mirrors: Callable[..., Mirrors], tmp_path: Path) -> None:
    """Seen to fail when every link is made."""
    (tmp_path / "secret").write_text("not for you")
    links = {
        "good": "data/a", "data/up": "../b", "data/here": ".", "folder": "data", "dangling": "data/none",
        "bad": "../secret", "absolute": "/etc/passwd", "data/out": "../../secret", "long": "data/here/../../../secret",
        "loop": "loop", "root": "data/..", "through": "root/../secret",
    }  # fmt: skip
    commit = server.repository("r.git").commit({"data/a": "1", "b": "2"}, links=links)
    out = tmp_path / "out"
    check_out(new_mirrors(), server.url_of("r.git"), commit, out)
    made = {name for name in links if (out / name).is_symlink()}
    assert {"good", "data/up", "data/here", "folder", "dangling"} <= made
    assert made.isdisjoint({"bad", "absolute", "data/out", "long", "through"})
    assert (out / "bad").read_text() == "../secret"
    assert (out / "data/up").read_text() == "2"


def test_files_that_were_laid_over_do_not_become_links(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("b")
    (tmp_path / "link").write_text("a")
    make_links(tmp_path, ["a", "link"], others=["a"])
    assert (tmp_path / "a").read_text() == "b"
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("a\nb", "do not print"), ("a\x1b[2J", "do not print"), (".deborgen/result.json", "belongs to deborgen"),
        ("a\\b", "backslash"),
    ],
)  # fmt: skip
def test_names_that_do_harm_are_refused(
    server: GitServer, new_mirrors: Callable[..., Mirrors], tmp_path: Path, path: str, words: str
) -> None:
    commit = server.repository("r.git").commit({path: "1"})
    with pytest.raises(GitFailed, match=words) as refused:
        check_out(new_mirrors(), server.url_of("r.git"), commit, tmp_path / "out")
    assert str(refused.value).isprintable()
    assert files_of(tmp_path / "out") == {}


@pytest.mark.parametrize("name", [".git", "..", "GIT~1"])
def test_trees_that_git_itself_forbids_are_refused(
    server: GitServer, new_mirrors: Callable[..., Mirrors], tmp_path: Path, name: str
) -> None:
    commit = server.repository("r.git").commit({f"{name}/config": "[core]\n\tfsmonitor = touch /tmp/x\n"})
    with pytest.raises(GitFailed):
        check_out(new_mirrors(), server.url_of("r.git"), commit, tmp_path / "out")
    assert files_of(tmp_path / "out") == {}


def test_submodules_come_along_if_they_are_wanted(
    server: GitServer, new_mirrors: Callable[..., Mirrors], tmp_path: Path
) -> None:
    inner = server.repository("inner.git").commit({"x": "inner"})
    outer = server.repository("outer.git")
    text = '[submodule "lib"]\n\tpath = third/lib\n\turl = ../inner.git\n'
    commit = outer.commit({"a": "1", ".gitmodules": text}, submodules={"third/lib": inner})
    mirrors, url = new_mirrors(), server.url_of("outer.git")
    with_them = check_out(mirrors, url, commit, tmp_path / "with", submodules=True)
    assert with_them == {"a": "1", ".gitmodules": text, "third/lib/x": "inner"}
    assert "third/lib/x" not in check_out(mirrors, url, commit, tmp_path / "without")
    below = check_out(mirrors, url, commit, tmp_path / "below", submodules=True, subdir="third")
    assert below == {"lib/x": "inner"}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ext::sh -c touch% ran", "characters"), ("file:///etc", "protocol file"), ("/etc", "not the URL"),
        ("--upload-pack=touch", "disallowed"), ("http://192.168.7.7/x", "host 192.168.7.7"),
        ("http:" + ":" * 5000, "disallowed"),
    ],
)  # fmt: skip
def test_fault_77_a_submodule_is_checked_like_the_repository(
    server: GitServer, new_mirrors: Callable[..., Mirrors], tmp_path: Path, url: str, words: str
) -> None:
    """Seen to fail when every protocol is allowed."""
    text = f'[submodule "lib"]\n\tpath = lib\n\turl = "{url}"\n'
    commit = server.repository("r.git").commit({".gitmodules": text}, submodules={"lib": "1" * 40})
    with pytest.raises(GitFailed, match=words):
        check_out(new_mirrors(), server.url_of("r.git"), commit, tmp_path / "out", submodules=True)


def test_a_key_is_not_shown_to_the_server_of_a_submodule(tmp_path: Path, new_mirrors: Callable[..., Mirrors]) -> None:
    with http_server(tmp_path / "one", "git:s3cret") as private, http_server(tmp_path / "two") as other:
        inner = other.repository("inner.git").commit({"x": "1"})
        text = f'[submodule "lib"]\n\tpath = lib\n\turl = {other.url_of("inner.git")}\n'
        commit = private.repository("r.git").commit({".gitmodules": text}, submodules={"lib": inner})
        url = private.url_of("r.git")
        found = check_out(new_mirrors(), url, commit, tmp_path / "out", submodules=True, key="s3cret")
        assert found["lib/x"] == "1"
        assert other.requests
        assert {given for _, given in other.requests} == {""}


def test_submodules_that_contain_themselves_end(
    server: GitServer, new_mirrors: Callable[..., Mirrors], tmp_path: Path
) -> None:
    repository = server.repository("r.git")
    text = '[submodule "r"]\n\tpath = r\n\turl = ./\n'
    commit = "1" * 40
    for _ in range(8):
        commit = repository.commit({".gitmodules": text.replace("./", "../r.git")}, submodules={"r": commit})
    with pytest.raises(GitFailed, match="levels"):
        check_out(new_mirrors(), server.url_of("r.git"), commit, tmp_path / "out", submodules=True)


def test_a_checkout_that_does_not_fit_writes_nothing(
    server: GitServer, new_mirrors: Callable[..., Mirrors], tmp_path: Path
) -> None:
    commit = server.repository("r.git").commit({"zeros": bytes(50 << 20)})
    with pytest.raises(LimitReached, match="does not fit on the job's disk"):
        check_out(new_mirrors(), server.url_of("r.git"), commit, tmp_path / "out", most=1 << 20)
    assert files_of(tmp_path / "out") == {}


def test_fault_77_a_server_that_never_ends_its_pack_is_stopped_at_the_limit(
    server: GitServer, new_mirrors: Callable[..., Mirrors], tmp_path: Path
) -> None:
    """Seen to fail when nobody looks at the size of what has arrived."""
    commit = server.repository("r.git").commit({"a": "1"})
    server.endless = True
    mirrors = new_mirrors(budget=2 << 20)
    with pytest.raises(LimitReached, match="more than 2MiB, the owner's limit"):
        check_out(mirrors, server.url_of("r.git"), commit, tmp_path / "out")
    stored = sum(each.stat().st_size for each in (tmp_path / "mirrors").rglob("*") if each.is_file())
    assert stored < 1 << 20
    server.endless = False
    assert check_out(mirrors, server.url_of("r.git"), commit, tmp_path / "out") == {"a": "1"}


def test_fault_76_a_server_that_hangs_is_left_after_the_time_limit(
    server: GitServer, new_mirrors: Callable[..., Mirrors]
) -> None:
    """Seen to fail when a command of git may take as long as it likes."""
    server.repository("r.git").commit({"a": "1"})
    server.answers.clear()
    with pytest.raises(LimitReached, match="has not ended after 1s"):
        new_mirrors(seconds=1.0).resolve(Remote(server.url_of("r.git")), "main")


def test_a_fetch_ends_when_nobody_wants_it_any_more(server: GitServer, new_mirrors: Callable[..., Mirrors]) -> None:
    server.repository("r.git").commit({"a": "1"})
    server.answers.clear()
    with pytest.raises(Unwanted):
        new_mirrors().resolve(Remote(server.url_of("r.git")), "main", lambda: not server.requests)


def test_fault_76_a_cut_clone_leaves_a_whole_mirror(
    server: GitServer, new_mirrors: Callable[..., Mirrors], tmp_path: Path
) -> None:
    """Seen to fail when what a killed fetch has left behind stays."""
    commit = server.repository("r.git").commit({"a": bytes(range(256)) * 400})
    server.cut_after = 150
    mirrors, url = new_mirrors(), server.url_of("r.git")
    with pytest.raises(GitFailed):
        check_out(mirrors, url, commit, tmp_path / "out")
    [mirror] = [each for each in (tmp_path / "mirrors").iterdir() if not each.name.startswith(".")]
    assert not list(mirror.glob("objects/pack/tmp_*"))
    # What a killed fetch leaves behind
    (mirror / "shallow.lock").write_text("")
    (mirror / "objects/pack/tmp_pack_x").write_text("half")
    server.cut_after = None
    (tmp_path / "out2").mkdir()
    checkout(mirrors, Source(Remote(url), commit), tmp_path / "out2", MANY)
    assert (tmp_path / "out2" / "a").stat().st_size == 256 * 400
    assert not list(mirror.glob("objects/pack/tmp_*"))


def test_a_damaged_mirror_is_made_again(server: GitServer, new_mirrors: Callable[..., Mirrors], tmp_path: Path) -> None:
    commit = server.repository("r.git").commit({"a": "1"})
    mirrors, url = new_mirrors(), server.url_of("r.git")
    check_out(mirrors, url, commit, tmp_path / "one")
    [pack] = (tmp_path / "mirrors").rglob("*.pack")
    pack.chmod(0o600)
    pack.write_bytes(b"PACK" + bytes(100))
    assert check_out(mirrors, url, commit, tmp_path / "two") == {"a": "1"}
    assert server.fetches == 2


def test_the_least_recently_used_mirror_goes_first(
    server: GitServer, new_mirrors: Callable[..., Mirrors], tmp_path: Path
) -> None:
    data = {name: os.urandom(300_000) for name in ("one", "two", "three")}
    commits = {name: server.repository(name).commit({"a": content}) for name, content in data.items()}
    mirrors = new_mirrors(budget=800_000)

    def use(name: str) -> None:
        (tmp_path / "out" / name).mkdir(parents=True, exist_ok=True)
        checkout(mirrors, Source(Remote(server.url_of(name)), commits[name]), tmp_path / "out" / name, MANY)

    use("one")
    use("two")
    use("one")
    use("three")
    assert server.fetches == 3
    use("one")
    assert server.fetches == 3
    use("two")
    assert server.fetches == 4


def test_a_repository_larger_than_the_budget_is_refused(
    server: GitServer, new_mirrors: Callable[..., Mirrors], tmp_path: Path
) -> None:
    commit = server.repository("r.git").commit({"a": os.urandom(600_000)})
    with pytest.raises(LimitReached, match=r"more than 0.5MiB|owner's limit"):
        check_out(new_mirrors(budget=500_000), server.url_of("r.git"), commit, tmp_path / "out")
    assert not list((tmp_path / "mirrors").rglob("*.pack"))


def test_a_server_that_gives_only_its_branches_is_asked_for_them(
    server: GitServer, new_mirrors: Callable[..., Mirrors], tmp_path: Path
) -> None:
    repository = server.repository("r.git")
    commit = repository.commit({"a": "1"})
    with pytest.raises(GitFailed, match=r"not our ref|unadvertised|bad object|not a valid"):
        check_out(new_mirrors(), server.url_of("r.git"), "1" * 40, tmp_path / "none")
    assert check_out(new_mirrors(), server.url_of("r.git"), commit, tmp_path / "out") == {"a": "1"}
