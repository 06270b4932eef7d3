"""The proxy that the environment names for a URL."""

from __future__ import annotations

from urllib import request

from feedline.datasets.fetching.urls import Url

__all__ = ["proxy_for"]

# The standard library's reading of `no_proxy`, which typeshed leaves out.
_bypasses = request.proxy_bypass_environment  # type: ignore[attr-defined]


def proxy_for(url: Url) -> str:
    """Return the proxy for `url`, with a scheme, or an empty string for none.

    Read are `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, in lower or upper case, as the standard library
    does.
    """
    proxies = request.getproxies_environment()
    proxy = proxies.get(url.scheme) or proxies.get("all") or ""
    if not proxy or _bypasses(url.host.strip("[]"), proxies):
        return ""
    return proxy if "://" in proxy else "http://" + proxy
