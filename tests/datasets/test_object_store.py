"""How an `ObjectStoreDataset` is built, what it refuses, and what it tells and keeps to itself."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import textwrap
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feedline.datasets.fetching.retry import Retry
from feedline.datasets.kind import dataset_kind
from feedline.datasets.object_store import ObjectStoreDataset
from feedline.errors import FetchError, MissingExtraError, OptionError
from servers.azure import AzureEmulator
from servers.emulator_processes import free_port
from servers.s3_faults import FaultyStore, answer

obstore = pytest.importorskip("obstore", reason="obstore is not installed")
pytest_plugins = ("servers.object_store_fixtures",)

SECRET = "vErY-sEcReT"


@pytest.fixture
def store() -> Any:
    memory = obstore.store.MemoryStore()
    for index in range(3):
        obstore.put(memory, f"{index}", f"item {index}".encode())
    return memory


def fetch(dataset: ObjectStoreDataset, index: Any = 0) -> bytes:
    async def bounded() -> bytes:
        async with asyncio.timeout(60):
            return await dataset[index]

    return asyncio.run(bounded())


def error_of(dataset: ObjectStoreDataset, index: Any = 0) -> FetchError:
    with pytest.raises(FetchError) as caught:
        fetch(dataset, index)
    return caught.value


def everything_told_by(error: BaseException) -> str:
    facts = "".join(f"{name}={value!r} " for name, value in vars(error).items())
    return f"{error} {error!r} {facts} {''.join(traceback.format_exception(error))} {error.__context__!r}"


# Keys and ranges


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/a",
        "a/",
        "//a",
        "a//b",
        ".",
        "..",
        "./a",
        "a/.",
        "a/../b",
        "../a",
        "a\nb",
        "a\0b",
        "a\x7fb",
        "\x1f",
        "\ud800",
    ],
)
def test_a_key_that_would_be_tidied_or_can_not_be_named_is_refused_when_built(store: Any, key: str) -> None:
    with pytest.raises(OptionError, match=r"^keys\[1\]: "):
        ObjectStoreDataset(store, ["fine", key])
    with pytest.raises(OptionError, match=r"^ranges\[0\]: "):
        ObjectStoreDataset(store, ranges=[(key, 0, 1)])


@pytest.mark.parametrize("keys", ["one key", b"one key", {"a", "b"}, {"a": 1}, 7, [b"bytes"], [7], [None]])
def test_keys_of_a_wrong_type_are_refused_when_built(store: Any, keys: Any) -> None:
    with pytest.raises(TypeError, match="keys"):
        ObjectStoreDataset(store, keys)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("k", 5, 4), r"^ranges\[0\]: the range 5 to 4 of 'k' ends before it starts"),
        (("k", 0, 1001), "has 1001 bytes, more than max_bytes=1000"),
        (("k", -1, 4), "start of a range must be from 0 to"),
        (("k", 0, 2**63), "end of a range must be from 0 to"),
    ],
)
def test_a_range_that_can_not_be_is_refused_when_built(store: Any, wrong: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ObjectStoreDataset(store, ranges=[wrong], max_bytes=1000)


@pytest.mark.parametrize(
    "wrong", ["key", ("k", 0), ("k", 0, 1, 2), ("k", 0, 1.0), ("k", True, 2), ("k", "0", "1"), (7, 0, 1)]
)
def test_a_range_of_a_wrong_type_is_refused_when_built(store: Any, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^ranges\[0\]: "):
        ObjectStoreDataset(store, ranges=[wrong])


def test_offsets_may_be_numpy_integers(store: Any) -> None:
    spans = np.array([[0, 4], [5, 6]])
    dataset = ObjectStoreDataset(store, ranges=[("1", start, end) for start, end in spans])
    assert [fetch(dataset, 0), fetch(dataset, 1)] == [b"item", b"1"]


def test_either_keys_or_ranges_are_given(store: Any) -> None:
    for wrong in ({}, {"keys": ["a"], "ranges": [("a", 0, 1)]}):
        with pytest.raises(TypeError, match="either keys or ranges"):
            ObjectStoreDataset(store, **wrong)


def test_keys_may_come_from_any_ordered_iterable(store: Any) -> None:
    for keys in (("0", "1"), (key for key in "01"), np.array(["0", "1"])):
        assert fetch(ObjectStoreDataset(store, keys), 1) == b"item 1"


def test_an_empty_dataset_is_allowed(store: Any) -> None:
    dataset = ObjectStoreDataset(store, [])
    assert len(dataset) == 0
    with pytest.raises(IndexError):
        fetch(dataset)


# Indices


@pytest.mark.parametrize("index", [2, -3, 10**30])
def test_an_index_out_of_range_is_an_index_error(store: Any, index: int) -> None:
    with pytest.raises(IndexError, match="2 items"):
        fetch(ObjectStoreDataset(store, ["0", "1"]), index)


@pytest.mark.parametrize("index", ["0", 0.0, None])
def test_an_index_that_is_no_int_is_a_type_error(store: Any, index: Any) -> None:
    with pytest.raises(TypeError, match="index"):
        fetch(ObjectStoreDataset(store, ["0"]), index)


def test_indices_are_ints_of_any_kind_and_count_from_the_end(store: Any) -> None:
    dataset = ObjectStoreDataset(store, ["0", "1", "2"])
    assert [fetch(dataset, index) for index in (-1, np.int64(1), np.uint8(0))] == [
        b"item 2",
        b"item 1",
        b"item 0",
    ]


# Functions and templates


def test_a_function_is_called_when_its_item_is_fetched(store: Any) -> None:
    calls: list[int] = []

    def where(index: int) -> str:
        calls.append(index)
        return str(index)

    dataset = ObjectStoreDataset.from_function(store, where, 3)
    assert calls == []
    assert fetch(dataset, -1) == b"item 2"
    assert calls == [2]


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        ("a/../b", "location", "segment '..'"),
        (7, "location", "a range is"),
        (("k", 3, 1), "location", "ends before it starts"),
        (("1", 0, 1001), "too_large", "it has 1001 bytes, more than max_bytes=1000"),
    ],
)
def test_a_bad_location_from_a_function_is_an_error_of_its_item(
    store: Any, wrong: Any, kind: str, message: str
) -> None:
    dataset = ObjectStoreDataset.from_function(
        store, lambda index: wrong if index else "0", 2, max_bytes=1000
    )
    assert fetch(dataset, 0) == b"item 0"
    error = error_of(dataset, 1)
    assert (error.kind, error.index, error.attempts) == (kind, 1, 0)
    assert message in str(error)


def test_what_a_function_raises_comes_out_as_it_is(store: Any) -> None:
    def where(index: int) -> str:
        raise KeyError(index)

    with pytest.raises(KeyError):
        fetch(ObjectStoreDataset.from_function(store, where, 1))


def test_a_template_is_checked_when_built(store: Any) -> None:
    obstore.put(store, "train/000002.bin", b"two")
    columns = {"split": ["test", "train"], "number": [1, 2]}
    assert fetch(ObjectStoreDataset.from_template(store, "{split}/{number:06}.bin", columns), 1) == b"two"
    assert fetch(ObjectStoreDataset.from_template(store, "{index}", length=3), 2) == b"item 2"
    for template, named in [
        ("{split", columns),
        ("{other}", columns),
        ("a//{index}", None),
        ("no placeholder", None),
    ]:
        with pytest.raises(OptionError):
            ObjectStoreDataset.from_template(store, template, named, length=2)


@pytest.mark.parametrize("value", ["a/b", "..", "", "a\nb"])
def test_a_value_can_not_leave_its_place_in_a_key(store: Any, value: str) -> None:
    dataset = ObjectStoreDataset.from_template(store, "in/{name}", {"name": ["fine", value]})
    assert error_of(dataset, 1).kind == "location"


# Stores and options


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("bucket/prefix", "no scheme"),
        ("s3:bucket", "no scheme"),
        (f"s3://user:{SECRET}@bucket/prefix", "user or password"),
        (f"http://user:{SECRET}@host/prefix", "user or password"),
        (f"https://account.blob.core.windows.net/container?sv=1&sig={SECRET}", "query or fragment"),
        (f"s3://bucket/prefix?X-Amz-Signature={SECRET}", "query or fragment"),
        (f"s3://bucket/prefix#{SECRET}", "query or fragment"),
        ("s3://bucket/a/../b", "'//', '.' or '..'"),
        ("s3://bucket/a/%2e%2e/b", "'//', '.' or '..'"),
        ("s3://bucket/a//b", "'//', '.' or '..'"),
        ("ftp://host/prefix", "can't make a store"),
        ("s3:///prefix", "can't make a store"),
        ("http://[::1/prefix", "can't be read"),
        ("file:///no/such/folder", "can't make a store"),
    ],
)
def test_a_url_that_can_not_be_a_store_is_refused_without_its_secrets(url: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        ObjectStoreDataset(url, ["k"])
    assert message in str(caught.value)
    assert SECRET not in everything_told_by(caught.value)


@pytest.mark.parametrize("wrong", [b"s3://bucket", Path("/tmp"), 7, None, object()])
def test_a_store_of_a_wrong_type_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="store must be a URL such as"):
        ObjectStoreDataset(wrong, ["k"])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"no_such_option": 1}, OptionError, "no_such_option"),
        ({"client_options": {"no_such": 1}}, OptionError, "no_such"),
        ({"client_options": {"timeout": "30s"}}, OptionError, "given as timeout="),
        ({"client_options": 7}, TypeError, "client_options must be a mapping"),
        ({"retry_config": {}}, OptionError, "given as retry="),
        ({"retry": 3}, TypeError, "retry must be a Retry"),
        ({"timeout": 0}, OptionError, "timeout"),
        ({"timeout": "30s"}, TypeError, "timeout"),
        ({"max_bytes": 0}, OptionError, "max_bytes"),
        ({"max_bytes": 1.5}, TypeError, "max_bytes"),
        ({"max_bytes": True}, TypeError, "max_bytes"),
    ],
)
def test_a_bad_option_is_refused_when_built(options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ObjectStoreDataset("s3://bucket", ["k"], **{"region": "us-east-1", **options})


@pytest.mark.parametrize("options", [{"region": "us-east-1"}, {"retry": Retry(1)}, {"timeout": 5.0}])
def test_options_beside_a_store_object_are_refused(store: Any, options: Any) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(options))}: only for stores made from a URL"):
        ObjectStoreDataset(store, ["k"], **options)


def test_without_obstore_the_error_has_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'feedline\[object-store\]'"):
        ObjectStoreDataset("s3://bucket", ["k"])


def test_retry_and_timeout_become_the_clients_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    from_url = obstore.store.from_url
    monkeypatch.setattr(
        obstore.store, "from_url", lambda url, **given: made.append(given) or from_url(url, **given)
    )
    retry = Retry(5, 0.5, 4.0)
    for _ in range(8):
        ObjectStoreDataset("s3://bucket", ["k"], retry=retry, timeout=7.5, region="us-east-1")
    assert {given["client_options"]["timeout"] for given in made} == {timedelta(seconds=7.5)}
    assert {given["retry_config"]["max_retries"] for given in made} == {5}
    assert {given["retry_config"]["backoff"]["max_backoff"] for given in made} == {timedelta(seconds=4)}
    # Every store begins with a wait of its own: what failed together does not come back together.
    first = {given["retry_config"]["backoff"]["init_backoff"] for given in made}
    assert len(first) > 1
    assert all(timedelta(seconds=0.25) <= wait <= timedelta(seconds=0.5) for wait in first)
    # Neither the time of all tries nor that of all waits ends the retries early.
    assert made[0]["retry_config"]["retry_timeout"] >= timedelta(seconds=6 * 7.5 + 5 * 4)


@pytest.mark.parametrize("timeout", [None, 1e300])
def test_no_limit_and_endless_waits_are_allowed(faulty_store: FaultyStore, timeout: float | None) -> None:
    faulty_store.objects["k"] = b"value"
    faulty_store.fail("k", answer(503))
    server = faulty_store.s3()
    dataset = ObjectStoreDataset(
        server.url, ["k"], retry=Retry(32, 0.001, 1e300), timeout=timeout, **server.options
    )
    assert fetch(dataset) == b"value"


# Local folders


def test_a_local_store_follows_links_and_refuses_folders(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder").mkdir()
    dataset = ObjectStoreDataset(tmp_path.as_uri(), ["file", "link", "dangling", "folder"])
    assert [fetch(dataset, 0), fetch(dataset, 1)] == [b"content", b"content"]
    assert [error_of(dataset, index).kind for index in (2, 3)] == ["not_found", "not_found"]
    assert error_of(dataset, 2).location == f"{tmp_path}/dangling"


def test_a_local_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "a folder, 100%, é"
    folder.mkdir()
    (folder / "k").write_bytes(b"content")
    assert fetch(ObjectStoreDataset(folder.as_uri(), ["k"])) == b"content"
    assert fetch(ObjectStoreDataset(obstore.store.LocalStore(folder), ["k"])) == b"content"


def test_a_name_that_a_local_store_keeps_for_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="FileDataset can"):
        ObjectStoreDataset(obstore.store.LocalStore(tmp_path), ["upload#1"])
    ObjectStoreDataset(obstore.store.MemoryStore(), ["upload#1"])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes on this system")
def test_a_file_that_never_answers_is_a_timeout(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    try:
        error = error_of(ObjectStoreDataset(tmp_path.as_uri(), ["pipe"], timeout=0.1))
    finally:
        os.close(os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK))  # lets the reading thread go
    assert (error.kind, error.attempts) == ("timeout", 1)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_denied(tmp_path: Path) -> None:
    (tmp_path / "k").touch(0o000)
    assert error_of(ObjectStoreDataset(tmp_path.as_uri(), ["k"])).kind == "denied"


# HTTP


@pytest.mark.parametrize("ending", ["", "/"])
def test_a_slash_at_the_end_of_a_url_changes_nothing(faulty_store: FaultyStore, ending: str) -> None:
    faulty_store.objects["folder/k"] = b"value"
    url = f"{faulty_store.endpoint}/b/folder{ending}"
    assert fetch(ObjectStoreDataset(url, ["k"], client_options={"allow_http": True})) == b"value"
    assert [request.target for request in faulty_store.requests] == ["/b/folder/k"]


# Secrets


def test_credentials_are_in_no_message_and_no_repr(faulty_store: FaultyStore) -> None:
    server = faulty_store.s3(secret_access_key=SECRET, token=SECRET + "-token")
    faulty_store.objects["over"] = bytes(11)
    echo = f"<Error><Code>SignatureDoesNotMatch</Code><StringToSign>{SECRET}</StringToSign></Error>".encode()
    faulty_store.fail("denied", answer(403, echo))
    faulty_store.fail("failing", *[answer(500, echo)] * 9)
    keys = ["missing", "over", "denied", "failing"]
    dataset = ObjectStoreDataset(
        server.url, keys, max_bytes=10, retry=Retry(1, 0.001, 0.01), **server.options
    )
    errors = [error_of(dataset, index) for index in range(len(keys))]
    assert [error.kind for error in errors] == ["not_found", "too_large", "denied", "status"]
    assert [error.location for error in errors] == [f"s3://b/{key}" for key in keys]
    told = (
        "".join(everything_told_by(error) for error in errors)
        + repr(dataset)
        + str(vars(dataset))
        + repr(vars(dataset))
    )
    assert SECRET not in told
    assert "SignatureDoesNotMatch" in told


def test_the_secrets_of_an_http_store_are_in_no_message(faulty_store: FaultyStore) -> None:
    port = free_port()
    for endpoint in (faulty_store.endpoint, f"http://127.0.0.1:{port}"):
        url = endpoint.replace("://", f"://user:{SECRET}@") + f"/b?sig={SECRET}"
        store = obstore.store.HTTPStore(
            url, client_options={"allow_http": True}, retry_config={"max_retries": 0}
        )
        dataset = ObjectStoreDataset(store, ["k"])
        error = error_of(dataset)
        assert error.location == f"{endpoint}/b/k"
        assert SECRET not in everything_told_by(error) + repr(dataset)


def test_a_signature_for_azure_is_in_no_message(azure_emulator: AzureEmulator) -> None:
    options = {name: value for name, value in azure_emulator.options.items() if name != "account_key"}
    dataset = ObjectStoreDataset(
        "az://feedline-tests/p", ["k"], sas_key=f"sv=2021-08-06&sig={SECRET}&se=2030", **options
    )
    error = error_of(dataset)
    assert (error.kind, error.location) == ("denied", "az://feedline-tests/p/k")
    assert SECRET not in everything_told_by(error) + repr(dataset)


def test_a_failing_source_of_credentials_is_denied() -> None:
    def provider() -> Any:
        raise RuntimeError("the vault is closed")

    options = {
        "region": "us-east-1",
        "endpoint": "http://127.0.0.1:9",
        "client_options": {"allow_http": True},
    }
    error = error_of(ObjectStoreDataset("s3://bucket", ["k"], credential_provider=provider, **options))
    assert error.kind == "denied"
    assert "the vault is closed" in str(error)


# Pickling and processes


def test_it_pickles_small_and_with_its_options(faulty_store: FaultyStore) -> None:
    faulty_store.objects["k"] = b"value"
    server = faulty_store.s3()
    dataset = ObjectStoreDataset(
        server.url, ["k"], retry=Retry(1), timeout=3.0, max_bytes=5, **server.options
    )
    stream = pickle.dumps(dataset)
    assert len(stream) < 2000
    copy = pickle.loads(stream)
    assert fetch(copy) == b"value"
    faulty_store.objects["k"] = b"larger"
    assert error_of(copy).kind == "too_large"


def test_its_kind_is_its_public_name(store: Any) -> None:
    assert dataset_kind(ObjectStoreDataset(store, [])) == "feedline.ObjectStoreDataset"


def test_its_repr_tells_the_store_and_the_length(tmp_path: Path, store: Any) -> None:
    assert repr(ObjectStoreDataset(store, ["a", "b"])) == "ObjectStoreDataset('memory:/', 2 items)"
    assert (
        repr(ObjectStoreDataset("s3://bucket/prefix/", ["a"], region="x"))
        == "ObjectStoreDataset('s3://bucket/prefix', 1 items)"
    )


_FORK = """
    import asyncio, os, sys
    from feedline.datasets.object_store import ObjectStoreDataset

    dataset = ObjectStoreDataset(sys.argv[1], ["k"])

    async def fetch():
        return await dataset[0]

    if sys.argv[2] == "before":
        asyncio.run(fetch())
    child = os.fork()
    if child == 0:
        try:
            print("child:", asyncio.run(fetch()), flush=True)
        except RuntimeError as error:
            print("child:", error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    if sys.argv[2] == "before":
        print("parent:", asyncio.run(fetch()))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("read", ["before", "after"])
def test_a_forked_child_works_or_says_why_not(tmp_path: Path, read: str) -> None:
    (tmp_path / "k").write_bytes(b"value")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(_FORK), tmp_path.as_uri(), read],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = done.stdout.splitlines()
    if read == "after":
        assert lines == ["child: b'value'"]
    else:
        assert lines[0].startswith("child: object stores can't be read in this process: it was forked")
        assert lines[1] == "parent: b'value'"
