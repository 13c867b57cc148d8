"""What a release consists of: one version, a changelog, a wheel that is typed, and an image that can be built."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

import contextpool as cp
from command_line import run
from conftest import REPOSITORY
from contextpool.errors import ContextPoolError
from support import script_module

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
SEMANTIC = r"(\d+)\.(\d+)\.(\d+)(?:-[0-9A-Za-z.-]+)?"


def test_the_version_is_semantic_and_said_once() -> None:
    assert re.fullmatch(SEMANTIC, cp.__version__)
    assert "version" in PROJECT["project"]["dynamic"]
    assert "version" not in PROJECT["project"]
    source = REPOSITORY / PROJECT["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{cp.__version__}"' in source.read_text("utf-8")
    said = [
        path
        for path in (REPOSITORY / "src").rglob("*.py")
        if re.search(r"__version__ = ", path.read_text("utf-8"))
    ]
    assert said == [source]


def test_the_changelog_s_newest_section_is_this_version() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    newest = re.fullmatch(rf"({SEMANTIC}) \((unreleased|\d{{4}}-\d{{2}}-\d{{2}})\)", headings[0])
    assert newest is not None, headings[0]
    assert newest.group(1) == cp.__version__
    order = [tuple(map(int, re.match(SEMANTIC, heading).groups())) for heading in headings]  # type: ignore[union-attr]
    assert order == sorted(order, reverse=True)
    assert sum("unreleased" in heading for heading in headings) <= 1


def test_every_extra_that_an_error_names_exists() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    for path in (REPOSITORY / "src").rglob("*.py"):
        for named in re.findall(r'MissingExtraError\(\s*[^,]+, "(\w+)"', path.read_text("utf-8")):
            assert named in extras, (path, named)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from no more than what the Dockerfile copies into its first stage."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    for source in copied_into("build"):
        target = folder / "source" / source
        if (REPOSITORY / source).is_dir():
            shutil.copytree(REPOSITORY / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / source, target)
    (told,) = [line for line in instructions() if line[0] == "RUN" and "hatchling build" in line[1]]
    command = shlex.split(told[1].replace("/wheels", str(folder)))
    subprocess.run([sys.executable, *command[1:]], cwd=folder / "source", check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_what_it_needs_and_no_more(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert wheel.name == f"contextpool-{cp.__version__}-py3-none-any.whl"
    assert "contextpool/py.typed" in names
    assert script_module("wheel_test").missing_from(wheel) == []
    tracked = {
        path.relative_to(REPOSITORY / "src").as_posix()
        for path in (REPOSITORY / "src" / "contextpool").rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".nbi", ".nbc")
    }
    assert tracked == {name for name in names if name.startswith("contextpool/")}
    assert all(
        name.startswith(("contextpool/", "contextpool-")) for name in names
    )  # nothing of the laboratory


def test_the_wheel_holds_a_model_of_at_most_a_megabyte(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel).infolist()
    model = [file for file in files if f"checkpoints/{cp.SHIPPED}/" in file.filename]
    names = {Path(file.filename).name for file in model}
    assert {"config.json", "metrics.json", "model.safetensors", "README.md"} <= names
    assert sum(file.file_size for file in model) <= 1_000_000


def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(tmp_path), "--target"]
    subprocess.run([*build, "sdist"], cwd=REPOSITORY, check=True, capture_output=True)
    (packed,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and later
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(tmp_path)
    source = tmp_path / f"contextpool-{cp.__version__}"
    assert {"Makefile", "Dockerfile", "constraints.txt", "tests", "docs", "examples", "lab", "results"} <= {
        entry.name for entry in source.iterdir()
    }
    subprocess.run([*build, "wheel"], cwd=source, check=True, capture_output=True)
    (again,) = tmp_path.glob("*.whl")
    assert set(zipfile.ZipFile(again).namelist()) == set(zipfile.ZipFile(wheel).namelist())


def test_a_wheel_that_lacks_something_is_told(wheel: Path, tmp_path: Path) -> None:
    poorer = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(poorer, "w") as new:
        for name in old.namelist():
            if name != "contextpool/py.typed":
                new.writestr(name, old.read(name))
        new.writestr("tests/test_x.py", "")
    done = subprocess.run(
        [sys.executable, REPOSITORY / "scripts" / "wheel_test.py", poorer],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "lacks or should not hold contextpool/py.typed, tests/test_x.py" in done.stderr


def test_the_public_surface_is_typed_for_users_of_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """mypy --strict over a user's program against the installed wheel: no error, no Any, the types we promise."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    program = Path(__file__).with_name("surface.py")
    (tmp_path / "surface.py").write_text(program.read_text("utf-8"), "utf-8")
    options = [
        "--strict",
        "--config-file=",
        "--cache-dir",
        str(tmp_path / "cache"),
        "--python-executable",
        str(tmp_path / "venv" / "bin" / "python"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "surface.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "error:" not in done.stdout, done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.findall(r'Revealed type is "(.*)"', done.stdout)
    promised = re.findall(r"^reveal_type\(.*\)  # (.*)$", program.read_text("utf-8"), flags=re.MULTILINE)
    assert [kind.replace("builtins.", "") for kind in told] == promised
    assert len(promised) > 15
    assert not any(re.search(r"\bAny\b", kind) for kind in told)


def test_names_for_type_checkers_are_the_names_there_are() -> None:
    source = (REPOSITORY / "src" / "contextpool" / "__init__.py").read_text("utf-8")
    imported = source[source.index("if TYPE_CHECKING:") : source.index("__version__ =")]
    names = {name.strip() for line in re.findall(r" import (.+)", imported) for name in line.split(",")}
    assert names == set(cp.__all__) - {"__version__"}


# the image; no container can be run in the tests, so everything that it names is looked up


def instructions() -> list[tuple[str, str]]:
    """(keyword, rest) of each instruction of the Dockerfile, lines joined."""
    text = re.sub(r"\\\n", " ", (REPOSITORY / "Dockerfile").read_text("utf-8"))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def copied_into(stage: str) -> list[str]:
    """What a stage copies from the repository."""
    found, current = [], ""
    for keyword, rest in instructions():
        if keyword == "FROM":
            current = rest.split()[-1] if " AS " in rest else "final"
        elif keyword == "COPY" and current == stage and not rest.startswith("--from"):
            found += rest.split()[:-1]
    return found


def words(keyword: str) -> list[str]:
    """The JSON words of an instruction in exec form."""
    (rest,) = [rest for name, rest in instructions() if name == keyword]
    found: list[str] = json.loads(rest[rest.index("[") :])
    return found


def test_what_the_image_copies_is_there_and_reaches_the_builder() -> None:
    sources = copied_into("build") + copied_into("final")
    assert {"src", "pyproject.toml", "constraints.txt"} <= set(sources)
    assert all((REPOSITORY / source).exists() for source in sources)
    ignored = (REPOSITORY / ".dockerignore").read_text("utf-8").splitlines()
    rules = [line for line in ignored if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule.removeprefix("!") for rule in rules if rule.startswith("!")} == set(sources)


def test_the_image_runs_as_nobody_special_from_a_plain_base() -> None:
    order = [keyword for keyword, _ in instructions()]
    users = [rest for keyword, rest in instructions() if keyword == "USER"]
    assert users == ["contextpool"]
    assert order.index("USER") > max(place for place, keyword in enumerate(order) if keyword == "RUN")
    made = [rest for keyword, rest in instructions() if keyword == "RUN"]
    assert any(re.search(r"useradd .*--uid [1-9]\d{3,} contextpool", rest) for rest in made)
    bases = [rest.split()[0] for keyword, rest in instructions() if keyword == "FROM"]
    assert bases
    assert all(re.fullmatch(r"[a-z]+:[\w.-]+", base) for base in bases)  # no host, no path
    wanted = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert all(base.split(":")[1].startswith(wanted) for base in bases)


def test_the_extras_that_the_image_installs_exist() -> None:
    (installed,) = [rest for keyword, rest in instructions() if keyword == "RUN" and ".whl" in rest]
    (extras,) = re.findall(r"\.whl\)\[([\w,]+)\]", installed)
    assert set(extras.split(",")) <= set(PROJECT["project"]["optional-dependencies"])
    assert "serve" in extras.split(",")


def test_the_image_s_command_is_one_that_contextpool_takes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = words("ENTRYPOINT") + words("CMD")
    assert command[:2] == ["contextpool", "serve"]
    known = run(["serve", "--help"], capsys, monkeypatch).out
    assert all(word in known for word in command if word.startswith("-"))
    assert PROJECT["project"]["scripts"]["contextpool"]
    refused = run(
        command[1:], capsys, monkeypatch
    )  # all of it is understood: what fails is the missing token or run
    assert refused.code in (1, 2)
    assert "No such option" not in refused.err
    assert "token" in refused.err or "/data/run" in refused.err or ContextPoolError.__name__ in refused.err


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def test_the_healthcheck_succeeds_where_health_does_and_fails_elsewhere() -> None:
    pytest.importorskip("fastapi", reason="the serve extra is not installed")
    from contextpool.serve.app import open_to_all

    program, flag, code = words("HEALTHCHECK")
    assert (program, flag) == ("python", "-c")
    (path,) = re.findall(r"http://127\.0\.0\.1:8000(/\w+)", code)
    assert path in {route.path for route in open_to_all.routes}  # type: ignore[attr-defined]
    assert ("EXPOSE", "8000") in instructions()
    server = HTTPServer(("127.0.0.1", 0), Healthy)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    command = [sys.executable, "-c", code.replace("8000", str(server.server_port))]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    server.shutdown()
    server.server_close()
    thread.join()
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
