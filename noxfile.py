"""The project's commands: ``nox -l`` lists them.

All sessions share one environment, ``.nox/dthw``. It holds torch, so it is built once and then left alone until
what it is made from changes.
"""

import hashlib
import http.server
import os
import shutil
import socket
import subprocess
import sys
import venv
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import nox

ROOT = Path(__file__).parent
ENVIRONMENT = ROOT / ".nox" / "dthw"
BIN = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin")
CACHE = ROOT / ".cache" / "dthw"
SITE = ROOT / "site"
# What a block on a page can depend on, besides the environment.
BLOCK_INPUTS = (
    "README.md", "docs", "snippets", "src", "tests/conftest.py", "tests/docs", "conftest.py", "mkdocs.yml",
    "pyproject.toml", "constraints.txt",
)  # fmt: skip

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "tests", "site"]


# --- The environment ---


def digest(paths: Iterable[Path]) -> str:
    """One hash for the names and contents of files, and for the Python that reads them."""
    total = hashlib.sha256(sys.version.encode())
    for path in sorted(paths):
        total.update(f"{path.relative_to(ROOT)}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def prepare(session: nox.Session) -> dict[str, str | None]:
    """Bring the shared environment up to date and return the variables that put it first."""
    stamp = ENVIRONMENT / "made-from"
    wanted = digest([ROOT / "pyproject.toml", ROOT / "constraints.txt"])
    python = str(BIN / "python")
    if not stamp.is_file() or stamp.read_text() != wanted:
        if not Path(python).exists() or not _same_python(python):
            shutil.rmtree(ENVIRONMENT, ignore_errors=True)
            venv.create(ENVIRONMENT, with_pip=True)
        stamp.unlink(missing_ok=True)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "-c", "constraints.txt"]
        project = nox.project.load_toml("pyproject.toml")
        needs = [
            *project["project"]["dependencies"],
            *(need for extra in project["project"]["optional-dependencies"].values() for need in extra),
            *nox.project.dependency_groups(project, "dev"),
        ]
        session.run(*pip, "pip", silent=True)
        session.run(*pip, *needs)
        # Its builder came with the needs above, at a version we chose: no build environment of its own.
        session.run(*pip, "--no-deps", "--no-build-isolation", "-e", ".")
        stamp.write_text(wanted)
    return {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": str(ENVIRONMENT), "PYTHONHOME": None}


def _same_python(python: str) -> bool:
    version = subprocess.run([python, "-c", "import sys; print(sys.version)"], capture_output=True, text=True)
    return version.returncode == 0 and version.stdout.strip() == sys.version


def python(session: nox.Session, *args: str, env: dict[str, str | None] | None = None) -> None:
    """Run the shared environment's Python from the root, where every path on the pages starts."""
    session.chdir(ROOT)
    session.run(str(BIN / "python"), *args, env={**prepare(session), **(env or {})})


# --- The site ---


def blocks_passed() -> Path:
    """The file that exists once every block has run with exactly the present inputs."""
    inputs = [ROOT / name for name in BLOCK_INPUTS]
    files = [path for path in inputs if path.is_file()]
    for folder in filter(Path.is_dir, inputs):
        files += [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return CACHE / "blocks" / digest(files)


def remember(passed: Path) -> None:
    shutil.rmtree(passed.parent, ignore_errors=True)
    passed.parent.mkdir(parents=True)
    passed.touch()


def run_blocks(session: nox.Session) -> None:
    """Execute every block of every page, unless exactly these files have passed before."""
    passed = blocks_passed()
    if passed.exists():
        session.log("every block on the pages has run with exactly these files: not run again")
        return
    python(session, "-m", "pytest", "--no-header", *workers(), "tests/docs", "docs", "README.md")
    remember(passed)


def workers() -> list[str]:
    """One worker keeps a page, or a file of tests, to itself: blocks and process groups build on each other."""
    return ["-n", "2", "--dist", "loadfile"]


def build(session: nox.Session, address: str | None = None) -> None:
    run_blocks(session)
    python(session, "-m", "mkdocs", "build", "--strict", env=site_variables(address))


def site_variables(address: str | None) -> dict[str, str | None]:
    # The theme's notice about its own future is for maintainers; it would bury the build's warnings.
    return {"NO_MKDOCS_2_WARNING": "1"} | ({"DTHW_SITE_URL": address} if address else {})


@nox.session(python=False)
def site(session: nox.Session) -> None:
    """Execute every block of every page, then build the whole site into site/."""
    build(session)


@nox.session(python=False)
def serve(session: nox.Session) -> None:
    """Do what `site` does, then serve it on this machine until Ctrl-C; `-- --live` rebuilds pages as you write."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", 8000))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}/"
    if "--live" in session.posargs:
        python(session, "-m", "mkdocs", "serve", "-a", f"127.0.0.1:{port}", env=site_variables(address))
        return
    build(session, address)
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), partial(Pages, directory=str(SITE))) as server:
        print(f"\nThe site is at {address} (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


class Pages(http.server.SimpleHTTPRequestHandler):
    """Serve files as a static host does: without a word for each, and with the site's own page for what is missing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it so
        pass

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        missing = SITE / "404.html"
        if code != 404 or not missing.is_file():
            super().send_error(code, message, explain)
            return
        body = missing.read_bytes()
        self.send_response(404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


# --- Checks ---


@nox.session(python=False)
def tests(session: nox.Session) -> None:
    """Run all tests, the pages' blocks among them; what follows `--` goes to pytest."""
    passed = blocks_passed()
    python(session, "-m", "pytest", *workers(), *session.posargs)
    if not session.posargs:
        remember(passed)


@nox.session(python=False)
def lint(session: nox.Session) -> None:
    """Check style, formatting, types and workflows."""
    python(session, "-m", "ruff", "check", ".")
    python(session, "-m", "ruff", "format", "--check", ".")
    python(session, "-m", "mypy")
    workflows = [str(path.relative_to(ROOT)) for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
    python(session, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)


@nox.session(python=False)
def soak(session: nox.Session) -> None:
    """Run the long tests that `tests` leaves out."""
    python(session, "-m", "pytest", "-m", "soak", "--timeout", "3600", *session.posargs)


@nox.session(python=False)
def exercise(session: nox.Session) -> None:
    """Grade an answer: `nox -s exercise -- 6.2 [file]`; with no number, list the exercises."""
    python(session, "tests/exercises/grade.py", *session.posargs)


# --- Measurements and figures ---


@nox.session(python=False)
def measure(session: nox.Session) -> None:
    """Measure this machine; what follows `--` goes to `python -m dthw.measure`."""
    python(session, "-m", "dthw.measure", *session.posargs)


@nox.session(python=False)
def figures(session: nox.Session) -> None:
    """Measure where there is a CUDA GPU, then redraw every figure; `-- --redraw` only redraws, from committed data."""
    python(session, "docs/figures.py", *session.posargs)


@nox.session(python=False)
def bench(session: nox.Session) -> None:
    """Time the package against its peers: all of benchmarks/, or the files named after `--`; options go to them."""
    options = [arg for arg in session.posargs if arg.startswith("-")]
    names = [Path(arg).stem for arg in session.posargs if arg not in options]
    scripts = sorted((ROOT / "benchmarks").glob("*.py"))
    unknown = sorted(set(names) - {script.stem for script in scripts})
    if unknown:
        known = ", ".join(script.stem for script in scripts) or "none"
        session.error(f"no benchmark named {', '.join(unknown)}; there is {known}")
    for script in scripts:
        if not names or script.stem in names:
            session.log(f"benchmarks/{script.name}")
            python(session, f"benchmarks/{script.name}", *options)
