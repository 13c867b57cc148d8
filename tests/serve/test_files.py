"""Files that are sent to be asked: read like files of the disk, told apart, limited, and kept in memory alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import contextpool as cp
from contextpool.serve import GraphSource, ModelSource, ServeSettings
from contextpool.serve.registry import Registry
from contextpool.serve.settings import MOST_ADDED
from contextpool.serve.uploads import UnreadableError, read_upload
from serve.served import TOKEN, client_of, world_graph

WORLD = [tuple(one) for one in cp.load_dataset("world").inference_graph]
BINARY = {"content-type": "application/octet-stream"}


def text(rows: Any, delimiter: str = "\t") -> bytes:
    return "".join(delimiter.join(row) + "\n" for row in rows).encode()


@pytest.fixture(scope="module")
def shipped() -> Registry:
    """The model that comes with contextpool, which takes any relation."""
    source = ModelSource("any", None)
    return Registry([source], [GraphSource("world", world_graph)])


@pytest.fixture
def client(shipped: Registry) -> Any:
    with client_of(shipped) as one:
        yield one


def send(client: TestClient, name: str, content: bytes, options: str = "", **headers: str) -> Any:
    asked = {"name": name, "options": options}
    return client.post("/graphs", params=asked, content=content, headers={**BINARY, **headers})


def test_a_file_is_asked_like_any_graph_and_is_no_file_here(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    facts = [(head.upper(), relation, tail.upper()) for head, relation, tail in WORLD]
    sent = send(client, "../../mine.tsv", text(facts))
    assert sent.status_code == 200, sent.text
    assert sent.json()["graph"]["name"] == "mine"
    assert sent.json()["graph"]["facts"] == len(facts)
    assert sent.json()["remarks"] == []
    found = client.get("/predict", params={"head": "BELARUS", "relation": "currency", "graph": "mine"}).json()
    assert found["answers"][0]["entity"] == "BELARUSIAN RUBLE"
    assert [one["name"] for one in client.get("/models").json()["graphs"]] == ["world", "mine"]
    assert list(tmp_path.iterdir()) == []
    examples = client.get("/examples", params={"graph": "mine"}).json()["examples"]
    assert all(one["head"].isupper() for one in examples)


def test_the_newest_few_are_kept_and_names_are_told_apart(client: TestClient) -> None:
    for number in range(MOST_ADDED + 2):
        sent = send(client, "same.tsv", text([("a", "r", f"b{number}"), ("c", "r", "d")]))
        assert sent.status_code == 200, sent.text
    names = [one["name"] for one in client.get("/models").json()["graphs"]]
    assert names[0] == "world"
    assert len(names) == len(set(names)) == MOST_ADDED + 1


@pytest.mark.parametrize(
    ("rows", "delimiter", "options"),
    [
        (WORLD, ";", "delimiter=;"),
        ([(head, tail, relation) for head, relation, tail in WORLD if "," not in head + tail], ",", "columns=0,2,1"),
        ([("who", "how", "whom"), *(one for one in WORLD if "," not in "".join(one))], ",", "header=yes"),
    ],
)  # fmt: skip
def test_what_looks_wrong_is_told_with_options_that_mend_it(
    client: TestClient, rows: Any, delimiter: str, options: str
) -> None:
    sent = send(client, "odd.csv", text(rows, delimiter))
    if sent.status_code == 200:
        (remark,) = sent.json()["remarks"]
        assert remark["options"] == options
        message = remark["message"]
    else:
        assert sent.status_code == 422
        (item,) = sent.json()["error"]["items"]
        assert item["closest"] == [options]
        message = item["message"]
    assert message.startswith("odd.csv:1: ")
    assert "type" not in message
    assert "/proc" not in sent.text
    mended = send(client, "odd.csv", text(rows, delimiter), options)
    assert mended.status_code == 200, mended.text
    assert mended.json()["remarks"] == []
    assert mended.json()["graph"]["relations"] == len({relation for _, relation, _ in WORLD})


@pytest.mark.parametrize(
    ("name", "content", "options", "said"),
    [
        ("graph.xlsx", b"PK\x03\x04", "", "send a file that ends in"),
        ("packed.tsv.gz", b"\x1f\x8b", "", "send a file that ends in"),
        ("zip.tsv", b"PK\x03\x04" + bytes(100), "", "ZIP archive"),
        ("empty.tsv", b"\n", "", "the line is blank"),
        ("bytes.tsv", b"\xff\xfe\x00a", "", "UTF-16"),
        ("one.tsv", b"a\tb\n", "", "2 columns"),
        ("write.tsv", b"a\tb\tc\n\n", "bad_rows=skip", "bad_rows"),
        ("query.tsv", b"a\tb\tc\n", "query=SELECT 1", "query"),
        ("nothing.tsv", b"", "", "body"),
        ("\n.tsv", b"a\n", "", ".tsv:1: 1 column"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(
    client: TestClient, name: str, content: bytes, options: str, said: str
) -> None:
    sent = send(client, name, content, options)
    assert sent.status_code == 422, sent.text
    assert said in sent.json()["error"]["message"]
    assert "/proc" not in sent.text


def test_other_sites_and_strangers_and_large_files_are_kept_out(shipped: Registry) -> None:
    fact = text([("a", "r", "b")])
    with client_of(shipped, max_upload=100) as client:
        assert send(client, "a.tsv", fact, **{"content-type": "text/plain"}).status_code == 415
        assert send(client, "a.tsv", fact * 50).status_code == 413
        assert "contextpool serve FILE" in send(client, "a.tsv", fact * 50).json()["error"]["message"]
        assert client.get("/models").json()["max_upload"] == 100
    with client_of(shipped, max_upload=0) as client:
        assert send(client, "a.tsv", fact).status_code == 403
        assert client.get("/models").json()["max_upload"] == 0
    with client_of(shipped, token=TOKEN) as client:
        assert send(client, "a.tsv", fact).status_code == 401
        assert send(client, "a.tsv", fact, authorization=f"Bearer {TOKEN}").status_code == 200


def test_who_may_be_asked_by_others_takes_files_with_a_token_alone() -> None:
    assert ServeSettings().takes_files
    assert not ServeSettings(allow_hosts=("graphs.example.org",)).takes_files
    assert ServeSettings(allow_hosts=("graphs.example.org",), token=TOKEN).takes_files
    assert ServeSettings(host="0.0.0.0", token=TOKEN).takes_files


def test_the_reader_is_the_one_of_files(tmp_path: Path) -> None:
    content = text(WORLD)
    (tmp_path / "w.tsv").write_bytes(content)
    _, graph, _ = read_upload("w.tsv", content, {})
    assert graph.triples == cp.read_graph(tmp_path / "w.tsv").triples
    with pytest.raises(UnreadableError, match=r"^w\.tsv:1: 2 columns"):
        read_upload("w.tsv", b"a\tb\n", {})
