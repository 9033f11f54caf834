"""Who may ask the studio: whoever has the token of the address that was opened, or knows the
password.

The token is made anew at each start. A browser gets it once, in the address, and keeps it in a
cookie that no script reads and no other site's page sends; programs send it as `Authorization:
Bearer`.
"""

import hashlib
import hmac
import ipaddress
import re
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from stepline.errors import SettingsError
from stepline.limits import LimitError, read_limited
from stepline.web.local_server import is_this_machine

HEADER = "studio"  # what X-Stepline says of what is sent
SHORTEST = 8  # characters of a password
COST = 2**14  # N of scrypt: 16 MiB and some 50 ms a try
# wrong passwords of one address, and of all, in so many seconds
TRIES, TRIES_OF_ALL, WITHIN = 5, 60, 60.0
OPEN_PATHS = re.compile(r"/login|/static/[\w.-]+")  # what needs no token, for it tells nothing


class Password:
    """A password, of which only the scrypt hash is kept, and which cannot be tried often."""

    def __init__(self, password: str, clock: Callable[[], float] = time.monotonic) -> None:
        if len(password) < SHORTEST:
            raise SettingsError(
                f"a password of {len(password)} characters is too short; take {SHORTEST} or more"
            )
        self._salt, self._clock = secrets.token_bytes(16), clock
        self._hash = self._hashed(password)
        self._wrong: deque[tuple[float, str]] = deque()  # (when, address)

    def check(self, password: str, address: str) -> bool:
        """Tell whether it is the password. Raises HTTPException (429) for an address that was wrong
        too often."""
        now = self._clock()
        while self._wrong and self._wrong[0][0] < now - WITHIN:
            self._wrong.popleft()
        of_this = sum(who == address for _, who in self._wrong)
        if of_this >= TRIES or len(self._wrong) >= TRIES_OF_ALL:
            wait = {"Retry-After": f"{WITHIN:.0f}"}
            raise HTTPException(
                HTTPStatus.TOO_MANY_REQUESTS, "too many wrong passwords; wait a minute", wait
            )
        self._wrong.append((now, address))  # before the hash: those who try at once are counted too
        right = hmac.compare_digest(self._hash, self._hashed(password))
        if right:
            self._wrong.remove((now, address))
        return right

    def _hashed(self, password: str) -> bytes:
        return hashlib.scrypt(
            password.encode("utf-8", "surrogatepass"), salt=self._salt, n=COST, r=8, p=1
        )


def read_password(file: Path) -> Password:
    """Return the password in the first line of a file. Raises SettingsError where there is none, or
    a short one."""
    try:
        lines = read_limited(file, 4096).decode().splitlines()
        return Password(lines[0].strip() if lines else "")
    except (OSError, UnicodeDecodeError, LimitError) as error:
        raise SettingsError(
            f"--password-file {file}: cannot be read ({error}); write the password into it"
        ) from error
    except SettingsError as error:
        raise SettingsError(f"--password-file {file}: {error}") from error


class Access:
    """The rules of one server. host: the address it listens at. password: needed where others reach
    it.

    https: whether it speaks that.
    """

    def __init__(self, host: str, password: Password | None, *, https: bool = False) -> None:
        if password is None and not is_this_machine(f"{host}:0"):
            raise SettingsError(
                f"--host {host} lets others in; give --password-file a file with a password"
            )
        self.token = secrets.token_urlsafe(32)
        self.password, self._https = password, https
        # Browsers keep one jar for all ports of a host.
        self._cookie = f"stepline_{hashlib.sha256(self.token.encode()).hexdigest()[:8]}"
        self._names = {name.casefold() for name in ("localhost", host, socket.gethostname())}

    def answers_to(self, host: str) -> bool:
        """Tell whether the Host of a request is this server.

        Names can be bound anew, addresses cannot, nor can any over https: no certificate of ours
        holds another's name.
        """
        if self._https:
            return bool(host)
        if self.password is None:
            return is_this_machine(host)
        name = re.sub(r":\d{1,5}$", "", host)
        try:
            return bool(ipaddress.ip_address(name.strip("[]")))
        except ValueError:
            return name.casefold() in self._names

    def refuse(self, request: Request) -> Response | None:
        """Return the reply to a request that shows no token, or several; None for one that may go
        on."""
        path = request.url.path
        if self._opens(request):
            reply: Response = RedirectResponse(path, HTTPStatus.SEE_OTHER)
            self.let_in(reply)
            return reply
        if OPEN_PATHS.fullmatch(path) or self._is_known(request):
            return None
        if request.method == "GET" and not path.startswith("/api/") and self.password is not None:
            return RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        told = "open the address that `stepline studio` printed, or send its token as Authorization: Bearer"
        return JSONResponse(
            {"error": told}, HTTPStatus.UNAUTHORIZED, {"WWW-Authenticate": "Bearer"}
        )

    def let_in(self, reply: Response) -> None:
        """Have the browser keep the token."""
        reply.set_cookie(
            self._cookie, self.token, httponly=True, samesite="strict", path="/", secure=self._https
        )

    def _opens(self, request: Request) -> bool:
        """Tell whether a page is opened by an address with the token, once."""
        given = [
            value
            for name, value in parse_qsl(request.url.query, keep_blank_values=True)
            if name == "token"
        ]
        return (
            len(given) == 1
            and self._is_token(given[0])
            and request.method == "GET"
            and not request.url.path.startswith("/api/")
        )

    def _is_known(self, request: Request) -> bool:
        """Tell whether a request shows the token, and no other beside it."""
        bearers = [
            value.removeprefix("Bearer ") for value in request.headers.getlist("Authorization")
        ]
        pairs = (
            pair.partition("=")
            for line in request.headers.getlist("Cookie")
            for pair in line.split(";")
        )
        cookies = [value.strip() for name, _, value in pairs if name.strip() == self._cookie]
        shown = [*bearers, *cookies]
        return bool(shown) and all(map(self._is_token, shown))

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())
