import contextlib
import gc
import logging
import os
import shutil
import subprocess
import time
from pathlib import Path

import hypothesis
import pytest
from browser import CHROMIUM, Browser
from click.testing import CliRunner
from forget import forget_file_systems
from output_schemas import check_outputs
from small_video import CAPTIONS, draw_video

from stepline.cli.errors import FAULT_EXIT_CODE
from stepline.networks.weights import weights_folder
from stepline.pages.web.local_server import Certificate

# A developer's own settings never reach a test.
os.environ["STEPLINE_CONFIG"] = ""
for variable in [name for name in os.environ if name.startswith("STEPLINE_") and "__" in name]:
    del os.environ[variable]

# No example has a time limit: a busy machine takes seconds for what takes a quiet one microseconds.
SLOW = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=SLOW)
hypothesis.settings.load_profile("untimed")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Imported modules and collected tests live as long as the process: they are not searched for
    garbage, which takes a third of the time of collecting them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# No test asks whether this machine is one of Google's; their client reads this as it is imported.
os.environ["NO_GCE_CHECK"] = "true"


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """Replies and other caches in a folder of the test's own."""
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def log_level():
    """A command with -v sets the level of the root logger; the next test must not see it."""
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


def _refuse_faults(module, name, status_of):
    """Fail every test in which a command ends with the exit code of a fault of Stepline itself."""
    run = getattr(module, name)

    def checked(*arguments, **options):
        result = run(*arguments, **options)
        if status_of(result) == FAULT_EXIT_CODE:
            pytest.fail(f"a fault of Stepline itself: {result.stderr}")
        return result

    setattr(module, name, checked)


_refuse_faults(CliRunner, "invoke", lambda result: result.exit_code)
_refuse_faults(subprocess, "run", lambda result: result.returncode)

# Tests that give themselves a cache of their own share the weights.
os.environ.setdefault("STEPLINE_WEIGHTS", str(weights_folder()))

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared():
    """The folder of real clips and annotations beside the checkout; tests that need it skip without
    it."""
    if not SHARED.is_dir():
        pytest.skip("needs the shared clips and annotations beside the checkout")
    return SHARED


@pytest.fixture(scope="session")
def shared_path(shared):
    """What finds a file or folder of the shared ones; a test skips where it is absent."""

    def find(name):
        if not (shared / name).exists():
            pytest.skip(f"needs ../shared/{name}")
        return shared / name

    return find


@pytest.fixture(scope="session", autouse=True)
def whisper_models():
    """All tests of this process share what is loaded of Whisper."""
    import faster_whisper

    load, loaded = faster_whisper.WhisperModel, {}

    def load_once(path, **options):
        file = Path(path, "model.bin")
        written = file.stat().st_mtime_ns if file.is_file() else None
        key = (path, written, *sorted(options.items()))
        if key not in loaded:
            loaded[key] = load(path, **options)
        return loaded[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faster_whisper, "WhisperModel", load_once)
        yield


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """One Chromium for all tests of pages."""
    if CHROMIUM is None:
        pytest.skip("no `chromium` on PATH; Debian: apt install chromium")
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture
def browser(chromium):
    """The Chromium of all tests, whose pages are closed after this one."""
    yield chromium
    chromium.close_pages()


@pytest.fixture
def bucket(monkeypatch):
    """An S3 server of this process with one bucket, `bucket`, that can be told to fail."""
    pytest.importorskip("moto", reason="needs moto, a stand-in for S3: pip install 'moto[s3]'")
    pytest.importorskip(
        "s3fs", reason="needs s3fs: pip install -c constraints.txt 'stepline[cloud]'"
    )
    from s3_server import s3_server

    from stepline.files.remote import filesystems
    from stepline.files.remote.settings import RemoteSettings

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with s3_server(monkeypatch) as faults:
        forget_file_systems()  # a new server on a new port
        filesystems.filesystem_of("s3://bucket", RemoteSettings()).mkdir("bucket")
        yield faults
        forget_file_systems()


@pytest.fixture
def google_bucket(monkeypatch, tmp_path):
    """Google Cloud Storage of this process with one bucket, gs://bucket, that can be told to
    fail."""
    pytest.importorskip("gcp_storage_emulator", reason="needs gcp-storage-emulator")
    pytest.importorskip(
        "gcsfs", reason="needs gcsfs: pip install -c constraints.txt 'stepline[cloud]'"
    )
    from gcs_server import gcs_server

    for emulator in ("api", "gcp_storage_emulator"):
        logging.getLogger(emulator).setLevel(logging.CRITICAL)
    with gcs_server(monkeypatch, tmp_path / "no-credentials") as faults:
        forget_file_systems()
        yield faults
        forget_file_systems()


@pytest.fixture(scope="session")
def small_video(tmp_path_factory):
    """A 16-second drawn video with a hum for sound."""
    return draw_video(tmp_path_factory.mktemp("video") / "small.mp4")


@pytest.fixture(scope="session")
def captions_file(tmp_path_factory):
    """Captions for the small video: a greeting and three steps."""
    path = tmp_path_factory.mktemp("captions") / "small.srt"
    path.write_text(CAPTIONS)
    return path


@pytest.fixture
def stepline():
    """Run the command line in this process: stepline("steps", ...) -> result with exit_code, stdout
    and stderr. The JSON that it writes into its folder --out follows its schema."""
    from stepline.cli import main

    def run(*arguments, **options):
        began = time.time_ns()
        texts = [str(argument) for argument in arguments]
        result = CliRunner().invoke(main, texts, **options)
        if result.exit_code == 0 and "--out" in texts[:-1]:
            check_outputs(texts[texts.index("--out") + 1], began)
        return result

    return run


@pytest.fixture
def limited_file_size():
    """Make every file that this process writes fail beyond a size, as a full disk does."""
    import resource

    @contextlib.contextmanager
    def limit(size):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limit


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A certificate for this machine, as docs/studio.md has it made."""
    if shutil.which("openssl") is None:
        pytest.skip("no `openssl` on PATH")
    cert, key = (tmp_path_factory.mktemp("tls") / name for name in ("cert.pem", "key.pem"))
    request = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=studio -addext"
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    made = (*request.split(), names, "-out", cert, "-keyout", key)
    subprocess.run(made, check=True, capture_output=True)
    return Certificate(cert, key)
