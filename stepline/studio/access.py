"""Who may use the studio: whoever has the token, the password, or a key for programs.

The token is new at each start. It is in the address that the studio prints. A browser exchanges it
for a cookie that no script reads and no other site sends. Programs send the token or a key as
`Authorization: Bearer`. The role of a key limits what it may do.
"""

import hashlib
import hmac
import html
import ipaddress
import logging
import re
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from stepline.errors import SettingsError
from stepline.limits import LimitError, read_limited
from stepline.pages.web.local_server import error_response, is_this_machine
from stepline.studio.keys import KeyFile, Role, needed_role, role_includes

log = logging.getLogger(__name__)

HEADER_VALUE = "studio"  # value of X-Stepline in requests that send something
MIN_PASSWORD_CHARS = 8
MAX_PASSWORD_FILE_BYTES = 4096
SCRYPT_COST = 2**14  # N of scrypt: 16 MiB and some 50 ms per try
MAX_PASSWORD_TRIES = 5  # wrong passwords of one network in `TRIES_WINDOW_SECONDS`
# Wrong passwords of all networks, after which a network may be wrong only once.
MAX_PASSWORD_TRIES_OF_ALL = 60
MAX_KNOWN_NETWORKS = 10_000  # from which someone logged in
IPV6_NETWORK_BITS = 64  # one household has that many addresses
TRIES_WINDOW_SECONDS = 60.0
OPEN_PATHS = re.compile(r"/login|/health|/static/[\w.-]+")  # need no token: they reveal nothing
# A name or an address, and maybe a port.
HOST_HEADER = re.compile(r"([\w.-]+|\[[\da-f:.]+\])(:\d{1,5})?", re.ASCII | re.IGNORECASE)
PROGRAM_PATHS = re.compile(r"/api/.*|/health")  # asked by programs, not by browsers


class Password:
    """A password with a limit on wrong tries. Only its scrypt hash is kept."""

    def __init__(self, password: str, clock: Callable[[], float] = time.monotonic) -> None:
        if len(password) < MIN_PASSWORD_CHARS:
            raise SettingsError(
                f"a password of {len(password)} characters is too short; take {MIN_PASSWORD_CHARS} "
                "or more"
            )
        self._salt = secrets.token_bytes(16)
        self._clock = clock
        self._hash = self._hash_password(password)
        self._wrong_tries: deque[tuple[float, str]] = deque()  # the wrong ones: (when, network)
        self._known_networks: set[str] = set()
        self._lock = threading.Lock()

    def check(self, password: str, address: str) -> bool:
        """Return whether a text is the password.

        Args:
            password: the text to check.
            address: network address of the client. Wrong tries are counted per network.

        Raises HTTPException (429) after too many wrong tries. Tries of others never keep out a
        network from which someone logged in before, or which was not wrong yet.
        """
        network = client_network(address)
        # One after the other: tries at the same time count too, and only wrong ones do.
        with self._lock:
            now = self._clock()
            # Tries that are too old no longer count.
            while self._wrong_tries and self._wrong_tries[0][0] < now - TRIES_WINDOW_SECONDS:
                self._wrong_tries.popleft()
            client_tries = sum(other == network for _, other in self._wrong_tries)
            is_attacked = len(self._wrong_tries) >= MAX_PASSWORD_TRIES_OF_ALL
            is_unknown = network not in self._known_networks
            if client_tries >= (1 if is_attacked and is_unknown else MAX_PASSWORD_TRIES):
                raise HTTPException(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    "too many wrong passwords; wait a minute",
                    {"Retry-After": f"{TRIES_WINDOW_SECONDS:.0f}"},
                )
            # In constant time: how long it takes says nothing of how much was right.
            is_right = hmac.compare_digest(self._hash, self._hash_password(password))
            if not is_right:
                self._wrong_tries.append((now, network))
            elif len(self._known_networks) < MAX_KNOWN_NETWORKS:
                self._known_networks.add(network)
            return is_right

    def _hash_password(self, password: str) -> bytes:
        data = password.encode("utf-8", "surrogatepass")
        return hashlib.scrypt(data, salt=self._salt, n=SCRYPT_COST, r=8, p=1)


def client_network(address: str) -> str:
    """Return the network that the wrong passwords of an address are counted for.

    An IPv6 address counts as its /64, an address of this machine as 127.0.0.1.
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # no address, as of a socket of Unix
        return address
    ip = getattr(ip, "ipv4_mapped", None) or ip
    if ip.is_loopback:
        return "127.0.0.1"
    if ip.version == 4:
        return str(ip)
    return str(ipaddress.ip_network((ip, IPV6_NETWORK_BITS), strict=False))


def read_password(file: Path) -> Password:
    """Read the password in the first line of a file.

    Raises SettingsError if it is missing or short.
    """
    try:
        lines = read_limited(file, MAX_PASSWORD_FILE_BYTES).decode().splitlines()
        return Password(lines[0].strip() if lines else "")
    except (OSError, UnicodeDecodeError, LimitError) as error:
        raise SettingsError(
            f"--password-file {file}: cannot be read ({error}); write the password into it"
        ) from error
    except SettingsError as error:
        raise SettingsError(f"--password-file {file}: {error}") from error


class Access:
    """The rules of one server about which requests are allowed.

    Args:
        host: the network address at which the server listens.
        password: the login password. It is required if other machines can reach the server.
        https: whether the server uses https.
        keys: API keys of programs. None: programs have no keys.
    """

    def __init__(
        self,
        host: str,
        password: Password | None,
        *,
        https: bool = False,
        keys: KeyFile | None = None,
    ) -> None:
        # Without a password the server answers this machine alone.
        if password is None and not is_this_machine(f"{host}:0"):
            raise SettingsError(
                f"--host {host} lets others connect; give --password-file a file with a password"
            )
        self.token = secrets.token_urlsafe(32)
        self.password = password
        self._keys = keys
        self._keys_fault = ""
        self._https = https
        # Browsers keep the cookies of all ports of a host together.
        self._cookie = f"stepline_{hashlib.sha256(self.token.encode()).hexdigest()[:8]}"
        self._names = {name.casefold() for name in ("localhost", host, socket.gethostname())}

    def is_own_host(self, host: str) -> bool:
        """Return whether the Host header of a request names this server.

        A malicious site can make its name point to this machine. So without https, only addresses
        and the names of this machine are accepted. With https the browser checks the name.
        """
        if self._https:
            return HOST_HEADER.fullmatch(host) is not None
        if self.password is None:
            return is_this_machine(host)
        name = re.sub(r":\d{1,5}$", "", host)
        try:
            return bool(ipaddress.ip_address(name.strip("[]")))
        except ValueError:
            return name.casefold() in self._names

    def refuse(self, request: Request) -> Response | None:
        """Return the error response to a request that is not allowed, None for an allowed one.

        A request needs a valid token or key, and a role that is high enough.
        """
        # The path that the router uses. `request.url` also depends on the Host header.
        path = request.scope["path"]
        is_page = request.method == "GET" and not PROGRAM_PATHS.fullmatch(path)
        # The address that was opened: the token in it becomes a cookie.
        if is_page and self._has_url_token(request):
            reply = _redirect_without_token(request)
            self.set_session_cookie(reply)
            return reply
        if OPEN_PATHS.fullmatch(path):
            return None
        # Any other request needs the token, or a key whose role suffices.
        try:
            user = self._request_user(request)
        except SettingsError as error:
            if str(error) != self._keys_fault:  # one warning, however many requests follow
                log.warning("%s", error)
            self._keys_fault = str(error)
            reason = "the keys of this studio cannot be read; its log says why"
            return error_response(request, HTTPStatus.SERVICE_UNAVAILABLE, reason)
        if user is not None:
            request.state.user, role = user
            return _role_refusal(role, request)
        # A person gets the page to log in at, a program an error.
        if is_page and self.password is not None:
            return RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        reason = (
            "open the address that `stepline studio` printed, "
            "or send its token, or a key of `stepline keys`, as Authorization: Bearer"
        )
        response = error_response(request, HTTPStatus.UNAUTHORIZED, reason)
        response.headers["WWW-Authenticate"] = "Bearer"
        return response

    def set_session_cookie(self, reply: Response) -> None:
        """Set the cookie that holds the token."""
        reply.set_cookie(
            self._cookie, self.token, httponly=True, samesite="strict", path="/", secure=self._https
        )

    def _has_url_token(self, request: Request) -> bool:
        query = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in query if name == "token"]
        return len(tokens) == 1 and self._is_token(tokens[0])

    def _request_user(self, request: Request) -> tuple[str, Role] | None:
        """Return who sends a request (the name of a key, or "") and the role.

        None without a valid token or key. The token gives "admin", if every token in header and
        cookies is right. A key must be in the header. Raises SettingsError for a bad key file.
        """
        headers = request.headers
        # Every token that came, of the header and of the cookie.
        tokens = [value.removeprefix("Bearer ") for value in headers.getlist("Authorization")]
        for pair in ";".join(headers.getlist("Cookie")).split(";"):
            name, _, value = pair.partition("=")
            if name.strip() == self._cookie:
                tokens.append(value.strip())
        # One wrong token among right ones refuses the request.
        if tokens and all(map(self._is_token, tokens)):
            return "", "admin"
        # A key comes in the header alone, which no page of another site makes a browser send.
        if self._keys is None or len(tokens) != 1 or not headers.get("Authorization"):
            return None
        scheme, _, secret = headers["Authorization"].partition(" ")
        key = self._keys.find(secret) if scheme == "Bearer" else None
        return None if key is None else (key.name, key.role)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token.encode())


def _role_refusal(role: Role, request: Request) -> Response | None:
    """Return the refusal (403) of a request that needs a higher role.

    None for one that is allowed.
    """
    needed = needed_role(request.method, request.scope["path"])
    if role_includes(role, needed):
        return None
    return error_response(
        request,
        HTTPStatus.FORBIDDEN,
        f"this key has the role {role}, and {request.method} here needs {needed}; `stepline keys "
        f"add FILE NAME --role {needed}` makes one",
    )


def _redirect_without_token(request: Request) -> Response:
    """Return a redirect to the same page, without the token in its address.

    After a redirect from another site or a file, browsers do not send strict cookies. So a page
    with a refresh is used there.
    """
    path = request.scope["path"]
    if request.headers.get("Sec-Fetch-Site", "none") == "none":
        return RedirectResponse(path, HTTPStatus.SEE_OTHER)
    address = html.escape(path)
    return HTMLResponse(f'<!doctype html><meta http-equiv="refresh" content="0;url={address}">')
