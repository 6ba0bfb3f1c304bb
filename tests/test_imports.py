"""What each module needs and which way imports point.

The package promises layers: the standard library carries its root, numpy the schedules, torch the real runs,
matplotlib the drawings. Whoever lacks torch still gets everything that does not run ranks.
"""

import ast
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"

# Third-party packages that importing a module may bring in; the first pattern that fits decides.
TORCH = ("numpy", "torch")
ROWS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "standard library": (
        (),
        ("dthw", "dthw.collectives", "dthw.collectives.formulas", "dthw.ranks", "dthw._keeper", "dthw.units",
         "dthw.catalog*", "dthw.parallelism*", "dthw.exercises*"),
    ),
    "site": (("markdown", "math_core"), ("dthw.mathml",)),
    "drawing": (("numpy", "matplotlib"), ("dthw.draw*",)),
    "torch": (
        TORCH,
        ("dthw.collectives.run", "dthw.collectives.execute", "dthw.collectives.batches", "dthw.collectives.ddp",
         "dthw.measure*", "dthw.emulate*"),
    ),
    "simulation": (("numpy", "networkx"), ("dthw.topology*", "dthw.simulate*", "dthw.failures.montecarlo")),
    "failures": ((), ("dthw.failures*",)),
    "machine": (("defusedxml",), ("dthw.machine*",)),
    "numpy": (("numpy",), ("dthw.collectives.*",)),
}  # fmt: skip
OPTIONAL = {"torch", "matplotlib", "numpy", "networkx", "tqdm", "defusedxml", "markdown", "math_core"}

# Which packages of ours a package may import: the picture reads bottom-up. `ranks` and `_keeper` start processes; ""
# is the root, whose names only those use that face the outside world.
BELOW = {
    "units": set(),
    "catalog": {"units"},
    "ranks": {"_keeper"},
    "_keeper": set(),
    "topology": {"units", "catalog"},
    "collectives": {"units", "catalog", "topology"},
    "simulate": {"units", "catalog", "topology", "collectives"},
    "failures": {"units", "catalog"},
    "parallelism": {"units", "catalog"},
    "machine": {"units", "catalog", "topology"},
    "emulate": {"", "units", "catalog", "topology", "collectives", "simulate", "ranks"},
    "measure": {"", "units", "catalog", "topology", "collectives", "ranks", "machine"},
    "draw": {"", "units", "catalog", "topology", "collectives", "simulate", "machine"},
    "mathml": set(),
}
EXPECTED = {
    f"dthw.collectives.{name}" for name in ("patterns", "schedule", "algorithms", "verify", "cost", "formulas", "run")
}


def name_of(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(SRC.glob("dthw/**/*.py")) if path.name != "__main__.py"}


def row_of(module: str) -> str:
    exact = [row for row, (_, patterns) in ROWS.items() if module in patterns]
    fits = [row for row, (_, patterns) in ROWS.items() if any(fnmatch(module, pattern) for pattern in patterns)]
    return (exact or fits or [""])[0]


def test_the_core_is_there() -> None:
    assert set(MODULES) >= EXPECTED


def test_every_module_has_its_row_and_its_place() -> None:
    assert [module for module in MODULES if not row_of(module)] == []
    assert {module.split(".")[1] for module in MODULES if "." in module} <= set(BELOW)


# --- What importing brings in ---

BLOCKER = textwrap.dedent("""
    import sys

    class Blocker:
        '''Lets through what a row allows, and everything where torch and matplotlib bring their own crowd.'''

        def find_spec(self, name, path=None, target=None):
            top = name.partition(".")[0]
            if top in REFUSED if REFUSED else top not in ALLOWED and top not in sys.stdlib_module_names:
                raise ModuleNotFoundError(f"{name} is not among what this row may import", name=name)
            return None

    sys.meta_path.insert(0, Blocker())
    sys.path.insert(0, SRC)
    for module in MODULES:
        __import__(module)
    wrong = sorted({name.partition(".")[0] for name in sys.modules} & UNWANTED)
    assert not wrong, f"imported: {wrong}"
""")


@pytest.mark.parametrize("row", ROWS)
def test_a_row_imports_only_what_it_may(row: str) -> None:
    allowed = set(ROWS[row][0])
    modules = [module for module in MODULES if row_of(module) == row]
    # torch and matplotlib import a crowd that changes between versions: there, only the others' roots are refused.
    refused = OPTIONAL - allowed - ({"networkx"} if row == "torch" else set()) if row in ("torch", "drawing") else set()
    settings = {
        "SRC": str(SRC),
        "MODULES": modules,
        "ALLOWED": {"dthw", *allowed},
        "REFUSED": refused,
        "UNWANTED": {"matplotlib"} - allowed,
    }
    given = "".join(f"{name} = {value!r}\n" for name, value in settings.items())
    done = subprocess.run([sys.executable, "-c", given + BLOCKER], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{row} ({', '.join(modules)}):\n{done.stderr}"


def test_the_root_offers_its_names_without_importing_what_they_need() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(SRC)!r}); import dthw; print(dir(dthw), dthw.__version__, *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert "all_reduce" in done.stdout
    assert not OPTIONAL & set(done.stdout.split())


def test_importing_the_root_takes_under_a_fifth_of_a_second() -> None:
    def seconds(code: str) -> float:
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(SRC)!r}); {code}"], check=True
        )
        return time.perf_counter() - started

    # A busy machine only ever adds time: the smallest of several runs is the one that measures the import.
    whole, bare = zip(*((seconds("import dthw"), seconds("pass")) for _ in range(9)), strict=True)
    assert min(whole) - min(bare) < 0.2


# --- Which way imports point ---


def imports(tree: ast.AST, inside: bool = False) -> Iterator[tuple[str, bool]]:
    """Each module that a module imports, and whether it does so inside a function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, inside
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield (inner if inner in MODULES else node.module), inside
        else:
            yield from imports(node, inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))


IMPORTS = {
    module: list(imports(ast.parse(path.read_text(encoding="utf-8")))) for module, path in MODULES.items()
}  # fmt: skip


def package(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("module", [module for module in MODULES if module != "dthw"])
def test_a_module_imports_only_what_lies_below_it(module: str) -> None:
    ours = {name for name, _ in IMPORTS[module] if name.partition(".")[0] == "dthw"}
    above = {name for name in ours if package(name) not in BELOW[package(module)] | {package(module)}}
    assert above == set()
    if package(module) == "machine" and module != "dthw.machine.graph":
        assert not {name for name in ours if package(name) == "topology"}


def test_imports_make_no_circle() -> None:
    graph = {module: {name for name, _ in found if name in MODULES} - {module} for module, found in IMPORTS.items()}
    graph["dthw"] = set()  # the root loads the rest lazily and names it for type checkers alone
    while leaves := {module for module, below in graph.items() if not below}:
        graph = {module: below - leaves for module, below in graph.items() if module not in leaves}
    assert graph == {}


@pytest.mark.parametrize("module", MODULES)
def test_an_import_inside_a_function_keeps_something_optional(module: str) -> None:
    here = set(ROWS[row_of(module)][0])
    for name, inside in IMPORTS[module]:
        if inside:
            needs = set(ROWS[row_of(name)][0]) if name in MODULES else {name.partition(".")[0]}
            assert needs & OPTIONAL - here, f"{module} imports {name} inside a function, with nothing to keep optional"
