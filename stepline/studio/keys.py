"""API keys of programs. Each key has a name and a role, and outlives restarts.

The file holds the SHA-256 of each key, and only its owner may read it. Its path comes from the
command line, never from a library, which may be a stranger's.
"""

import hashlib
import hmac
import os
import re
import secrets
import stat
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

from pydantic import Field, TypeAdapter, ValidationError

from stepline.errors import SettingsError, first_line
from stepline.files.atomic_files import check_plain_file
from stepline.files.locks import lock_output
from stepline.limits import LimitError, read_limited
from stepline.records import FrozenModel

Role = Literal["read", "edit", "admin"]

KEY_ROLES: tuple[Role, ...] = ("read", "edit", "admin")  # each may do what those before it may
KEY_PREFIX = "stepline_"  # by which scanners of published code can find a key
KEY_BYTES = 32  # random bytes of a key. A hash without salt suffices for that many
MAX_KEY_FILE_BYTES = 2**20
MAX_KEYS = 1000
READING_METHODS = ("GET", "HEAD")
# What removes a video and all that people said about it, or writes outside of the library.
ADMIN_OPERATIONS = (
    ("DELETE", re.compile(r"/api/videos/[^/]+")),
    ("DELETE", re.compile(r"/api/jobs/[^/]+")),
    ("POST", re.compile(r"/api/share")),
)


class ApiKey(FrozenModel):
    """An API key of a program, as the key file stores it.

    Attributes:
        name: name of the key, chosen by the user.
        role: what a program with the key may do.
        digest: SHA-256 of the key's secret, in hexadecimal.
        created: time of creation, in seconds since 1970 (UTC).
    """

    name: str = Field(pattern=r"^[\w.-]{1,80}$")
    role: Role
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    created: float


KEY_LIST_ADAPTER = TypeAdapter(tuple[ApiKey, ...])


def needed_role(method: str, path: str) -> Role:
    """Return the lowest role that may send a request to a path."""
    if method in READING_METHODS:
        return "read"
    for admin_method, pattern in ADMIN_OPERATIONS:
        if method == admin_method and pattern.fullmatch(path):
            return "admin"
    return "edit"


def role_includes(role: Role, needed: Role) -> bool:
    """Return whether a role has the rights of another role."""
    return KEY_ROLES.index(role) >= KEY_ROLES.index(needed)


class KeyFile:
    """The API keys in a file. A running studio sees changes at its next request.

    Reading raises SettingsError if the file does not contain keys, or if other users can read it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, ...] | None = None
        self._keys: tuple[ApiKey, ...] = ()

    def read_keys(self) -> tuple[ApiKey, ...]:
        """Return the keys, the oldest first. Empty if there is no file yet."""
        try:
            state = self.path.stat()
        except FileNotFoundError:
            self._stamp = None
            self._keys = ()
            return ()
        # A file that did not change is not read again for each request.
        stamp = (state.st_ino, state.st_mtime_ns, state.st_size, state.st_mode, state.st_uid)
        if stamp != self._stamp:
            self._keys = self._read(state)
            self._stamp = stamp
        return self._keys

    def add(self, name: str, role: Role) -> str:
        """Create a key and return its secret, which is stored nowhere.

        Raises SettingsError for a name that is taken or not valid.
        """
        # The key is shown once. The file gets its digest alone.
        secret = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
        try:
            key = ApiKey(name=name, role=role, digest=_hash_key(secret), created=time.time())
        except ValidationError as error:
            raise SettingsError(
                f"{name[:80]!r}: not a name for a key; a name has 1 to 80 letters, digits, and any "
                "of _ . -"
            ) from error
        # Two commands at the same time would lose one of their keys.
        with self._lock():
            keys = self.read_keys()
            if any(other.name == name for other in keys):
                raise SettingsError(
                    f"{self.path}: {name} has a key; revoke it, or take another name"
                )
            if len(keys) >= MAX_KEYS:
                raise SettingsError(f"{self.path}: {MAX_KEYS} keys are the limit; revoke some")
            self._write((*keys, key))
        return secret

    def revoke(self, name: str) -> None:
        """Remove a key. Raises SettingsError if no key has the name."""
        with self._lock():
            keys = self.read_keys()
            others = tuple(key for key in keys if key.name != name)
            if len(others) == len(keys):
                names = ", ".join(key.name for key in keys) or "none"
                raise SettingsError(f"{self.path}: no key named {name[:80]!r}; there are: {names}")
            self._write(others)

    def find(self, secret: str) -> ApiKey | None:
        """Return the key with this secret, or None."""
        digest = _hash_key(secret)
        match = None
        # All keys are compared, so that the time does not depend on which one matches.
        for key in self.read_keys():
            if hmac.compare_digest(key.digest, digest):
                match = key
        return match

    def _lock(self) -> AbstractContextManager[bool]:
        return lock_output(self.path.with_name(f".{self.path.name}.lock"), self.path, wait=True)

    def _read(self, state: os.stat_result) -> tuple[ApiKey, ...]:
        if os.name == "posix" and stat.S_IMODE(state.st_mode) & 0o077:
            raise SettingsError(f"{self.path}: others can read or change it; chmod 600 {self.path}")
        try:
            return KEY_LIST_ADAPTER.validate_json(read_limited(self.path, MAX_KEY_FILE_BYTES))
        except (OSError, LimitError, ValidationError) as error:
            raise SettingsError(
                f"{self.path}: no file of keys ({first_line(error)}); `stepline keys add` makes "
                "one; name another file"
            ) from error

    def _write(self, keys: tuple[ApiKey, ...]) -> None:
        check_plain_file(self.path)
        # `write_atomic` would give the file the rights of others. This one is its owner's alone.
        descriptor, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        partial = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(KEY_LIST_ADAPTER.dump_json(keys, indent=2))
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self.path)
        finally:
            partial.unlink(missing_ok=True)


def _hash_key(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
