"""The files around the package agree with each other and with what they promise."""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import dthw

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def sessions() -> set[str]:
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    return {
        node.name for node in tree.body
        if isinstance(node, ast.FunctionDef) and any("nox.session" in ast.unparse(d) for d in node.decorator_list)
    }  # fmt: skip


# --- Dependencies ---


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def direct() -> list[Requirement]:
    project = PROJECT["project"]
    needs = [*PROJECT["build-system"]["requires"], *project["dependencies"]]
    for group in [*project["optional-dependencies"].values(), *PROJECT["dependency-groups"].values()]:
        needs += [need for need in group if isinstance(need, str)]
    return [Requirement(need) for need in needs]


@pytest.mark.parametrize("need", direct(), ids=str)
def test_every_direct_dependency_is_pinned_within_its_range(need: Requirement) -> None:
    assert need.specifier.contains(pins()[canonicalize_name(need.name)])


def test_constraints_are_exact_pins_and_nothing_else() -> None:
    for name, version in pins().items():
        assert name == canonicalize_name(name)
        assert re.fullmatch(r"\d[\w.]*", version), f"{name}: {version} is not one plain version"
    assert pins()["torch"] == "2.13.0"


def test_what_is_installed_here_is_what_the_constraints_say() -> None:
    if Path(sys.prefix) != ROOT / ".nox" / "dthw":
        return  # somebody's own environment, which may hold anything
    freeze = subprocess.run(
        [sys.executable, "-m", "pip", "list", "--format=freeze", "--exclude-editable"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    installed = {canonicalize_name(n): v.partition("+")[0] for n, v in (line.split("==") for line in freeze.split())}
    ours = {name: version for name, version in installed.items() if name != "dthw"}
    assert {name: version for name, version in ours.items() if pins().get(name) != version} == {}


# --- What the files tell a reader ---


def test_every_nox_command_named_anywhere_exists() -> None:
    for path in tracked():
        if path.suffix in {".md", ".py", ".yml", ".yaml", ".ipynb"} or path.name == "run":
            text = path.read_text(encoding="utf-8")
            named = {word for found in re.findall(r"\bnox -s ((?:[a-z]\w*[ ]?)+)", text) for word in found.split()[:1]}
            assert named <= sessions(), path


def test_readme_gives_the_two_commands_and_the_check_runs_the_second() -> None:
    start = "python3 -m venv .venv && .venv/bin/pip install nox && .venv/bin/nox -s"
    assert f"{start} serve\n" in README
    assert f"{start} tests\n" in README
    check = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert f"{start} tests" in check
    assert "nox -s lint" in check
    assert "nox -s site" in check


def test_every_session_says_what_it_does() -> None:
    listed = subprocess.run([sys.executable, "-m", "nox", "-l"], cwd=ROOT, capture_output=True, text=True, check=True)
    described = dict(re.findall(r"^[*-] (\w+) -> (.+)$", listed.stdout, re.MULTILINE))
    assert set(described) == sessions()
    assert {"site", "serve", "tests", "lint", "figures", "measure", "bench", "soak", "exercise"} <= set(described)


def check_schema(schema: str, files: list[Path]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True)


def test_workflows_and_citation_match_their_schemas() -> None:
    """The schemas come with check-jsonschema: nothing is fetched."""
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert {path.name for path in workflows} == {"check.yml", "pages.yml"}
    for schema, files in {"github-workflows": workflows, "citation-file-format": [ROOT / "CITATION.cff"]}.items():
        checked = check_schema(schema, files)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_faulty_workflow_would_be_noticed(tmp_path: Path) -> None:
    text = (ROOT / ".github" / "workflows" / "check.yml").read_text(encoding="utf-8")
    (tmp_path / "check.yml").write_text(text.replace("runs-on:", "runs_on:"))
    assert check_schema("github-workflows", [tmp_path / "check.yml"]).returncode == 1


def test_workflows_run_nox_with_least_rights() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert workflow["permissions"] == {"contents": "read"}
        commands = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
        assert any(command.startswith("nox -s") for command in commands)


def test_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == dthw.__version__
    assert citation["license"] == PROJECT["project"]["license"]


def test_changelog_speaks_of_this_version_or_the_next() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)
    assert headings[0] in ("Unreleased", dthw.__version__)


def test_licences_are_whole() -> None:
    code = (ROOT / "LICENSE").read_text(encoding="utf-8")
    text = (ROOT / "LICENSE-docs.md").read_text(encoding="utf-8")
    assert "Apache License" in code
    assert "END OF TERMS AND CONDITIONS" in code
    assert all(f"Section {number} – " in text for number in range(1, 9))


def test_the_picture_in_the_readme_exists() -> None:
    for name in re.findall(r'(?:src|srcset)="([^"]+)"', README):
        assert (ROOT / name).is_file(), name


# --- What no file contains ---

# In pieces, so that this file passes too.
NEVER = {
    "the path of a machine": r"(?<![\w.])/(?:work|root|tmp/w)/" + r"\w",
    "a package registry's host": r"(?i)\b(?:pypi" + r"\.org|python" + r"hosted|npm" + r"js\.|deb\.deb" + r"ian|"
    r"download\.py" + r"torch)",
    "a helper's name": r"(?i)\b(?:assis" + r"tants?|chat" + r"bot|cla" + r"ude)\b",
    "the number of a task": r"(?i)\b(?:see|in|per|of|the|for) is" + r"sue \d|\bis" + r"sue #\d",
    "what was left for later": r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b",
}


@pytest.mark.parametrize("what", NEVER)
def test_no_file_names(what: str) -> None:
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {match[0]!r}" for match in re.finditer(NEVER[what], text)]
    assert found == []


# --- Compact is a promise ---

CORE = ("units", "topology", "collectives", "simulate", "failures")


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def lines_of_code(path: Path) -> int:
    """Lines that do something: docstrings, which owe their readers tables and references, comments and blanks do not
    count against compactness."""
    source = path.read_text(encoding="utf-8")
    silent = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    told = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            told |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    spoken = {n for t in tokens if t.type not in silent for n in range(t.start[0], t.end[0] + 1)}
    return len(spoken - told)


def test_the_package_stays_compact() -> None:
    modules = {path.relative_to(ROOT / "src" / "dthw"): path for path in ROOT.glob("src/dthw/**/*.py")}
    sizes = {path: lines_of_code(full) for path, full in modules.items()}
    assert sum(size for path, size in sizes.items() if path.parts[0].removesuffix(".py") in CORE) <= 3500
    assert sum(sizes.values()) <= 9000
    long = {str(path): lines(full) for path, full in modules.items() if lines(full) > 400}
    assert long == {}, "a file holds one idea, in about 350 lines, docstrings and all"
