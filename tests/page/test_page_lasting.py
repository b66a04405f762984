"""Bookmarks live, and other users of the machine learn no token and could do nothing with one."""

import os
import re
import socket
import stat
import threading
import webbrowser
from pathlib import Path

import pytest

import hookline
from hookline.page import keeping, neighbours
from hookline.page.browser import Door
from tests.support.pages import Client, layers

posix = pytest.mark.skipif(os.name != "posix", reason="files have no modes here")


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return layers(tmp_path / "a").parent


def test_a_bookmark_lives_when_the_page_is_served_again(runs):
    with hookline.serve(runs, lasting=True) as server:
        first, client = server.url, Client(server.url)
        _, headers, _ = client.send("GET", f"/?token={client.token}", cookie=None)
        assert "Max-Age=2592000" in headers["Set-Cookie"] and "SameSite=strict" in headers["Set-Cookie"]
        assert server.note is None
    with hookline.serve(runs, lasting=True) as server:
        assert server.url == first
        assert client.send("GET", "/?run=a")[0] == 200, "with the cookie of before"


def test_each_folder_and_port_has_a_token_of_its_own(runs, tmp_path):
    folders = [tmp_path, runs / "a", tmp_path / "other"]
    tokens = {keeping.token_of(folder, port) for folder in folders[1:] for port in (1, 2)}
    assert len(tokens) == 4 and all(re.fullmatch(r"[\w-]{32}", token) for token in tokens)
    assert len({keeping.port_of(folder) for folder in folders}) == 3
    with hookline.serve(runs) as plain, hookline.serve(runs, lasting=True) as kept:
        assert Client(plain.url).token != Client(kept.url).token
        _, headers, _ = Client(plain.url).send("GET", f"/?token={Client(plain.url).token}", cookie=None)
        assert "Max-Age" not in headers["Set-Cookie"], "a token of one page ends with it"


def test_a_port_that_is_taken_is_told_and_another_is_used(runs):
    with hookline.serve(runs, lasting=True) as first, hookline.serve(runs, lasting=True) as second:
        assert first.url != second.url and "is taken" in second.note
        assert Client(second.url).get("/api/runs")[0] == 200
        port = Client(first.url).port
        assert Client(second.url).send("GET", "/", cookie=f"hookline-{port}={Client(first.url).token}")[0] == 401


@posix
def test_the_key_is_readable_by_its_user_alone(runs):
    token = keeping.token_of(runs, 1)
    file = keeping.state_folder() / "page-key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert list(file.parent.iterdir()) == [file] and token == keeping.token_of(runs, 1)
    file.chmod(0o644)
    with hookline.serve(runs, lasting=True) as server:
        assert "not readable by you alone" in server.note and Client(server.url).token != token
        assert Client(server.url).get("/api/runs")[0] == 200


@posix
@pytest.mark.parametrize("spoilt", ["short", "link", "folder", "no place"])
def test_a_key_that_can_not_be_used_costs_bookmarks_only(runs, tmp_path, monkeypatch, spoilt):
    file = keeping.state_folder() / "page-key"
    file.parent.mkdir(parents=True)
    if spoilt == "short":
        file.touch(0o600)
    elif spoilt == "link":
        (tmp_path / "elsewhere").write_bytes(b"x" * 32)
        file.symlink_to(tmp_path / "elsewhere")
    elif spoilt == "folder":
        file.mkdir()
    else:
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with hookline.serve(runs, lasting=True) as server:
        assert "bookmarks end with this page" in server.note
        assert Client(server.url).get("/api/runs")[0] == 200


def test_two_that_start_at_once_have_the_same_key(runs):
    found, gate = [], threading.Barrier(8)

    def make():
        gate.wait()
        found.append(keeping.token_of(runs, 1))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1


def test_the_browser_is_started_without_the_token(runs, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    with hookline.serve(runs, lasting=True) as server:
        token = Client(server.url).token
        assert server.open()
        (address,) = opened
        assert address.startswith("file://") and token not in address
        file = Path(address.removeprefix("file://"))
        if os.name == "posix":
            assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert token in file.read_text()
        Client(server.url).send("GET", f"/?token={token}", cookie=None)
        assert not file.parent.exists(), "it is gone when it was used"
        server.open()
        left = Path(opened[-1].removeprefix("file://"))
        assert left.exists()
    assert not left.parent.exists(), "and at the end"


def test_an_address_with_html_in_it_stays_one(tmp_path):
    door = Door('http://127.0.0.1:1/?token=x&run="><script>')
    text = door.file.read_text()
    door.remove()
    door.remove()
    assert "<script>" not in text and "&amp;run=&quot;" in text


NAVIGATION = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}


def test_a_local_file_may_lead_to_the_page_if_it_knows_the_token(runs):
    with hookline.serve(runs) as server:
        client = Client(server.url)
        status, headers, body = client.send("GET", f"/?token={client.token}&run=a", cookie=None, **NAVIGATION)
        assert status == 200 and b'content="0; url=/?run=a"' in body and client.token in headers["Set-Cookie"]
        nasty = f"/?token={client.token}&run=%22%3E%3Cscript%3E"
        assert b"<script>" not in client.send("GET", nasty, cookie=None, **NAVIGATION)[2]
        for wrong in ("/", "/?token=wrong", "/api/runs"):
            assert client.send("GET", wrong, **NAVIGATION)[0] == 403
        for other in ({"sec_fetch_dest": "iframe"}, {"sec_fetch_mode": "no-cors"}, {"origin": "null"}):
            changed = {**NAVIGATION, **other}
            assert client.send("GET", f"/?token={client.token}", cookie=None, **changed)[0] == 403


needs_root = pytest.mark.skipif(
    not Path("/proc/net/tcp").exists() or os.name != "posix" or os.getuid() != 0,
    reason="only root can become another user, and only Linux tells whose a connection is",
)


def connected_as(uid, port):
    """(address of the client, function that ends it): a connection of a process of that user."""
    told, tell = os.pipe()
    end, ended = os.pipe()
    child = os.fork()
    if not child:
        os.setuid(uid)
        with socket.create_connection(("127.0.0.1", port)) as connection:
            os.write(tell, str(connection.getsockname()[1]).encode())
            os.close(ended)
            os.read(end, 1)
        os._exit(0)
    client = ("127.0.0.1", int(os.read(told, 20)))
    os.close(end)

    def finish():
        os.close(ended)
        os.waitpid(child, 0)

    return client, finish


@needs_root
@pytest.mark.parametrize(("uid", "strange"), [(1234, True), (4321, False), (0, False)])
def test_the_system_tells_whose_a_connection_is(monkeypatch, uid, strange):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = listening.getsockname()
        client, finish = connected_as(uid, server[1])
        try:
            monkeypatch.setattr(os, "getuid", lambda: 4321)
            assert neighbours.is_stranger(client, server) is strange
        finally:
            finish()


def test_a_stranger_gets_nothing_even_with_the_token(runs, monkeypatch):
    monkeypatch.setattr(neighbours, "_owner", lambda client, server: 1234)
    monkeypatch.setattr(os, "getuid", lambda: 4321, raising=False)
    with hookline.serve(runs) as server:
        client = Client(server.url)
        for target in ("/", "/api/runs", f"/?token={client.token}"):
            status, _, body = client.send("GET", target)
            assert status == 403 and b"another user" in body
    with hookline.serve(runs, host="0.0.0.0") as server:  # a page for others as well
        port, _, token = server.url.rpartition(":")[2].partition("/?token=")
        assert Client(f"http://127.0.0.1:{port}/?token={token}").get("/api/runs")[0] == 200


def test_where_the_system_does_not_tell_the_token_decides(monkeypatch):
    monkeypatch.setattr(neighbours, "TABLES", (Path("/nowhere"),))
    monkeypatch.setattr(os, "getuid", lambda: 4321, raising=False)
    assert neighbours.is_stranger(("127.0.0.1", 1), ("127.0.0.1", 2)) is False
    assert neighbours.is_stranger(("::1", 1), ("::1", 2)) is False
