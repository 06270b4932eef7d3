"""Stores: made from a URL and options or given as objects, what messages call them, and whether they pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from feedline.datasets.fetching.limits import check_limit, check_retry
from feedline.datasets.fetching.retry import Retry
from feedline.datasets.fetching.store_errors import scrub
from feedline.errors import MissingExtraError, OptionError

__all__ = [
    "GivenStore",
    "StoreSource",
    "UrlStore",
    "obstore_module",
    "service_of",
    "store_place",
    "store_source",
]

DEFAULT_RETRY = Retry(max_retries=3, initial_backoff=0.2, max_backoff=10.0)
DEFAULT_TIMEOUT = 30.0
# The client takes no "none" and no endless wait; this is longer than any request lives.
_LONGEST_SECONDS = 365 * 86400.0
# The client draws a wait from between the first one and twice the last; an empty interval makes it panic.
_SHORTEST_BACKOFF = 0.001


def obstore_module() -> Any:
    """Return the module obstore; a `MissingExtraError` if it is not installed."""
    try:
        import obstore
        import obstore.store
    except ImportError:
        raise MissingExtraError.of("ObjectStoreDataset", "object-store") from None
    return obstore


@dataclass(frozen=True)
class UrlStore:
    """A store as URL and options: what pickles, and what a worker process makes its own store of.

    Attributes:
        url: without query, user or password.
        options: for `obstore.store.from_url`; may hold credentials, so they are never shown.
        retry: how often the client tries a request again.
        timeout: seconds per request, or `None` for no limit.
    """

    url: str
    options: Mapping[str, Any] = field(repr=False)
    retry: Retry
    timeout: float | None

    @property
    def restarts(self) -> int:
        """How often an object may be asked for anew whose body could not be completed."""
        return self.retry.max_retries

    def open(self) -> Any:
        """Make the store; nothing is asked of it.

        Raises:
            OptionError: obstore refuses URL or options.
        """
        obstore = obstore_module()
        options = dict(self.options)
        timeout = min(self.timeout or _LONGEST_SECONDS, _LONGEST_SECONDS)
        client = {**options.pop("client_options", {}), "timeout": timedelta(seconds=timeout)}
        try:
            return obstore.store.from_url(
                self.url,
                client_options=client,
                retry_config=_retry_config(self.retry, timeout),
                **options,
            )
        except (obstore.exceptions.BaseError, ValueError, OSError) as error:
            reason = scrub(str(error))
        # Not chained: the client's own text may show the URL and options whole.
        raise OptionError(f"obstore can't make a store of {self.url!r}: {reason}")


@dataclass(frozen=True)
class GivenStore:
    """A store object that the user made, with its own retries, time limits and credentials."""

    store: Any = field(repr=False)

    restarts = 0
    retry = Retry(0)
    timeout = None

    def open(self) -> Any:
        """Return the store."""
        return self.store

    def __getstate__(self) -> dict[str, Any]:
        if type(self.store).__name__ == "MemoryStore":
            raise TypeError(
                "an ObjectStoreDataset over a MemoryStore can't be sent to another process: its objects lie in this "
                "process's memory. Use worker_type='thread', or a LocalStore"
            )
        return {"store": self.store}

    def __setstate__(self, state: dict[str, Any]) -> None:
        object.__setattr__(self, "store", state["store"])


StoreSource = UrlStore | GivenStore


def store_source(store: Any, retry: Any, timeout: Any, options: Mapping[str, Any]) -> StoreSource:
    """Check what a user gave as the store.

    Raises:
        TypeError: neither a URL nor a store of obstore.
        OptionError: a bad URL, or options beside a store object, which has its own.
        MissingExtraError: obstore is not installed.
    """
    if isinstance(store, str):
        return UrlStore(
            _check_url(store), _check_options(options), check_retry(retry), check_limit("timeout", timeout)
        )
    obstore = obstore_module()
    if not isinstance(store, obstore.store.ObjectStoreMethods):
        advice = "; for files, use FileDataset" if hasattr(store, "__fspath__") else ""
        raise TypeError(
            f"store must be a URL such as 's3://bucket/prefix' or a store of obstore.store, not a {type(store).__name__}{advice}"
        )
    given = list(options)
    given += ["retry"] if retry != DEFAULT_RETRY else []
    given += ["timeout"] if timeout != DEFAULT_TIMEOUT else []
    if given:
        raise OptionError(
            f"{', '.join(given)}: only for stores made from a URL; a store object keeps its own: set retry_config and "
            "client_options where it is made"
        )
    return GivenStore(store)


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        shown = f"{parts.scheme}://{host}{parts.path}"
    except ValueError:
        raise OptionError("store is no URL: its host or port can't be read") from None
    if not parts.scheme or "://" not in url:
        raise OptionError("store must be a URL such as 's3://bucket/prefix'; it has no scheme and '://'")
    # `user@host` without a password is no credential, but the container of an Azure URL (abfss://container@account...).
    if parts.password is not None or (parts.username is not None and not parts.scheme.startswith("abf")):
        raise OptionError(
            f"the URL {shown!r} has a user or password, which the store's client would not send: pass them as options"
        )
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise OptionError(
            f"the URL {shown!r} has a query or fragment, which would not reach the store: pass options as keywords "
            "(such as sas_key=...); for presigned URLs use HttpDataset"
        )
    if any(segment in (".", "..") for segment in unquote(parts.path).split("/")) or "//" in parts.path:
        raise OptionError(
            f"the path of the URL {shown!r} has '//', '.' or '..', which would be tidied into another one"
        )
    # A trailing slash would put a second one before every key of an HTTP store.
    return url.rstrip("/") if parts.path.strip("/") else url


_NAMED_ELSEWHERE = {
    "retry_config": "retry=Retry(...)",
    "max_retries": "retry=Retry(...)",
}


def _check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    for name, instead in _NAMED_ELSEWHERE.items():
        if name in options:
            raise OptionError(f"{name} is given as {instead}")
    client = options.get("client_options")
    if client is None:
        return {name: value for name, value in options.items() if name != "client_options"}
    if not isinstance(client, Mapping):
        raise TypeError(f"client_options must be a mapping, not a {type(client).__name__}")
    if "timeout" in client:
        raise OptionError("the timeout in client_options is given as timeout=, in seconds")
    return dict(options)


def _retry_config(retry: Retry, timeout: float) -> dict[str, Any]:
    # The first wait of the client has no random part. Drawn anew for every store that is made, it differs between
    # processes and machines, so that those that failed together do not come back together.
    first = min(max(retry.wait(0), _SHORTEST_BACKOFF), _LONGEST_SECONDS)
    longest = min(max(retry.max_backoff, first), _LONGEST_SECONDS)
    return {
        "max_retries": retry.max_retries,
        "backoff": {
            "init_backoff": timedelta(seconds=first),
            "max_backoff": timedelta(seconds=longest),
            "base": 2,
        },
        # Long enough for all tries: it is their number that ends them.
        "retry_timeout": timedelta(seconds=(retry.max_retries + 1) * (timeout + longest)),
    }


def service_of(store: Any) -> Literal["azure", "local", "memory", "other"]:
    """Return which kind of store it is, as far as it matters."""
    obstore = obstore_module()
    if isinstance(store, obstore.store.AzureStore):
        return "azure"
    if isinstance(store, obstore.store.LocalStore):
        return "local"
    return "memory" if isinstance(store, obstore.store.MemoryStore) else "other"


def store_place(store: Any) -> str:
    """Return what messages call the store: scheme, bucket and prefix, or a folder; no credentials."""
    stores = obstore_module().store
    if isinstance(store, stores.MemoryStore):
        return "memory:/"
    if isinstance(store, stores.LocalStore):
        return str(store.prefix or "").rstrip("/")
    if isinstance(store, stores.HTTPStore):
        parts = urlsplit(store.url)
        port = "" if parts.port is None else f":{parts.port}"
        return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}".rstrip("/")
    scheme, name = {
        stores.S3Store: ("s3", "bucket"),
        stores.GCSStore: ("gs", "bucket"),
        stores.AzureStore: ("az", "container_name"),
    }[next(kind for kind in (stores.S3Store, stores.GCSStore, stores.AzureStore) if isinstance(store, kind))]
    prefix = str(store.prefix or "").strip("/")
    bucket = store.config.get(name, "")
    return f"{scheme}://{bucket}/{prefix}".rstrip("/")
